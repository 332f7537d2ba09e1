"""Programs that rely only on the ledger's protocol (docs/PROTOCOL.md). None imports the package `ledger`."""
