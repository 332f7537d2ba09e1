"""One test suite per port, run on the fake and on the real implementation."""
