"""The wait for records that are on their way to a task through the app's own topics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from ks_actors._errors import LogError
from ks_actors.lifecycle import component_log
from ks_actors.log import IsolationLevel, TellsGroups
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ks_actors.log import Log
    from ks_actors.runtime.watch._coverage import Coverage
    from ks_actors.task import AppTopics

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 1.0
_log = component_log(__name__)


@final
class Upstream:
    """Wait until the app has committed all records that its upstream tasks had at a moment.

    Tasks of other instances count too, since the committed offsets of the group include theirs. A
    commit includes calls and cached updates, and the output of the commit is in the topics that the
    next tasks read. If the log cannot describe groups, no records count as on their way.
    """

    def __init__(self, log: Log, topics: AppTopics, coverage: Coverage) -> None:
        self._log = log
        self._topics = topics
        self._coverage = coverage

    def levels(self, topics: Collection[str]) -> list[frozenset[str]]:
        """Return the topics of the tasks upstream of these tasks, the farthest upstream first.

        Tasks that read a set write to the next set. A subtopology within a circle counts once.
        """
        app_topics, found = self._topics, list[frozenset[str]]()
        parts = {part.id: part for part in app_topics.topology.subtopologies()}
        level = frozenset(topics)
        while level:
            writers = [
                part
                for part in parts.values()
                if any(app_topics.topic(sink) in level for sink in part.sink_topics)
            ]
            nodes = {node for part in writers for node in part.nodes}
            level = frozenset(
                topic
                for topic in app_topics.source_topics
                if app_topics.source_of(topic).name in nodes
            )
            for part in writers:
                del parts[part.id]
            found.insert(0, level)
        return found[1:]

    async def passed(self, levels: Iterable[frozenset[str]]) -> None:
        """Wait until records have passed all levels, one after the other.

        Do not wait for records that come later. As long as the log does not answer, no records
        count as passed; a warning gives the reason once.
        """
        if not isinstance(self._log, TellsGroups):
            return
        for topics in levels:
            wanted = [
                TopicPartition(topic, number)
                for topic in sorted(topics)
                for number in range(self._topics.partitions(topic) or 0)
            ]
            ends: Mapping[TopicPartition, int] | None = None
            pause = _FIRST_PAUSE_S
            told = False
            while wanted:
                try:
                    if ends is None:
                        # Records of open transactions are on their way, too.
                        ends = await self._log.end_offsets(wanted, IsolationLevel.READ_UNCOMMITTED)
                    lags = await self._coverage.lags(self._log, wanted, ends, each=True)
                    wanted = [one for one in wanted if lags[one]]
                except LogError as error:
                    if not told:
                        told = True
                        _log.warning(
                            "windows with idle_after_ms stay open, because the offsets of the "
                            "topics upstream of them, %s, could not be looked up: %s; retrying",
                            ", ".join(sorted(topics)),
                            error,
                        )
                if wanted:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
