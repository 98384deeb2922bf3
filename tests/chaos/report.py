"""The figures of a run."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf
from time import monotonic
from typing import Any

from tests.chaos.faults import Fault
from tests.chaos.options import Options
from tests.chaos.standstill import Stall
from tests.chaos.watch import Monitor

_SPAN_S = 3
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def figures(options: Options, monitor: Monitor, faults: Sequence[Fault], stalls: Sequence[Stall], begun: float) -> dict[str, Any]:
    """Return the measurements so far. Recovery from a fault is when all input until shortly after it has its committed output."""
    _note_stalls(options, stalls, [fault for fault in faults if not fault.skipped])
    told: dict[str, Any] = {
        name: getattr(options, name) for name in ("guarantee", "mode", "seed", "members", "partitions", "keys", "rate")
    }  # fmt: skip
    told["longest_stall"] = _longest((stall for stall in stalls if stall.partition is not None), begun)
    told["longest_total_stall"] = _longest((stall for stall in stalls if stall.partition is None), begun)
    told["by_kind"] = _by_kind(faults)
    told["faults"] = [fault.told() for fault in faults]
    told["total_s"] = round(monotonic() - begun, 2)
    if monitor.first is not None:
        told["latency_ms"] = _quantiles(monitor.latencies)
        told["records_per_s"] = round((sum(monitor.progress) - monitor.base) / max(0.001, monitor.last - monitor.begun))
        told["best_3s_records_per_s"] = round(_best(monitor))
    return told


def _note_stalls(options: Options, stalls: Sequence[Stall], faults: Sequence[Fault]) -> None:
    """Note with each fault how long anything stood still after it; in a storm that is the work of those that follow, too."""
    for index, fault in enumerate(faults):
        if options.mode == "isolated" and index + 1 < len(faults):
            until = faults[index + 1].time - 0.5
        else:
            until = fault.time + (inf if fault.recovery_s is None else fault.recovery_s)
        hit = [stall for stall in stalls if stall.end > fault.time and stall.begin < until]
        fault.stall_s = max((stall.end - max(stall.begin, fault.time) for stall in hit if stall.partition is not None), default=0)
        fault.total_stall_s = max((stall.end - max(stall.begin, fault.time) for stall in hit if stall.partition is None), default=0)


def _longest(stalls: Iterable[Stall], begun: float) -> dict[str, Any]:
    stall = max(stalls, key=lambda stall: stall.seconds, default=None)
    if stall is None:
        return {"s": 0.0}
    return {"s": round(stall.seconds, 2), "partition": "all" if stall.partition is None else stall.partition, "at_s": round(stall.begin - begun, 2)}


def _by_kind(faults: Sequence[Fault]) -> dict[str, Any]:
    found: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        if not fault.skipped:
            found[fault.kind].append(fault)
    return {
        kind: {
            "n": len(each),
            "recovery_s": _middle([fault.recovery_s for fault in each if fault.recovery_s is not None]),
            "stall_s": _middle([fault.stall_s for fault in each]),
            "total_stall_s": _middle([fault.total_stall_s for fault in each]),
        }
        for kind, each in sorted(found.items())
    }


def _middle(values: Sequence[float]) -> dict[str, float] | None:
    return {"median": round(statistics.median(values), 2), "max": round(max(values), 2)} if values else None


def _quantiles(latencies: Sequence[float]) -> dict[str, int] | None:
    ordered = sorted(latencies)
    return {name: round(1000 * ordered[min(len(ordered) - 1, int(len(ordered) * share))]) for name, share in _QUANTILES.items()} if ordered else None


def _best(monitor: Monitor) -> float:
    """Return the rate of the fastest seconds: when the app catches up."""
    return max((sum(monitor.per_second[second + more] for more in range(_SPAN_S)) / _SPAN_S for second in list(monitor.per_second)), default=0)
