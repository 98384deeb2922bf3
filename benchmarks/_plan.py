"""The cases of each contender, and their rounds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from benchmarks import _bare, _idle, _ours, _pykka, _xoscar
from benchmarks._bare import BOX, QUEUE

Run: TypeAlias = Callable[[int], float | Coroutine[Any, Any, float]]

CONTENDERS = {
    "floor": "plain loop",
    "actors": "actors",
    "queue": "asyncio.Queue",
    "pykka": "Pykka",
    "tell": "xoscar tell",
    "call": "xoscar call",
}


@dataclass(frozen=True)
class Case:
    """One contender's part in a metric.

    `run(size)` does `size` operations and returns the time per operation.
    """

    contender: str
    run: Run
    size: int


@dataclass(frozen=True)
class Metric:
    """Cases that run right after each other, for comparison.

    One of `every` rounds includes it. Cases that do not depend on the event loop run on the first
    one only.
    """

    key: str
    title: str
    cases: tuple[Case, ...]
    unit: str = "µs"
    every: int = 1
    loops: bool = True


def _tell(burst: int, size: int) -> Metric:
    bare = partial(BOX.tell, burst=burst)
    cases = [
        Case("floor", bare, size),
        Case("actors", partial(_ours.tell, burst=burst), size),
        Case("queue", partial(QUEUE.tell, burst=burst), size),
        Case("tell", partial(_xoscar.tell, burst=burst), min(size, 4096)),
        Case("call", _xoscar.call, min(size, 4096)),
    ]
    if burst > 1:
        # A single message would cost Pykka two thread switches, which is the hop case.
        cases.append(Case("pykka", partial(_pykka.tell, burst=burst), 8_192))
    return Metric(f"tell_{burst}", f"tell, bursts of {burst:,}", tuple(cases))


def _hop(pairs: int) -> Metric:
    return Metric(
        f"hop_{pairs}",
        f"ping-pong hop, {pairs} pair{'s' if pairs > 1 else ''}",
        (
            Case("floor", partial(BOX.hop, pairs=pairs), 10_000),
            Case("actors", partial(_ours.hop, pairs=pairs), 10_000),
            Case("queue", partial(QUEUE.hop, pairs=pairs), 10_000),
            Case("pykka", partial(_pykka.hop, pairs=pairs), 1_000),
            Case("tell", partial(_xoscar.hop, pairs=pairs), 2_000),
        ),
    )


PLAN: tuple[Metric, ...] = (
    _tell(1, 4_096),
    _tell(64, 32_768),
    _tell(1_024, 32_768),
    Metric(
        "tell_async",
        "tell, bursts of 64, async handler",
        (
            Case("floor", partial(BOX.tell_async, burst=64), 32_768),
            Case("actors", partial(_ours.tell, burst=64, sink=_ours.AsyncSink), 32_768),
            Case("queue", partial(QUEUE.tell_async, burst=64), 32_768),
            Case("tell", partial(_xoscar.tell, burst=64, method="handle_async"), 4_096),
            Case("call", partial(_xoscar.call, method="handle_async"), 4_096),
        ),
    ),
    Metric(
        "lots",
        "an item, 64 in one message",
        (
            Case("floor", BOX.lots, 32_768),
            Case("actors", _ours.lots, 32_768),
            Case("queue", QUEUE.lots, 32_768),
            Case("pykka", _pykka.lots, 8_192),
            Case("call", _xoscar.lots, 8_192),
        ),
    ),
    _hop(1),
    _hop(100),
    Metric(
        "ask",
        "ask, one after the other",
        (
            Case("floor", BOX.ask, 4_000),
            Case("actors", _ours.ask, 4_000),
            Case("queue", QUEUE.ask, 4_000),
            Case("pykka", _pykka.ask, 1_000),
            Case("call", _xoscar.call, 4_000),
        ),
    ),
    Metric(
        "ask_many",
        "ask, 1,000 in flight",
        (
            Case("floor", BOX.ask_many, 10_000),
            Case("actors", _ours.ask_many, 10_000),
            Case("queue", QUEUE.ask_many, 10_000),
            Case("pykka", _pykka.ask_many, 2_000),
            Case("call", _xoscar.call_many, 2_000),
        ),
    ),
    Metric(
        "spawn",
        "spawn an actor",
        (
            Case("floor", BOX.spawn, 1_024),
            Case("actors", _ours.spawn, 1_024),
            Case("queue", QUEUE.spawn, 1_024),
            Case("pykka", _pykka.spawn, 128),
            Case("call", _xoscar.spawn, 256),
        ),
    ),
    Metric(
        "stop",
        "stop an actor and wait for its end",
        (
            Case("floor", BOX.stop, 1_024),
            Case("actors", _ours.stop, 1_024),
            Case("queue", QUEUE.stop, 1_024),
            Case("pykka", _pykka.stop, 128),
            Case("call", _xoscar.stop, 256),
        ),
    ),
    Metric(
        "stop_behind",
        "stop behind 10,000 messages",
        (
            Case("floor", BOX.behind, 1),
            Case("actors", _ours.stop_behind, 1),
            Case("queue", QUEUE.behind, 1),
            Case("pykka", _pykka.behind, 1),
            Case("tell", _xoscar.behind, 1),
        ),
    ),
    Metric("urgent_behind", "urgent message behind 10,000", (Case("floor", BOX.behind, 1), Case("actors", _ours.urgent_behind, 1))),
    Metric("executor", "blocking job, one at a time", (Case("floor", _bare.executor, 400), Case("actors", _ours.executor, 400))),
    Metric(
        "executor_batch",
        "operation, 100 in one blocking job",
        (Case("floor", _bare.executor_batch, 20_000), Case("actors", _ours.executor_batch, 20_000)),
    ),
    Metric(
        "ingress",
        "tell from another thread",
        (Case("floor", _bare.ingress, 20_000), Case("actors", _ours.ingress, 20_000), Case("queue", _bare.ingress_each, 20_000)),
    ),
    Metric("skynet", "skynet, 100,000 leaves", (Case("actors", _ours.skynet, 100_000),), unit="s", every=5),
    Metric("skynet_told", "skynet, all alive at once", (Case("actors", _ours.skynet_told, 100_000),), unit="s", every=5),
    Metric(
        "idle",
        "memory of an idle actor",
        tuple(
            Case("call" if contender == "xoscar" else contender, partial(_idle.measure, contender=contender), size)
            for contender, size in (("floor", 10_000), ("actors", 10_000), ("queue", 10_000), ("pykka", 500), ("xoscar", 5_000))
        ),
        unit="bytes",
        every=5,
        loops=False,
    ),
)


def scaled(share: float) -> tuple[Metric, ...]:
    """Return the plan with that share of each case's operations, at least one."""
    return tuple(replace(metric, cases=tuple(replace(case, size=max(1, int(case.size * share))) for case in metric.cases)) for metric in PLAN)
