"""Connections to brokers."""

from ks_actors.log.kafka.client._backoff import LEAST_S, Backoff
from ks_actors.log.kafka.client._calls import as_one_call
from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.client._connections import PRODUCE, Unavailable
from ks_actors.log.kafka.client._coordinators import GROUP, TRANSACTION
from ks_actors.log.kafka.client._known_topics import TopicMetadata
from ks_actors.log.kafka.client._leader_epochs import UNKNOWN_EPOCH, EpochHistory, LeaderEpochs
from ks_actors.log.kafka.client._loop_thread import LoopThread
from ks_actors.log.kafka.client._options import KafkaOptions
from ks_actors.log.kafka.client._shared_lookups import Lookups
from ks_actors.log.kafka.client._tokens import Tokens
from ks_actors.log.kafka.client._unknown_topics import UnknownTopics

__all__ = [
    "GROUP",
    "LEAST_S",
    "PRODUCE",
    "TRANSACTION",
    "UNKNOWN_EPOCH",
    "Backoff",
    "EpochHistory",
    "KafkaClient",
    "KafkaOptions",
    "LeaderEpochs",
    "Lookups",
    "LoopThread",
    "Tokens",
    "TopicMetadata",
    "Unavailable",
    "UnknownTopics",
    "as_one_call",
]
