"""The adapters: one folder per vendor or environment, each behind a port.

`avro`, `schemas`, `values` and `fitting` encode facts; `cloudevents` encodes headers; `faust_codec` decodes facts for
Faust. `blobs` holds the code that all blob stores share, `clock` the system's clock, `ed25519` the keys of anchors.
`prometheus` is the metrics endpoint. `hooks` delivers notifications by command or webhook. `parallel_observer` observes
all runners at once. `sandbox` runs calls in child processes with a time limit. `forced` is leadership without a lock,
for tests of fencing.
"""
