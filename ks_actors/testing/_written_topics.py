"""The topics that a driven topology writes, with the unread records of each."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ks_actors._errors import UnknownTopicOrPartition
from ks_actors.config import log_and_continue, log_and_fail
from ks_actors.topology import SinkNode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from ks_actors.records import Headers
    from ks_actors.task import AppTopics

    Written: TypeAlias = tuple[bytes | None, bytes | None, int, Headers]

_KNOWN_HANDLERS: Final = (log_and_continue, log_and_fail)


class WrittenTopics:
    """The unread records of each topic that was written, by its name in the log.

    Reading a topic that nothing writes is refused as long as the written topics are known. With a
    sink whose topic a function chooses, or a custom exception handler, any topic may be written.
    """

    __slots__ = ("_open", "_records", "_topics", "_written")

    def __init__(self, topics: AppTopics) -> None:
        self._topics: AppTopics = topics
        self._records: dict[str, deque[Written]] = {}
        config = topics.config
        handlers = (
            config.deserialization_exception_handler,
            config.processing_exception_handler,
            config.production_exception_handler,
        )
        sinks = [node for node in topics.topology.nodes.values() if isinstance(node, SinkNode)]
        self._open: bool = any(callable(sink.topic) for sink in sinks) or any(
            handler not in _KNOWN_HANDLERS for handler in handlers
        )
        self._written: frozenset[str] = topics.transaction_scope().topics

    def names(self) -> frozenset[str]:
        """Return the topics with written records."""
        return frozenset(self._records)

    def add(self, topic: str, records: Iterable[Written]) -> None:
        """Keep records of a topic, named as in the log."""
        self._records.setdefault(topic, deque()).extend(records)

    def take(self, topic: str) -> Written | None:
        """Return the oldest unread record; None without any."""
        records = self._unread(topic)
        return records.popleft() if records else None

    def count(self, topic: str) -> int:
        """Return the number of unread records."""
        return len(self._unread(topic))

    def _unread(self, topic: str) -> deque[Written]:
        """Return a topic's records. Raises UnknownTopicOrPartition if nothing writes the topic."""
        name = self._topics.topic(topic)
        if (records := self._records.get(name)) is not None:
            return records
        if not self._open and name not in self._written:
            topics = ", ".join(sorted(self._written)) or "none"
            raise UnknownTopicOrPartition(
                f"the topology writes no topic {topic!r}; it writes {topics}"
            )
        return deque()
