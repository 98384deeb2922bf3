"""The states of an actor."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of an actor.

    The class is a StrEnum, because Enum's own hash is in Python and every transition looks up a
    table.

    STARTING ──Started──▶ RUNNING ──stop, or decided Stop──▶ STOPPING ──children ended──▶ STOPPED
       │  ▲                  │                                  ▲
       │  │           decided Restart                           │
       │  │                  ▼                                  │
       │  └─backoff over─ RESTARTING ──stop, or budget spent────┤
       └────────────────── first start failed ──────────────────┘
    """

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"


LEGAL: dict[State, frozenset[State]] = {
    State.STARTING: frozenset({State.RUNNING, State.RESTARTING, State.STOPPING}),
    State.RUNNING: frozenset({State.RESTARTING, State.STOPPING}),
    State.RESTARTING: frozenset({State.STARTING, State.STOPPING}),
    State.STOPPING: frozenset({State.STOPPED}),
    State.STOPPED: frozenset(),
}


def move(here: State, there: State, path: str) -> State:
    """Return `there`; raise RuntimeError naming both states if the table does not allow it."""
    if there not in LEGAL[here]:
        raise RuntimeError(
            f"actor {path} cannot go from {here.name} to {there.name}; this is a bug in the "
            "framework, please report it"
        )
    return there
