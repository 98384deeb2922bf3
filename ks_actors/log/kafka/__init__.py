"""Kafka as a log."""

from ks_actors.log.kafka._options import KafkaOptions

__all__ = ["KafkaOptions"]
