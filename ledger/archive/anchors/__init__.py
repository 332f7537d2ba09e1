"""Anchors: digests of the chains, stored where a writer of the archive cannot write.

`anchors` stores them in a file, `anchor_topic` in the topic `ledger.anchors`. `anchoring` compares chains with their
anchors and writes new ones. `anchor_file` lets `anchoring` write to a file.
"""
