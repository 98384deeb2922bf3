"""Members that are really killed, frozen and restarted on a real Kafka, and what must hold of their output all the same."""
