"""Kafka's wire format."""
