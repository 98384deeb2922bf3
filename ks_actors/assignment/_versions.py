"""Versions of a topology that run side by side, as in a rolling restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors._errors import TopologyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.assignment._info import MemberState, TopologyInfo


def admit(
    topologies: Mapping[str, TopologyInfo], states: Mapping[str, MemberState]
) -> dict[str, TopologyError]:
    """Return the members that cannot run beside the others, each with the error.

    Two versions can run side by side when a task means the same in both: each topic that both read
    belongs to subtopologies of the same number, and subtopologies of one number have a topic in
    common. All members group partitions into tasks in the same way. Earlier members of the group
    have precedence: the newcomer is refused.
    """
    refused: dict[str, TopologyError] = {}
    admitted: list[TopologyInfo] = []
    grouping: str | None = None
    for member in sorted(topologies, key=lambda member: (states[member].newcomer, member)):
        own, groups = topologies[member], states[member].grouping
        if grouping is None:
            grouping = groups
        if groups != grouping:
            refused[member] = TopologyError(
                f"this member has {_grouper(groups)}, and the other group members have "
                f"{_grouper(grouping)}: all members need the same one. Nothing was started. Give "
                "this member the grouper of the others; or stop all members before the first one "
                "with another grouper starts"
            )
            continue
        if own in admitted:
            continue
        conflict = next(
            (found for other in admitted if (found := _conflict(own, other)) is not None), None
        )
        if conflict is None:
            admitted.append(own)
            continue
        refused[member] = TopologyError(
            "this version of the topology cannot run beside the version of other group members: "
            f"{conflict}. Nothing was started. Keep the order of sources and operations, name "
            "operations, and add new ones after the others; or stop all members before the first "
            "one with this version starts"
        )
    return refused


def _grouper(name: str) -> str:
    return f"the partition grouper {name!r}" if name else "no partition grouper"


def _conflict(own: TopologyInfo, other: TopologyInfo) -> str | None:
    """Return why a task differs in meaning between the topologies; None if it does not."""
    there = {topic: number for number, topics in other.topics.items() for topic in topics}
    for number, topics in own.topics.items():
        for topic in topics:
            if there.get(topic, number) != number:
                return (
                    f"topic {topic} belongs to subtopology {number} here, and to subtopology "
                    f"{there[topic]} there"
                )
    for number, topics in own.topics.items():
        others = other.topics.get(number, ())
        if topics and others and not set(topics).intersection(others):
            return (
                f"subtopology {number} reads {', '.join(topics)} here, and "
                f"{', '.join(others)} there"
            )
    return None
