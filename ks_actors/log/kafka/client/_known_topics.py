"""The topics that a client has looked up, as the brokers describe them."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from ks_actors._errors import LogError, UnknownTopicOrPartition
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.wire import (
    INVALID_TOPIC_EXCEPTION,
    RETRIABLE,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_of,
    topics_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ks_actors.records import TopicPartition


_NONE: Final[Mapping[int, int]] = MappingProxyType({})
# A topic with such a name does not exist.
_MISSING: Final = frozenset({UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION})


class TopicMetadata(NamedTuple):
    """The leaders of a topic's partitions by number; -1 for a partition without a leader.

    `internal` marks Kafka's own topics. `id` is empty if the broker has no topic ids. `epochs` are
    the epochs of the leaders: each leader has a higher epoch than the previous leader.
    """

    name: str
    leaders: Mapping[int, int]
    internal: bool = False
    id: str = ""
    epochs: Mapping[int, int] = _NONE

    def unless_older(self, known: TopicMetadata) -> TopicMetadata:
        """Return these metadata, but with the leader from `known` where its epoch is higher.

        A topic that was created again has another id, and its epochs start again.
        """
        past = {
            number: epoch
            for number, epoch in known.epochs.items()
            if epoch > self.epochs.get(number, -1)
        }
        if not past or self.id != known.id:
            return self
        leaders = {number: known.leaders[number] for number in past}
        return self._replace(leaders={**self.leaders, **leaders}, epochs={**self.epochs, **past})


def topics_in(response: Any) -> dict[str, TopicMetadata]:
    """Return the topics that exist according to a broker's metadata."""
    return {
        name: TopicMetadata(name, leaders, internal, identity, epochs)
        for code, name, identity, internal, leaders, epochs in topics_of(response)
        if code == 0
    }


@final
class KnownTopics:
    """Topics with their leaders, or the reasons for missing leaders, as of their last metadata.

    `found` are the topics that exist, and `tracked` the topics whose leaders each refresh looks up.
    An answer that is older than the known leaders changes nothing. But if all answers of `trust_s`
    seconds were older, the next answer counts: the cluster has been restored from a former state.
    `watchers` are called when a tracked topic has other leaders than before. A topic that answers
    lack may be so new that brokers lag behind, for `missing_s` seconds.
    """

    __slots__ = (
        "_answered",
        "_lacking",
        "_missing_s",
        "_refused",
        "_trust_s",
        "_until",
        "found",
        "tracked",
        "watchers",
    )

    def __init__(self, trust_s: float, missing_s: float) -> None:
        self.found: dict[str, TopicMetadata] = {}
        self.tracked: set[str] = set()
        self.watchers: set[Callable[[], object]] = set()
        self._trust_s: float = trust_s
        self._missing_s: float = missing_s
        # The loop time until which older answers change nothing.
        self._until: dict[str, float] = {}
        self._refused: dict[str, int] = {}
        # Topics that a broker has reported to exist or to be missing.
        self._answered: set[str] = set()
        # The number of a tracked topic's partitions by the last answers that agree, and the time of
        # the first and of the last of them.
        self._lacking: dict[str, tuple[int, float, float]] = {}

    def begin_like(self, other: KnownTopics) -> None:
        """Copy the leaders that another client of the same cluster knows."""
        self.found = dict(other.found)
        self._until = dict(other._until)
        self._answered = set(other._answered)

    def note(self, response: Any) -> Mapping[str, TopicMetadata]:
        """Store a broker's metadata; return the existing topics among them."""
        existing = topics_in(response)
        moved = False
        for code, name, *_ in topics_of(response):
            self._answered.add(name)
            self._refused.pop(name, None)
            # If the answer has an error for a topic, its old leaders must not be used.
            known = self.found.pop(name, None)
            if name in existing:
                existing[name] = self._newest(known, existing[name])
                self.found[name] = existing[name]
                before = None if known is None else known.leaders
                moved |= name in self.tracked and before != existing[name].leaders
            elif code not in _MISSING:
                self._refused[name] = code
            if name in self._refused:
                self._lacking.pop(name, None)
            elif name in self.tracked:
                self._note_count(name, existing)
        if moved:
            for tell in tuple(self.watchers):
                tell()
        return existing

    def _note_count(self, name: str, existing: Mapping[str, TopicMetadata]) -> None:
        now = asyncio.get_running_loop().time()
        count = len(existing[name].leaders) if name in existing else 0
        known, first, _ = self._lacking.get(name, (count, now, now))
        if known != count:
            first = now
        self._lacking[name] = (count, first, now)

    def fall_silent(self) -> None:
        """Note that no broker has answered: the next answers tell nothing of the time before."""
        self._lacking.clear()

    def _newest(self, known: TopicMetadata | None, told: TopicMetadata) -> TopicMetadata:
        now = asyncio.get_running_loop().time()
        newest = told
        if known is not None and now < self._until.get(told.name, 0.0):
            newest = told.unless_older(known)
        if newest is told:
            self._until[told.name] = now + self._trust_s
        return newest

    def leader(self, partition: TopicPartition) -> int | None:
        """Return the known leader; None if there is none or it was never looked up."""
        topic = self.found.get(partition.topic)
        node = -1 if topic is None else topic.leaders.get(partition.partition, -1)
        if node < 0:
            return None
        # Track the topic from here on: refreshes must notice when its leader moves.
        self.tracked.add(partition.topic)
        return node

    def why_no_leader(self, partition: TopicPartition, *, since: float | None = None) -> LogError:
        """Return the error for a partition without a leader at the last lookup.

        Unavailable means that this may change. To a caller that waits `since` a loop time, an
        absence may change, too, until answers have told it for `missing_s` seconds of the wait.
        """
        code = self._refused.get(partition.topic)
        if code is not None:
            return self._refusal(partition.topic, code)
        if partition.topic not in self._answered:
            # The cluster may have been unreachable since before the first lookup.
            return Unavailable(f"no broker has answered yet whether {partition} exists")
        topic = self.found.get(partition.topic)
        if topic is None or partition.partition not in topic.leaders:
            _, first, last = self._lacking.get(partition.topic, (0, 0.0, 0.0))
            if since is not None and last - max(first, since) < self._missing_s:
                return Unavailable(f"the brokers did not know {partition} when they answered last")
            return UnknownTopicOrPartition(
                f"{partition} does not exist; create it, or wait until it has been created"
            )
        return Unavailable(f"{partition} has no leader at this time")

    def raise_refused(self, names: Iterable[str]) -> None:
        """Raise the error of the first topic that the brokers refuse to describe, if any.

        Unavailable means that this may change.
        """
        for name in names:
            if name in self._refused:
                raise self._refusal(name, self._refused[name])

    @staticmethod
    def _refusal(name: str, code: int) -> LogError:
        error = error_of(code, f"failed to look up topic {name}")
        # The broker's fault may have passed by the next request, as for Kafka's consumer.
        temporary = code in RETRIABLE or code == UNKNOWN_SERVER_ERROR
        return Unavailable(str(error)) if temporary else error
