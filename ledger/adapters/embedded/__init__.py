"""The embedded world: one real Kafka broker as a child process, from jars that Ivy brings. Importing it starts nothing."""
