"""Producers."""

from ks_actors.log.kafka.producer._outcome import Outcome
from ks_actors.log.kafka.producer._partition_queue import NOBODY, Identity
from ks_actors.log.kafka.producer._producer import KafkaProducer
from ks_actors.log.kafka.producer._send_call import SendCall, missing
from ks_actors.log.kafka.producer._sender import EpochRefused, Sender

__all__ = [
    "NOBODY",
    "EpochRefused",
    "Identity",
    "KafkaProducer",
    "Outcome",
    "SendCall",
    "Sender",
    "missing",
]
