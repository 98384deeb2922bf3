"""The topology of a plan. Its functions take note of each record that they are called with, and take virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ks_actors import Processor, ProcessorContext, PunctuationType, Record, blocking, serdes
from ks_actors.dsl import Consumed, Grouped, JoinWindows, Materialized, Produced, StreamJoined, StreamsBuilder
from ks_actors.topology import Topology
from tests.liveness.ledger import Ledger, group_of
from tests.liveness.plan import Lane, Plan
from tests.liveness.wide_topology import add_wide

TICK_S = 1.0
_LONG_MS = 86_400_000
_STRINGS = Consumed(serdes.STRING, serdes.STRING)
_OUT = Produced(serdes.STRING, serdes.STRING)
_GROUPED = Grouped(serdes.STRING, serdes.STRING)


def build(plan: Plan, ledger: Ledger, spend: Callable[[float], None]) -> Topology:
    """Return the topology; a function that holds its thread tells `spend` for how long (s)."""
    builder = StreamsBuilder()
    for lane in plan.lanes:
        _add(builder, lane, ledger, spend)
    return builder.build()


def _add(builder: StreamsBuilder, lane: Lane, ledger: Ledger, spend: Callable[[float], None]) -> None:
    first, *others = [_begun(builder.stream(topic, _STRINGS), lane, ledger, spend) for topic in lane.topics]
    out = f"{lane.name}-out"
    match lane.shape:
        case "map":
            first.to(out, _OUT)
        case "merge":
            first.merge(others[0]).to(out, _OUT)
        case "join":
            windows = JoinWindows.of_time_difference_and_grace(_LONG_MS, _LONG_MS)
            joined = StreamJoined(serdes.STRING, serdes.STRING, serdes.STRING)
            first.join(others[0], lambda one, other: f"{one}+{other}", windows, joined).to(out, _OUT)
        case "enrich":
            table = others[0].to_table(Materialized(f"{lane.name}-table", serdes.STRING, serdes.STRING))
            first.left_join(table, lambda value, _: value).to(out, _OUT)
        case "count":
            _counted(first.group_by_key(_GROUPED), lane, lambda _: None).to(out, _OUT)
        case "recount":
            grouped = first.group_by(lambda _, value: group_of(value), Grouped(serdes.STRING, serdes.STRING, name=f"{lane.name}-by"))
            _counted(grouped, lane, ledger.arrive).to(out, _OUT)
        case "tick":
            first.process(lambda: Ticking(lane, ledger)).to(out, _OUT)
        case _:
            add_wide(builder, lane.name, lane.shape, first, others).to(out, _OUT)


def _begun(stream: Any, lane: Lane, ledger: Ledger, spend: Callable[[float], None]) -> Any:
    """Return the stream behind the lane's work."""
    work = lane.work
    if work.kind == "plain":
        return stream.map_values(lambda value: ledger.note(value))

    async def call(value: str) -> str:
        ledger.note(value)
        await asyncio.sleep(work.seconds)
        return value

    @blocking
    def hold(value: str) -> str:
        spend(work.seconds)
        return ledger.note(value)

    if work.kind == "blocking":
        return stream.map_values(hold)
    return stream.map_values(call, max_in_flight=work.max_in_flight, order=work.order)


def _counted(grouped: Any, lane: Lane, arrived: Callable[[str], None]) -> Any:
    def add(_: str, value: str, count: str) -> str:
        arrived(value)
        return str(int(count) + 1)

    return grouped.aggregate(lambda: "0", add, Materialized(f"{lane.name}-counts", serdes.STRING, serdes.STRING)).to_stream()


class Ticking(Processor[str, str, str, str]):
    """Forward each record, and take note of each second."""

    def __init__(self, lane: Lane, ledger: Ledger) -> None:
        self._lane = lane
        self._ledger = ledger

    def init(self, context: ProcessorContext[str, str]) -> None:
        """Begin to tick."""
        self._context = context
        partition = context.task_id.partition
        context.schedule(int(TICK_S * 1000), PunctuationType.WALL_CLOCK_TIME, lambda _: self._ledger.tick(self._lane, partition))

    def process(self, record: Record[str, str]) -> None:
        """Forward."""
        self._context.forward(record)
