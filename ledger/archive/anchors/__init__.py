"""Anchors: digests of the chains, kept where a writer of the archive cannot write.

`anchors` keeps them in a file, `anchor_topic` in the topic `ledger.anchors`; `anchoring` compares and writes them,
`anchor_file` is the file as a target of `anchoring`.
"""
