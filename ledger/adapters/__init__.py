"""The adapters: one folder per vendor or environment, each behind a port.

`avro`, `schemas`, `values` and `schema_fit` encode facts; `cloudevents` encodes headers; `faust_codec` decodes facts
for Faust. `blobs` holds the code that all blob stores share, `clock` the system's clock, `ed25519` the keys of anchors.
`prometheus` is the metrics endpoint. `hooks` delivers notifications by command or webhook. `parallel_observer` observes
all runners at once. `sandbox` runs calls in child processes with a time limit. `candidate_thread` runs a candidate of
an election, `forced_leadership` leads without a lock, for tests of fencing."""
