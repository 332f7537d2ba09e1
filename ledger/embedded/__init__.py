"""The embedded ledger: `up` and `down` with one Kafka broker, and ZooKeeper members. The import starts no process."""
