"""The version, in this one place: the package metadata, `jobledger --version` and the event source all read it."""

__version__ = "0.1.0"
