"""The log on Kafka, by confluent-kafka: `log` makes readers and writers, `topics` makes and checks topics."""
