"""Faults of a run: all that is random about them is drawn before it, from its seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from tests.judges.drivers.options import Options


class Fault(NamedTuple):
    """A fault, and its end `seconds` later: the restart of a killed member, or broker; or the end of a freeze."""

    at: float
    kind: str
    member: int
    seconds: float


def draw(options: Options) -> Sequence[Fault]:
    """Return the faults in their order: the same ones for the same options."""
    chance = random.Random(options.seed)
    kinds = ["kill"] * options.kills + ["freeze"] * options.freezes + ["broker"] * options.broker_restarts
    chance.shuffle(kinds)
    # The app has some time to begin, and the last fault ends while records still come.
    first, last = min(8.0, 0.3 * options.seconds), 0.9 * options.seconds
    each = (last - first) / max(len(kinds), 1)
    return [
        Fault(
            first + each * (number + chance.random()),
            kind,
            chance.randrange(options.members),
            # Some freezes are shorter than the session, most are longer: then others have taken over, and the member is a zombie.
            options.session_timeout + chance.uniform(-1, 2) if kind == "freeze" else chance.choice([0.2, 2.0]),
        )
        for number, kind in enumerate(kinds)
    ]
