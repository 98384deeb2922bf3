"""Tests of the Kafka client's parts."""
