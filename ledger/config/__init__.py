"""Settings as data.

`settings` are the sections, `config` the whole, `config_sources` the order of flag, environment and file. `topics`
are the settings of the topics, `broker_ports` the address of the embedded broker.
"""
