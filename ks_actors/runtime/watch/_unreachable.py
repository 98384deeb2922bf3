"""Texts and figures about brokers that do not answer."""

from __future__ import annotations

from ks_actors.log import TellsOutages
from ks_actors.runtime.watch._waits import Wait, WaitReason


def longest_outage_ms(log: object) -> int:
    """Return the longest time, in ms, that a broker has not answered; 0 when all do."""
    return (
        int(max((outage.seconds for outage in log.outages()), default=0.0) * 1000)
        if isinstance(log, TellsOutages)
        else 0
    )


def outages_text(log: object) -> str:
    """Return the text about brokers that do not answer, or refuse fetches: since when, and why.

    Empty when all brokers in use serve.
    """
    return "; ".join(map(str, log.outages() if isinstance(log, TellsOutages) else ()))


def wait_of_instance(log: object, wall_time_ms: int) -> Wait:
    """Return the wait of an instance that has no tasks yet."""
    away, waited = outages_text(log), longest_outage_ms(log)
    return Wait(
        task=None,
        partition=None,
        reason=WaitReason.LOG if away else WaitReason.REBALANCING,
        text=away
        or "there are no tasks yet: the app is starting, or waits for its group to assign some",
        since_ms=wall_time_ms - waited,
        waited_ms=waited,
        buffered=0,
        lag=None,
    )
