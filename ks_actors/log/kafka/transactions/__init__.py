"""Transactions."""

from ks_actors.log.kafka.transactions._hanging_transactions import Endings
from ks_actors.log.kafka.transactions._transaction_coordinator import Coordination
from ks_actors.log.kafka.transactions._transactional_producer import KafkaTransactionalProducer

__all__ = [
    "Coordination",
    "Endings",
    "KafkaTransactionalProducer",
]
