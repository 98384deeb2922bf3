"""Fetchers."""

from ks_actors.log.kafka.consumer._fetcher import KafkaFetcher
from ks_actors.log.kafka.consumer._partition_reader import Source

__all__ = [
    "KafkaFetcher",
    "Source",
]
