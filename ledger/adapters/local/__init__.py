"""Adapters of one host: file lock, blobs in a folder."""
