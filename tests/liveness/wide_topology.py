"""The operations of the wide layer, behind the first function of a lane."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ks_actors import KeyValueStore, Processor, ProcessorContext, PunctuationType, Record, serdes, stores
from ks_actors.dsl import BufferConfig, Grouped, Materialized, StreamJoined, StreamsBuilder, Suppressed, TimeWindows
from tests.liveness.plan import Shape

WINDOW_MS = 1_000
GRACE_MS = 60_000
IDLE_MS = 2_000
_LONG_MS = 86_400_000


def add_wide(builder: StreamsBuilder, name: str, shape: Shape, first: Any, others: Sequence[Any]) -> Any:
    """Return the stream of results of a lane."""
    match shape:
        case "batch":
            return first.batch(_same, max_records=7, max_wait_ms=300, max_in_flight=2)
        case "distinct":
            return first.distinct(_LONG_MS, by=lambda value: value, by_serde=serdes.STRING, key=serdes.STRING)
        case "gather":
            store = stores.key_value(f"{name}-gathered", serdes.STRING, serdes.STRING)
            builder.add_state_store(store)
            return first.process(lambda: Gathering(store.name), store.name)
        case "asof":
            joined = StreamJoined(serdes.STRING, serdes.STRING, serdes.STRING)
            return first.left_join_asof(others[0], lambda value, _: value, _LONG_MS, joined)
        case "foreign":
            left, right = (
                stream.to_table(Materialized(f"{name}-{side}", serdes.STRING, serdes.STRING))
                for side, stream in (("left", first), ("right", others[0]))
            )
            rows = left.left_join(right, lambda value, _: value, foreign_key=lambda value: f"k{int(value) % 50}")
            return rows.to_stream()
        case "final":
            windows = TimeWindows.of_size_and_grace(WINDOW_MS, GRACE_MS)
            counts = (
                first.group_by_key(Grouped(serdes.STRING, serdes.STRING))
                .windowed_by(windows)
                .count(Materialized(f"{name}-windows", serdes.STRING, serdes.LONG))
            )
            final = counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded(), idle_after_ms=IDLE_MS)).to_stream()
            return final.map(lambda window, count: (f"{window.key}@{window.window.start}", str(count)))
        case _:
            raise NotImplementedError(shape)


async def _same(records: list[Record[str, str]]) -> list[Record[str, str]]:
    """Return a batch after some virtual time."""
    await asyncio.sleep(0.05)
    return records


class Gathering(Processor[str, str, str, str]):
    """Gather records in a store, and forward them twice a second by the wall clock."""

    def __init__(self, store: str) -> None:
        self._name = store

    def init(self, context: ProcessorContext[str, str]) -> None:
        """Begin to forward."""
        self._context = context
        self._store: KeyValueStore[str, str] = context.get_state_store(self._name)
        context.schedule(500, PunctuationType.WALL_CLOCK_TIME, self._forward)

    def process(self, record: Record[str, str]) -> None:
        """Gather."""
        self._store.put(record.value, record.key)

    def _forward(self, now: int) -> None:
        for value, key in [*self._store.all()]:
            self._store.delete(value)
            self._context.forward(Record(key, value, now))
