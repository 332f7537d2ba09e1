"""Adapters of one host: leadership by a file lock, blobs and archive objects in a folder or a zip."""
