"""All that brokers answer: importing a module notes its handlers."""

from tests.simulation import fetches, groups, lookups, offsets, produces, topics, transactions
from tests.simulation.broker import HANDLERS

__all__ = ["HANDLERS", "fetches", "groups", "lookups", "offsets", "produces", "topics", "transactions"]
