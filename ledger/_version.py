"""The version. The package metadata, `jobledger --version` and the event source all read it from here."""

__version__ = "0.1.0"
