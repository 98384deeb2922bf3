"""The actor that follows topics as patterns begin or cease to match them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

from actors import Actor, Mailbox, Message, Spec, Started
from ks_actors._errors import TopologyError
from ks_actors.lifecycle import component_log
from ks_actors.runtime import messages as m
from ks_actors.runtime.shared import prepare_topics, unlisted_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors import Ref, Signal
    from ks_actors.log import Log
    from ks_actors.task import AppTopics

PATTERN_WATCH_MAILBOX = Mailbox(capacity=1_000, overflow="fail_system")
_log = component_log(__name__)


class LookForTopics(Message, frozen=True):
    """Look up the existing topics."""


class AllTopics(Message, frozen=True):
    """The names of all existing topics (internal)."""

    names: frozenset[str]


class TopicsPrepared(Message, frozen=True):
    """All existing topics with their partition counts, including the internal ones (internal)."""

    counts: Mapping[str, int]


class TopicsNotPrepared(Message, frozen=True):
    """The lookup failed, or the topics do not fit (internal)."""

    error: Exception


PatternWatchMessage: TypeAlias = LookForTopics | AllTopics | TopicsPrepared | TopicsNotPrepared


class PatternWatch(Actor[PatternWatchMessage]):
    """Match the topology's patterns against the topics every `max_age_ms`.

    When the matches change, ask the group for a new assignment. The internal topics are created
    first. When the state of a subtopology does not fit the topics found, the app ends with
    TopologyError. Failed requests are logged at level WARNING and repeated the next time.
    """

    def __init__(
        self,
        log: Log,
        topics: AppTopics,
        max_age_ms: int,
        *,
        member: Ref[m.MemberMessage],
        instance: Ref[m.InstanceMessage],
    ) -> None:
        self._log = log
        self._topics = topics
        self._seconds: float = max_age_ms / 1000
        self._member = member
        self._instance = instance
        self._asking: bool = False

    def signal(self, signal: Signal) -> None:
        """Start the timer."""
        if isinstance(signal, Started):
            self.ctx.timers.every("look", self._seconds, LookForTopics())

    def receive(self, message: PatternWatchMessage) -> None:
        """Look up, compare and prepare topics, and tell the member."""
        match message:
            case LookForTopics():
                if not self._asking:
                    self._asking = True
                    self.ctx.pipe(self._look(), AllTopics, TopicsNotPrepared)
            case AllTopics():
                found = frozenset(self._topics.matching(message.names))
                if found == self._topics.matched:
                    self._asking = False
                    return
                self._tell(found)
                self.ctx.pipe(
                    # Before the group assigns: tasks would fail without their internal topics.
                    prepare_topics(self._log, self._topics),
                    TopicsPrepared,
                    TopicsNotPrepared,
                )
            case TopicsPrepared():
                self._asking = False
                self._topics.know_topics(message.counts)
                self._member.tell(m.ReenterGroup("metadata: topics that match a pattern"))
            case TopicsNotPrepared():
                self._asking = False
                if isinstance(message.error, TopologyError):
                    self._instance.tell(m.Fatal(message.error, rolled_back=False))
                else:
                    _log.warning(
                        "could not look up the topics that match patterns; the next poll retries: "
                        "%s",
                        message.error,
                    )
            case _:
                assert_never(message)

    async def _look(self) -> frozenset[str]:
        """Return the names of all topics.

        If the listing lacks topics that were matched before, ask for them by name: the metadata of
        the broker that has answered may lag behind.
        """
        listed = frozenset(await self._log.describe_topics(configs=False))
        return listed | (await unlisted_topics(self._log, self._topics.matched, listed)).keys()

    def _tell(self, found: frozenset[str]) -> None:
        before = self._topics.matched
        for word, topics in (
            ("is read from now on", found - before),
            ("no longer exists, so it is not read any more", before - found),
        ):
            for topic in sorted(topics):
                _log.info("topic %s matches a pattern and %s", topic, word)


def pattern_watch(
    log: Log, topics: AppTopics, *, member: Ref[m.MemberMessage], instance: Ref[m.InstanceMessage]
) -> Spec[PatternWatchMessage] | None:
    """Return the spec of the actor, or None when the topology reads no pattern."""
    if not any(subtopology.source_patterns for subtopology in topics.topology.subtopologies()):
        return None
    watch = PatternWatch(
        log, topics, topics.config.metadata_max_age_ms, member=member, instance=instance
    )
    return Spec(lambda: watch, mailbox=PATTERN_WATCH_MAILBOX)
