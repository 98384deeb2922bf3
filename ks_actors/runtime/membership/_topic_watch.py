"""The actor that watches topics for growth."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

from actors import Actor, Mailbox, Message, Spec, Started
from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from actors import Signal
    from ks_actors.log import Log, TopicDescription
    from ks_actors.task import AppTopics, TopicSizes

TOPIC_WATCH_MAILBOX = Mailbox(capacity=1_000, overflow="fail_system")
_log = component_log(__name__)


class LookUp(Message, frozen=True):
    """Look up the topics in use (internal)."""


class TopicsFound(Message, frozen=True):
    """The existing topics among those in use (internal)."""

    topics: Mapping[str, TopicDescription]


class TopicsNotFound(Message, frozen=True):
    """The lookup of topics failed (internal)."""

    error: Exception


TopicWatchMessage: TypeAlias = LookUp | TopicsFound | TopicsNotFound


class TopicWatch(Actor[TopicWatchMessage]):
    """Look up the partition counts of the topics in use every `max_age_ms`.

    Records go to added partitions from then on. A failed request is logged at level DEBUG and
    repeated the next time; the known sizes stay in use.
    """

    def __init__(
        self,
        log: Log,
        topics: Callable[[], Collection[str]],
        sizes: TopicSizes,
        max_age_ms: int,
        global_topics: Collection[str],
    ) -> None:
        self._log = log
        self._topics = topics
        self._sizes = sizes
        self._global = global_topics
        self._seconds: float = max_age_ms / 1000
        self._asking: bool = False

    def signal(self, signal: Signal) -> None:
        """Start the timer."""
        if isinstance(signal, Started):
            self.ctx.timers.every("look-up", self._seconds, LookUp())

    def receive(self, message: TopicWatchMessage) -> None:
        """Look up the sizes of topics, and note the answers."""
        match message:
            case LookUp():
                topics = sorted(self._topics())
                if topics and not self._asking:
                    self._asking = True
                    self.ctx.pipe(
                        self._log.describe_topics(topics, configs=False),
                        TopicsFound,
                        TopicsNotFound,
                    )
            case TopicsFound():
                self._asking = False
                self._know({name: topic.partitions for name, topic in message.topics.items()})
            case TopicsNotFound():
                self._asking = False
                _log.debug(
                    "could not look up the partition counts of topics; the next poll retries: %s",
                    message.error,
                )
            case _:
                assert_never(message)

    def _know(self, counts: Mapping[str, int]) -> None:
        for name in self._global:
            before = self._sizes(name)
            if before is not None and counts.get(name, 0) > before:
                _log.warning(
                    "topic %s has %d partitions now, but the global table of this instance reads "
                    "only the first %d: restart the instance to read all of them",
                    name, counts[name], before,
                )  # fmt: skip
        self._sizes.know(counts)


def topic_watch(log: Log, topics: AppTopics) -> Spec[TopicWatchMessage]:
    """Return the spec of an app's topic watch."""
    age, tables = topics.config.metadata_max_age_ms, topics.topology.global_topics
    return Spec(
        lambda: TopicWatch(log, topics.topics_in_use, topics.partitions, age, tables),
        mailbox=TOPIC_WATCH_MAILBOX,
    )
