"""The log of tests of the client."""

from tests.kafka.conftest import log

__all__ = ["log"]
