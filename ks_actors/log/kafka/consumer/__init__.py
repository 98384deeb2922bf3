"""Fetchers."""

from ks_actors.log.kafka.consumer._fetcher import KafkaFetcher
from ks_actors.log.kafka.consumer._partition_reader import PartitionReader

__all__ = [
    "KafkaFetcher",
    "PartitionReader",
]
