"""The adapters: one folder per vendor or environment, each behind a port.

`avro`, `schemas`, `values` and `fitting` encode facts, `cloudevents` the headers, `faust_codec` serves Faust. `blobs`
is what blob stores share, `clock` the system's clock, `ed25519` the keys of anchors, `prometheus` the metrics
endpoint, `hooks` commands and webhooks. `parallel_observer` asks all runners at once, `sandbox` runs calls in child
processes with a time limit, `forced` is leadership without a lock, for tests of the fence.
"""
