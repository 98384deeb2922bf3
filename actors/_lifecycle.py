"""The life of an actor."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where an actor is in its life. A StrEnum, since Enum's own hash is in Python, and the table below is looked up at each step of each life.

    STARTING ──Started handled──▶ RUNNING ──stop, or failure decided as Stop──▶ STOPPING ──children ended──▶ STOPPED
       │  ▲                          │                                            ▲  │
       │  └──────backoff over── RESTARTING ◀──failure decided as Restart──┘       │  │
       │                             └─────────────stop, or budget spent──────────┘  │
       └──────────────────────── first start failed ─────────────────────────────────▶
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
    """Return `there`; raise RuntimeError naming both states when no arrow leads from `here` to it."""
    if there not in LEGAL[here]:
        raise RuntimeError(f"actor {path} cannot go from {here.name} to {there.name}; this is a bug in the framework, please report it")
    return there
