"""The topics that a client has asked about, as the brokers tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, final

from ks_actors._errors import LogError, UnknownTopicOrPartition
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.wire import INVALID_TOPIC_EXCEPTION, RETRIABLE, error_of, topics_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors.records import TopicPartition


class TopicMetadata(NamedTuple):
    """The leaders of a topic's partitions by number; -1 for a partition without a leader.

    `internal` marks Kafka's own topics. `id` is empty for a broker that has no ids.
    """

    name: str
    leaders: Mapping[int, int]
    internal: bool = False
    id: str = ""


def topics_in(response: Any) -> Mapping[str, TopicMetadata]:
    """Return the topics that exist by a broker's metadata."""
    return {
        name: TopicMetadata(name, leaders, internal, identity)
        for code, name, identity, internal, leaders in topics_of(response)
        if code == 0
    }


@final
class KnownTopics:
    """Topics with their leaders, and why others have none, as of the last metadata of each.

    `found` are the topics that exist, and `tracked` those whose leaders each refresh looks up.
    """

    __slots__ = ("_answered", "_refused", "found", "tracked")

    def __init__(self) -> None:
        self.found: dict[str, TopicMetadata] = {}
        self.tracked: set[str] = set()
        self._refused: dict[str, int] = {}
        # Topics that a broker has reported to exist or to be missing.
        self._answered: set[str] = set()

    def begin_like(self, other: KnownTopics) -> None:
        """Copy the leaders that another client of the same cluster knows."""
        self.found = dict(other.found)
        self._answered = set(other._answered)

    def note(self, response: Any) -> Mapping[str, TopicMetadata]:
        """Take over a broker's metadata; return the topics of them that exist."""
        existing = topics_in(response)
        for code, name, *_ in topics_of(response):
            self._answered.add(name)
            self._refused.pop(name, None)
            # A topic without a good answer is unknown, so old leaders must not be used.
            self.found.pop(name, None)
            if name in existing:
                self.found[name] = existing[name]
            elif code not in RETRIABLE and code != INVALID_TOPIC_EXCEPTION:
                self._refused[name] = code
        return existing

    def leader(self, partition: TopicPartition) -> int | None:
        """Return the known leader; None if there is none or it was never looked up."""
        topic = self.found.get(partition.topic)
        node = -1 if topic is None else topic.leaders.get(partition.partition, -1)
        return None if node < 0 else node

    def why_no_leader(self, partition: TopicPartition) -> LogError:
        """Return the error for a partition without a leader at the last lookup.

        Unavailable means that this may change.
        """
        code = self._refused.get(partition.topic)
        if code is not None:
            return error_of(code, f"failed to look up topic {partition.topic}")
        if partition.topic not in self._answered:
            # The cluster may have been unreachable since before the first lookup.
            return Unavailable(f"no broker has answered yet whether {partition} exists")
        topic = self.found.get(partition.topic)
        if topic is None or partition.partition not in topic.leaders:
            return UnknownTopicOrPartition(
                f"{partition} does not exist; create it, or wait until it has been created"
            )
        return Unavailable(f"{partition} has no leader at this time")

    def refuses(self, name: str) -> bool:
        """Return whether the brokers refuse to tell about a topic."""
        return name in self._refused

    def raise_refused(self, names: Iterable[str]) -> None:
        """Raise the error of the first topic that the brokers refuse to tell about, if any."""
        for name in names:
            if name in self._refused:
                raise error_of(self._refused[name], f"failed to look up topic {name}")
