"""Whether the log answers, in words and figures."""

from __future__ import annotations

from ks_actors.log import TellsOutages
from ks_actors.runtime.watch._waits import Wait, WaitReason


def longest_outage_ms(log: object) -> int:
    """Return for how long, in ms, the broker has not answered that has not for longest; 0 when all that are asked do."""
    return int(max((outage.seconds for outage in log.outages()), default=0.0) * 1000) if isinstance(log, TellsOutages) else 0


def outages_text(log: object) -> str:
    """Return which brokers do not answer, since when and why; nothing when all that are asked do."""
    outages = log.outages() if isinstance(log, TellsOutages) else ()
    return "; ".join(f"the log has not answered for {outage.seconds:.0f} s: {outage.reason}" for outage in outages)


def wait_of_instance(log: object, wall_time_ms: int) -> Wait:
    """Return what an instance waits for that has no tasks yet."""
    away, waited = outages_text(log), longest_outage_ms(log)
    return Wait(
        task=None,
        partition=None,
        reason=WaitReason.LOG if away else WaitReason.REBALANCING,
        text=away or "there are no tasks yet: the app starts, or waits for its group to assign some",
        since_ms=wall_time_ms - waited,
        waited_ms=waited,
        buffered=0,
        lag=None,
    )
