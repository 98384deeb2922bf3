"""All that brokers answer: importing a module notes its handlers."""

from tests.simulation import fetches, lookups
from tests.simulation.broker import HANDLERS

__all__ = ["HANDLERS", "fetches", "lookups"]
