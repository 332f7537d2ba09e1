"""The embedded ledger: `up` and `down` with one Kafka broker, and ZooKeeper members. Importing it starts nothing."""
