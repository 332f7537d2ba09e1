"""The records of the log and of the published topic, as values.

`registers` is the grammar of keys, `facts` what a register can hold, `table` the last raw value of every register (the
hot loop of a cold start). `recovery` is the entry of one job, `published` the epoch filter of readers, `latest` reduces
many published records to those that count. `redaction` is the value that replaces a redacted one, `clocks` compares the
timestamps of a record.
"""
