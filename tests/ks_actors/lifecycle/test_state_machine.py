"""Life cycles."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from ks_actors._errors import IllegalTransition
from ks_actors.lifecycle._state_machine import Transitions
from ks_actors.runtime.shared._states import INSTANCE_TRANSITIONS, WORKER_TRANSITIONS, InstanceState, WorkerState
from ks_actors.task._states import TASK_TRANSITIONS, TaskState


class Door(Enum):
    OPEN = 1
    CLOSED = 2
    GONE = 3


class Other(Enum):
    OPEN = 1


DOOR = Transitions({Door.OPEN: {Door.CLOSED}, Door.CLOSED: {Door.OPEN, Door.GONE}, Door.GONE: ()})

# As in the sources of Kafka Streams 4.3.1: the numbers after each state are those of the states that it may go to.
KAFKA: dict[type[Enum], list[tuple[int, ...]]] = {
    InstanceState: [(1, 3), (2, 3, 5), (1, 2, 3, 5), (4,), (), (6,), ()],
    WorkerState: [(1, 5), (2, 3, 5), (2, 3, 5), (2, 3, 4, 5), (2, 3, 4, 5), (6,), ()],
    TaskState: [(1, 3), (2, 3), (3,), (1, 4), (0,)],
}
TABLES: list[Transitions[Any]] = [INSTANCE_TRANSITIONS, WORKER_TRANSITIONS, TASK_TRANSITIONS]


def test_a_life_goes_along_the_arrows() -> None:
    """`to` returns where it came from, and tells the listener after the change."""
    seen: list[tuple[Door, Door, Door]] = []
    door = DOOR.start(Door.OPEN, on_change=lambda old, new: seen.append((old, new, door.state)))
    assert door.to(Door.CLOSED) is Door.OPEN
    assert door.state is Door.CLOSED
    assert door.is_(Door.GONE, Door.CLOSED)
    assert not door.is_(Door.OPEN)
    assert (door.can(Door.GONE), door.can(Door.CLOSED)) == (True, False)
    door.to(Door.GONE)
    assert seen == [(Door.OPEN, Door.CLOSED, Door.CLOSED), (Door.CLOSED, Door.GONE, Door.GONE)]
    assert repr(door) == "<Door GONE>"


def test_a_disallowed_transition_changes_nothing() -> None:
    """The error names both states and the ways there are."""
    changes: list[Door] = []
    assert DOOR.start(Door.OPEN).to(Door.CLOSED) is Door.OPEN
    door = DOOR.start(Door.CLOSED, name="front door", on_change=lambda _, new: changes.append(new))
    with pytest.raises(IllegalTransition, match="front door cannot go from CLOSED to CLOSED; only to GONE, OPEN"):
        door.to(Door.CLOSED)
    assert (door.state, changes) == (Door.CLOSED, [])
    door.to(Door.GONE)
    with pytest.raises(IllegalTransition, match="front door cannot go from GONE to OPEN; it has ended"):
        door.to(Door.OPEN)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "at least one state"),
        ({Door.OPEN: {Door.GONE}}, "of Door lacks the states CLOSED, GONE"),
        ({Door.OPEN: {Other.OPEN}, Door.CLOSED: (), Door.GONE: ()}, "of Door names states that do not exist: Other.OPEN"),
    ],
)
def test_a_table_is_whole(table: dict[Any, Any], message: str) -> None:
    """Checked when it is made."""
    with pytest.raises(ValueError, match=message):
        Transitions(table)


@pytest.mark.parametrize(("states", "table"), list(zip(KAFKA, TABLES, strict=True)))
def test_the_arrows_are_those_of_kafka_streams(states: type[Enum], table: Transitions[Any]) -> None:
    """All of them and no other."""
    members = list(states)
    assert [tuple(sorted(members.index(target) for target in table.legal(state))) for state in members] == KAFKA[states]
