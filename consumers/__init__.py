"""Programs that know the ledger by its protocol alone (docs/PROTOCOL.md): none imports it."""
