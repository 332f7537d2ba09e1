"""The settings of a process: sections, sources, and the topics' settings.

`settings` defines the sections, `config` all settings of a process, and `config_sources` reads environment and file.
`topics` holds the settings of the topics, `broker_ports` the address of the embedded broker.
"""
