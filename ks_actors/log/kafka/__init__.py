"""Kafka as a log."""

from ks_actors.log.kafka._log import KafkaLog
from ks_actors.log.kafka.client import KafkaOptions

__all__ = ["KafkaLog", "KafkaOptions"]
