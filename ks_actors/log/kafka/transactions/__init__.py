"""Transactions."""

from ks_actors.log.kafka.transactions._hanging_transactions import HangingTransactions
from ks_actors.log.kafka.transactions._transaction_coordinator import TransactionCoordinator
from ks_actors.log.kafka.transactions._transactional_producer import KafkaTransactionalProducer

__all__ = [
    "HangingTransactions",
    "KafkaTransactionalProducer",
    "TransactionCoordinator",
]
