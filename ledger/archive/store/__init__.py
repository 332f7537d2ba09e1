"""An archive in a store: written, sealed, compacted and verified.

`archive` is the archive as a whole, `chains` the chain of one partition in the store, `archiving` the work of the
archiver. `compaction` turns the objects of a day into three, `sealing` seals a bundle, `verifying` finds the first
broken record. `status`, `compaction_margin` and `metrics` report progress and the time left until compaction.
"""
