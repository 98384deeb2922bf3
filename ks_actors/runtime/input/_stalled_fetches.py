"""Fetches that stand still: begin them anew, and report the state of the fetcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from collections.abc import Collection

    from ks_actors.log import Fetcher
    from ks_actors.records import TopicPartition
    from ks_actors.runtime.messages import RefetchStalled

_log = component_log(__name__)


def refetch(
    fetcher: Fetcher,
    assigned: Collection[TopicPartition],
    held: Collection[TopicPartition],
    stalled: RefetchStalled,
) -> None:
    """Take a partition out of the fetcher, and put it back at its position.

    Does nothing when records have come since, or when the partition is no longer assigned or is
    `held`, not to be fetched now. A stall is a fault of the fetcher, whose state in the log leads
    to it.
    """
    partition = stalled.partition
    if partition not in assigned or partition in held:
        return
    if fetcher.position(partition) != stalled.position:
        return
    _log.error(
        "%s was not fetched from offset %d on, though the log has more and its broker answers: its "
        "fetch begins anew; please report this with the state of its fetch: %s",
        partition,
        stalled.position,
        fetcher.describe(partition),
    )
    others = {one: fetcher.position(one) for one in assigned if one != partition}
    fetcher.assign(others)
    fetcher.assign({**others, partition: stalled.position})
