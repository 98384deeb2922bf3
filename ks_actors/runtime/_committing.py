"""Where a commit is."""

from __future__ import annotations

from enum import Enum

from ks_actors.runtime._lifecycle import Transitions


class Phase(Enum):
    """Where a commit is.

    IDLE ──COMMIT──▶ PAUSING ──all PAUSED──▶ FREEZING ──tokens──▶ ENDING ──acknowledged──▶ IDLE
                        │                       │                    │
                        └──────── failed ───────┴────── failed ──────┴──▶ IDLE (rolled back)

    Nothing to commit leads from FREEZING to IDLE as well.
    """

    IDLE = "idle"
    PAUSING = "pausing"
    FREEZING = "freezing"
    ENDING = "ending"


COMMITTING = Transitions(
    {
        Phase.IDLE: {Phase.PAUSING},
        Phase.PAUSING: {Phase.FREEZING, Phase.IDLE},
        Phase.FREEZING: {Phase.ENDING, Phase.IDLE},
        Phase.ENDING: {Phase.IDLE},
    }
)
