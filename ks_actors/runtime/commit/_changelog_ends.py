"""The ends of changelogs, which only grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors._errors import ProductionFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors.records import TopicPartition


@final
class ChangelogEnds:
    """The ends of the changelogs `topics`, as the flushes of this instance have reported them.

    An end that does not grow shows that the topic was deleted and made anew, or cut off. Nothing
    else shows it: the log takes further records, and a later restore would miss all rows before.
    """

    def __init__(self, topics: Iterable[str]) -> None:
        self._topics: frozenset[str] = frozenset(topics)
        self._known: dict[TopicPartition, int] = {}

    def note(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note the ends after a flush. Raises ProductionFailed for the first that has not grown."""
        back: list[tuple[TopicPartition, int, int]] = []
        for partition, end in ends.items():
            if partition.topic in self._topics:
                known = self._known.get(partition, 0)
                # Note it in any case: a handler may decide to go on.
                self._known[partition] = end
                if end <= known:  # a flush names only the partitions that it has written to
                    back.append((partition, known, end))
        if back:
            partition, known, end = back[0]
            raise ProductionFailed(
                f"the end of the changelog {partition} was {known}, and is {end} after further "
                "writes: it was deleted and made anew, or cut off, while the app wrote to it, and "
                "lacks rows of the state. Nothing is committed. Stop all members, and either put "
                "the topic back from a copy, or reset the application, so that it processes all "
                "input again",
                topic=partition.topic,
                partition=partition.partition,
            )
