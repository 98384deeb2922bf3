"""The ends of changelogs, which only grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors._errors import ProductionFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.records import TopicPartition
    from ks_actors.runtime.messages import Written


@final
class ChangelogEnds:
    """The check that new changelog records follow the records that the stores already have.

    Otherwise the changelog has lost records: the topic was deleted and created again, or truncated,
    or the brokers have lost its log. Nothing else shows the loss: the log accepts further records,
    and a later restore would miss all earlier rows.
    """

    def __init__(self) -> None:
        # The losses that were raised, with the stores' offset at that time.
        self._told: dict[TopicPartition, int] = {}

    def check(
        self, known: Mapping[TopicPartition, int], written: Mapping[TopicPartition, Written]
    ) -> None:
        """Compare the changelogs after a flush with the stores' offsets from before it.

        `known` has the stores' next offsets, `written` the new ends and the numbers of records.
        Raises ProductionFailed for the first changelog with a new record below its store's offset.
        The next attempt does not raise the same loss again: a handler may have decided to go on.
        """
        lost: list[TopicPartition] = []
        for changelog, at in known.items():
            if (one := written.get(changelog)) is None or one.end - one.records >= at:
                self._told.pop(changelog, None)
            elif self._told.pop(changelog, None) != at:
                self._told[changelog] = at
                lost.append(changelog)
        if lost:
            changelog = lost[0]
            at, (end, records, _) = known[changelog], written[changelog]
            raise ProductionFailed(
                f"the end of the changelog {changelog} was {at}, and is {end} after {records} "
                "further records: it was deleted and created again, or truncated, or the brokers "
                "have lost its log. It lacks rows of the state, so nothing is committed. Stop all "
                "members; then restore the topic from a copy, or reset the application, so that "
                "it processes all input again",
                topic=changelog.topic,
                partition=changelog.partition,
            )
