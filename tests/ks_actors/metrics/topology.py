"""The topology of `MetricNames.java`."""

from __future__ import annotations

from typing import Any

from ks_actors import EmitStrategy, Grouped, Materialized, Produced, SessionWindows, StreamsBuilder, Suppressed, TimeWindows, Topology, serdes
from ks_actors.dsl import BufferConfig, Consumed

STRING, LONG = serdes.STRING, serdes.LONG


def topology() -> Topology:
    builder = StreamsBuilder()
    records = builder.stream("in", Consumed(STRING, STRING, name="input"))

    def grouped() -> Any:
        return records.group_by_key(Grouped(STRING, STRING))

    grouped().count(Materialized("counts"), name="counting").to_stream(name="counted").to("out", Produced(STRING, LONG, name="output"))
    grouped().reduce(lambda one, other: other, Materialized("latest", store_type="in_memory"), name="reducing")
    windows = TimeWindows.of_size_and_grace(10_000, 0)
    counted = grouped().windowed_by(windows).count(Materialized("windows", STRING, LONG), name="windowing")
    closed = counted.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()).with_name("closing"))
    final = closed.to_stream(name="closed").map(lambda window, count: (window.key, count), name="unwindowed")
    final.to("final", Produced(STRING, LONG, name="final-output"))
    sessions = SessionWindows.of_inactivity_gap_and_grace(5_000, 0)
    grouped().windowed_by(sessions).count(Materialized("sessions", STRING, LONG), name="sessioning")
    wide = TimeWindows.of_size_and_grace(20_000, 0)
    emitting = grouped().windowed_by(wide).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    emitting.count(Materialized("emitted", STRING, LONG), name="emitting")
    rows = builder.table("table", Consumed(STRING, STRING, name="rows-input"), Materialized("rows", STRING, STRING))
    rows.group_by(lambda key, value: (value, key), Grouped(STRING, STRING, name="by-value")).count(Materialized("row-counts"), name="counting-rows")
    return builder.build()
