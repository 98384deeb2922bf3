"""The topics that a client has asked about, as the brokers tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from ks_actors._errors import LogError, UnknownTopicOrPartition
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.wire import INVALID_TOPIC_EXCEPTION, RETRIABLE, error_of, topics_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors.log.kafka.client._options import KafkaOptions
    from ks_actors.records import TopicPartition

# Seconds after which a lookup of a missing partition is not the retry of an earlier one.
_ANOTHER_S: Final = 60.0


class TopicMetadata(NamedTuple):
    """The leaders of a topic's partitions by number; -1 for a partition without a leader.

    `internal` marks Kafka's own topics. `id` is empty for a broker that has no ids.
    """

    name: str
    leaders: Mapping[int, int]
    internal: bool = False
    id: str = ""


class _Missing(NamedTuple):
    """The times (s) of the first and of the last lookup of a missing partition."""

    first: float
    last: float


@final
class KnownTopics:
    """Topics with their leaders, and why others have none, as of the last metadata of each.

    `found` are the topics that exist, and `tracked` those whose leaders each refresh looks up. The
    metadata of one broker may lag behind those of another, so a partition that one does not know
    may be new.
    """

    __slots__ = ("_answered", "_missing", "_refused", "_wait_s", "found", "tracked")

    def __init__(self, options: KafkaOptions) -> None:
        self._wait_s: float = options.missing_topic_wait_s
        self.found: dict[str, TopicMetadata] = {}
        self.tracked: set[str] = set()
        self._refused: dict[str, int] = {}
        # Topics that a broker has reported to exist or to be missing.
        self._answered: set[str] = set()
        self._missing: dict[TopicPartition, _Missing] = {}

    def begin_like(self, other: KnownTopics) -> None:
        """Copy the leaders that another client of the same cluster knows."""
        self.found = dict(other.found)
        self._answered = set(other._answered)

    def note(self, response: Any) -> Mapping[str, TopicMetadata]:
        """Take over a broker's metadata; return the topics of them that exist."""
        existing: dict[str, TopicMetadata] = {}
        for code, name, identity, internal, leaders in topics_of(response):
            self._answered.add(name)
            self._refused.pop(name, None)
            # A topic without a good answer is unknown, so old leaders must not be used.
            self.found.pop(name, None)
            if code == 0:
                existing[name] = self.found[name] = TopicMetadata(name, leaders, internal, identity)
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

    def retried(self, error: LogError, partition: TopicPartition, now: float) -> LogError:
        """Return the error of a lookup at `now` (s), as Unavailable if it is to be repeated.

        A partition is missing when the brokers have not known it for `missing_topic_wait_ms`.
        """
        if not isinstance(error, UnknownTopicOrPartition):
            return error
        since = self._missing.get(partition, _Missing(now, now))
        if now - since.last > _ANOTHER_S:
            since = _Missing(now, now)
        if now - since.first >= self._wait_s:
            self._missing.pop(partition, None)
            return error
        self._missing[partition] = since._replace(last=now)
        return Unavailable(str(error), refresh=False, soon=True, reported=True)

    def led(self, partition: TopicPartition) -> None:
        """Note that a lookup has found a leader."""
        self._missing.pop(partition, None)

    def missing(self, names: Iterable[str], found: Mapping[str, TopicMetadata]) -> list[str]:
        """Return those that are not found, and not refused to this user."""
        return [name for name in names if name not in found and name not in self._refused]

    def raise_refused(self, names: Iterable[str]) -> None:
        """Raise the error of the first topic that the brokers refuse to tell about, if any."""
        for name in names:
            if name in self._refused:
                raise error_of(self._refused[name], f"failed to look up topic {name}")
