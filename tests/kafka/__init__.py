"""The log on a real Kafka."""
