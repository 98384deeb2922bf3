"""Real members on a real Kafka that are killed, frozen and restarted, and the rules that their output must still keep."""
