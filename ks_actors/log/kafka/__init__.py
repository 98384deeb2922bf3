"""Kafka as a log."""

from ks_actors.log.kafka._log import KafkaLog
from ks_actors.log.kafka.client._options import KafkaOptions

__all__ = ["KafkaLog", "KafkaOptions"]
