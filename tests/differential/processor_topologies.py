"""Users' processors: punctuation, window stores, fixed keys, and a topology without the DSL."""

from __future__ import annotations

from typing import Any

from ks_actors.dsl import StreamsBuilder, TimeWindows
from ks_actors.processors import FixedKeyProcessor, Processor, PunctuationType, Record
from ks_actors.topology import Topology, stores
from tests.differential.parts import (
    CONSUMED,
    GROUPED,
    NUMBER,
    PRODUCED,
    REBUILT,
    TEXT,
    Build,
    Params,
    Rebuilt,
    rebuilds,
    register,
    stored_windows,
    text,
    write_windowed,
)

# ---- punctuation


class _Counter(Processor[Any, Any, Any, Any]):
    """Count per key, and tell all counts at each tick."""

    def __init__(self, punctuation: PunctuationType, p: Params) -> None:
        self.punctuation = punctuation
        self.interval_ms: int = p["interval"]
        self.start_ms: int | None = p.get("start")
        self.clear: bool = p["clear"]

    def init(self, context: Any) -> None:
        super().init(context)
        self.store: Any = context.get_state_store("counts")
        context.schedule(self.interval_ms, self.punctuation, self.tick, start_ms=self.start_ms)

    def tick(self, now: int) -> None:
        self.context.forward(Record("tick", f"{now}/{self.context.current_stream_time_ms()}", max(0, now)))
        keys = []
        with self.store.all() as counts:
            for key, count in counts:
                keys.append(key)
                self.context.forward(Record(key, count, max(0, now)))
        if self.clear:
            for key in keys:
                self.store.delete(key)

    def process(self, record: Record[Any, Any]) -> None:
        if record.key is None:
            return
        if record.value is None:
            self.store.delete(record.key)
        else:
            self.store.put(record.key, str(int(self.store.get(record.key) or "0") + 1))


def _punctuating(punctuation: PunctuationType) -> Build:
    def build(builder: StreamsBuilder, p: Params) -> None:
        builder.add_state_store(stores.key_value("counts", TEXT, TEXT, type=p["store"]))
        builder.stream("in", CONSUMED).process(lambda: _Counter(punctuation, p), "counts").to("out", PRODUCED)

    return build


register("punctuate_stream", _punctuating(PunctuationType.STREAM_TIME), "out")
register("punctuate_wall", _punctuating(PunctuationType.WALL_CLOCK_TIME), "out")

# ---- stores


class _Dedup(Processor[Any, Any, Any, Any]):
    """Let through records without a match within the window before or after."""

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms

    def init(self, context: Any) -> None:
        super().init(context)
        self.store: Any = context.get_state_store("seen")

    def process(self, record: Record[Any, Any]) -> None:
        if record.key is None:
            return
        name = f"{record.key}|{'~' if record.value is None else record.value}"
        with self.store.fetch(name, max(0, record.timestamp - self.window_ms), record.timestamp + self.window_ms) as found:
            known = any(True for _ in found)
        self.store.put(name, "1", record.timestamp)
        if not known:
            self.context.forward(record)


@rebuilds("out")
def dedup(builder: StreamsBuilder, p: Params) -> None:
    builder.add_state_store(stores.window("seen", TEXT, TEXT, retention_ms=p["retention"], window_size_ms=p["window"], type=p["store"]))
    builder.stream("in", CONSUMED).process(lambda: _Dedup(p["window"]), "seen").to("out", PRODUCED)


class _Changes(FixedKeyProcessor[Any, Any, Any]):
    """Tell each change of a key's value."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.store: Any = context.get_state_store("last")

    def process(self, record: Any) -> None:
        key = "_" if record.key is None else record.key
        value = record.value
        last = self.store.get(key)
        if value is None:
            self.store.delete(key)
            self.context.forward(record.with_value(f"del:{text(last)}"))
        elif value != last:
            self.store.put(key, value)
            self.context.forward(record.with_value(f"{text(last)}>{value}"))
            if value.startswith("d"):
                self.context.forward(record.with_value(f"again:{value}").with_timestamp(record.timestamp + 1))


@rebuilds("out", "out-count")
def process_values(builder: StreamsBuilder, p: Params) -> None:
    builder.add_state_store(stores.key_value("last", TEXT, TEXT, type=p["store"]))
    changes = builder.stream("in", CONSUMED).process_values(_Changes, "last")
    changes.to("out", PRODUCED)
    windowed = changes.group_by_key(GROUPED).windowed_by(TimeWindows.of_size_and_grace(20, 20))
    write_windowed(windowed.count(stored_windows("cnt", p, NUMBER)), "out-count")


# ---- without the DSL


class _Router(Processor[Any, Any, Any, Any]):
    """Send to one child by name, or to all."""

    def process(self, record: Record[Any, Any]) -> None:
        if record.value is None:
            self.context.forward(record.with_value("null"))
        elif record.value < "c":
            self.context.forward(record, "low")
        else:
            self.context.forward(record.with_timestamp(record.timestamp + 5), "high")


class _Tally(Processor[Any, Any, Any, Any]):
    """Write down each record, in a store that two nodes share."""

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def init(self, context: Any) -> None:
        super().init(context)
        self.store: Any = context.get_state_store("shared")

    def process(self, record: Record[Any, Any]) -> None:
        key = "_" if record.key is None else record.key
        tally = (self.store.get(key) or "") + self.tag + record.value
        self.store.put(key, tally)
        self.context.forward(record.with_key(self.tag + key).with_value(tally))


def _papi_router(p: Params) -> Topology:
    topology = Topology()
    topology.add_source("src", "in", key=TEXT, value=TEXT)
    topology.add_processor("router", _Router, "src")
    topology.add_processor("low", lambda: _Tally("l"), "router")
    topology.add_processor("high", lambda: _Tally("h"), "router")
    topology.add_state_store(stores.key_value("shared", TEXT, TEXT, type=p["store"]), "low", "high")
    topology.add_sink("sink-low", "out-low", "low", key=TEXT, value=TEXT)
    topology.add_sink("sink-high", "out-high", "high", key=TEXT, value=TEXT)
    topology.add_sink("sink-all", "out-all", "low", "high", key=TEXT, value=TEXT)
    return topology


REBUILT["papi_router"] = Rebuilt(("out-low", "out-high", "out-all"), _papi_router)
