"""Faults of members and of the broker, and their times.

kill_keep, kill_wipe: kill -9, and a restart later, with or without the state (`kill` splits by `wipe`). zombie: SIGSTOP for longer than the session
timeout. term: SIGTERM, a clean end, a restart later. scale: one member more, or one less. broker: kill -9 of the broker. broker_pause: SIGSTOP of the
broker, as if the network were cut.

With supervised processes, child_kill: kill -9 of one process, which its supervisor is to start again. child_freeze: SIGSTOP of one process for longer
than the session timeout. hup: SIGHUP to the supervisor, which is to start its processes again one by one. The other kinds hit the supervisor alone.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.options import Options

KINDS = ("kill_keep", "kill_wipe", "zombie", "term", "scale", "broker", "broker_pause", "child_kill", "child_freeze", "hup")


@dataclass
class Plan:
    """A fault to come: all that is random about it was drawn before. In a storm `at` is its time, in seconds after the warm-up."""

    kind: str
    pick: float
    coin: float
    delay: float
    pause: float
    down: float
    at: float = 0


@dataclass
class Fault:
    """A fault that has been."""

    kind: str
    time: float
    at_s: float
    facts: dict[str, Any] = field(default_factory=dict)
    skipped: bool = False
    # What had been fed shortly after it; when all of that has its output, it has been recovered from.
    target: list[int] | None = None
    recovery_s: float | None = None
    stall_s: float = 0
    total_stall_s: float = 0

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"{name}={value}" for name, value in self.facts.items())])

    def told(self) -> dict[str, Any]:
        """Return the entry of the report."""
        found: dict[str, Any] = {"kind": self.kind, "at_s": round(self.at_s, 2), **self.facts}
        if self.skipped:
            return found | {"skipped": True}
        if self.recovery_s is not None:
            found["recovery_s"] = round(self.recovery_s, 2)
        return found | {"stall_s": round(self.stall_s, 2), "total_stall_s": round(self.total_stall_s, 2)}


def weights(options: Options) -> dict[str, float]:
    """Return how often each kind is to come. Raises ValueError for one that there is not."""
    found: dict[str, float] = {}
    for word in filter(None, options.faults.split(",")):
        kind, _, text = word.partition("=")
        weight = float(text or 1)
        if kind == "kill":
            found |= {"kill_keep": weight * (1 - options.wipe), "kill_wipe": weight * options.wipe}
        elif kind in KINDS:
            found[kind] = weight
        else:
            raise ValueError(f"there is no fault {kind!r}: use kill, {', '.join(KINDS)}")
    return {kind: weight for kind, weight in found.items() if weight > 0}


def draw(options: Options) -> list[Plan]:
    """Return the faults of a run, in order; the same ones for the same seed."""
    chance = random.Random(options.seed * 104729 + 7)
    wanted = weights(options)
    if not wanted:
        return []
    if options.mode == "isolated":
        kinds = _in_turn(wanted, options.kills)
        chance.shuffle(kinds)
    else:
        kinds = chance.choices(list(wanted), list(wanted.values()), k=options.kills)
    plans: list[Plan] = []
    for kind in kinds:
        pick, delay = chance.random(), round(chance.uniform(0, options.restart_max), 2)
        pause = round(options.session_timeout + chance.uniform(1, options.zombie_max), 2)
        coin, down = chance.random(), round(chance.uniform(0, options.broker_down_max), 2)
        plans.append(Plan(kind, pick, coin, delay, pause, down))
    if options.mode == "storm":
        span = options.records / options.rate
        for plan, at in zip(plans, sorted(chance.uniform(0.02, 0.98) * span for _ in plans), strict=True):
            plan.at = at
    return plans


def _in_turn(wanted: Mapping[str, float], count: int) -> list[str]:
    """Return kinds in turn, by weight, so that few faults are of all kinds."""
    scores = dict.fromkeys(wanted, 0.0)
    found: list[str] = []
    for _ in range(count):
        for kind, weight in wanted.items():
            scores[kind] += weight
        best = max(scores, key=lambda kind: scores[kind])
        scores[best] -= sum(wanted.values())
        found.append(best)
    return found
