"""Windows at their edges: an accepted record finds all that it belongs to, as in stores that forget nothing."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import msgspec

from ks_actors import serdes
from ks_actors.dsl import (
    BufferConfig,
    Consumed,
    EmitStrategy,
    JoinWindows,
    Materialized,
    Produced,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from ks_actors.testing import TopologyTestDriver
from ks_actors.topology import Topology
from tests.differential.restarts import restart, write_to_disk

TEXT = Consumed(serdes.STRING, serdes.STRING)
EVER = 1 << 40
KINDS = ("tumbling", "hopping", "sliding", "sessions", "inner join", "left join", "outer join")
ENDS = ("update", "close", "suppress")


class Case(NamedTuple):
    """An operation, its times in ms, the place of its state, and its steps: a step is a topic, a key, a time, and the next action."""

    kind: str
    end: str
    size: int
    advance: int
    grace: int
    more: int | None
    store: str
    cache_bytes: int
    steps: list[tuple[str, str, int, str]]

    @classmethod
    def random(cls, random: Random) -> Case:
        """Return a case with records at the edges of its windows, one ms before and behind them."""
        kind = random.choice(KINDS)
        size, grace = random.choice((1, 2, 3, 5, 10)), random.choice((0, 0, 1, 2, 5))
        joins = kind.endswith("join")
        topics = ("in", "other") if joins else ("in",)
        reach = grace if joins else size + grace
        now, steps = random.choice((0, 3, 20, 60_000)), []
        for _ in range(random.randint(3, 14)):
            if random.random() < 0.4:
                now += random.choice((1, size, size + grace, size + 1, 2 * size, 2 * size + grace, reach, reach + 1, 60_000))
                time = now
            else:
                back = random.choice((0, 1, size, reach, reach - 1, reach + 1, 2 * size + grace, 2 * size + grace + 1))
                time = now - (min(max(0, back), grace) if joins else back)
            after = random.choice(("", "", "", "restart", "write"))
            steps.append((random.choice(topics), random.choice("abc"), max(0, time), after))
        end = "update" if joins else random.choice(ENDS)
        more, store = random.choice((None, None, 0, 1, 7)), random.choice(("in_memory", "rocksdb"))
        return cls(kind, end, size, random.randint(1, size), grace, more, store, random.choice((0, 0, 10_000)) if end == "update" else 0, steps)


def _windows(case: Case) -> Any:
    if case.kind == "sliding":
        return SlidingWindows.of_time_difference_and_grace(case.size, case.grace)
    if case.kind == "sessions":
        return SessionWindows.of_inactivity_gap_and_grace(case.size, case.grace)
    windows = TimeWindows.of_size_and_grace(case.size, case.grace)
    return windows.advance_by(case.advance) if case.kind == "hopping" else windows


def build(case: Case) -> Topology:
    """Build the topology of a case."""
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT)
    text = Produced(serdes.STRING, serdes.STRING)
    if case.kind.endswith("join"):
        windows = JoinWindows.of_time_difference_and_grace(0, case.grace).before(case.size).after(case.advance - 1)
        options = StreamJoined(serdes.STRING, serdes.STRING, serdes.STRING, store_type=case.store)  # type: ignore[arg-type]
        join = getattr(stream, {"inner join": "join"}.get(case.kind, case.kind.replace(" ", "_")))
        join(builder.stream("other", TEXT), lambda one, other: f"{one}+{other}", windows, options).to("out", text)
        return builder.build()
    windows = _windows(case)
    retention = None if case.more is None else windows.keep_ms + case.more
    kept = Materialized("s", serdes.STRING, serdes.LONG, store_type=case.store, retention_ms=retention)  # type: ignore[arg-type]
    windowed: Any = stream.group_by_key().windowed_by(windows)
    if case.end == "close":
        windowed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    table = windowed.count(kept)
    if case.end == "suppress":
        table = table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    table.to_stream().map(lambda key, count: (str(key), str(count))).to("out", text)
    return builder.build()


def outcome(case: Case, *, forgets: bool = True) -> list[Any]:
    """Return all that is written; unless it `forgets`, stores keep all, and nothing happens to the task."""
    topology = build(case)
    if not forgets:
        for name, spec in topology.stores.items():
            if spec.retention_ms:
                topology._stores[name] = msgspec.structs.replace(spec, retention_ms=EVER)
    with TopologyTestDriver(topology, {"statestore_cache_max_bytes": case.cache_bytes, "default_dsl_store": case.store}) as driver:
        for number, (topic, key, time, after) in enumerate(case.steps):
            driver._run(driver._pipe(topic, key.encode(), f"v{number}".encode(), time, ()))
            if forgets and after == "restart":
                restart(driver)
            if forgets and after == "write":
                write_to_disk(driver)
        return list(driver._written._records.get("out", ()))


def plain(case: Case) -> dict[str, int] | None:
    """Return the last count of each window of a case that updates, from a list of all that was accepted; None where that is not told so simply.

    A session that is closed may be there still or not, as the retention says: that a record would join one is not told, either.
    """
    if case.kind not in {"tumbling", "hopping", "sessions"}:
        return None
    now = -1
    counts: dict[str, int] = {}
    sessions: dict[tuple[str, int, int], int] = {}
    advance = case.advance if case.kind == "hopping" else case.size
    for _, key, time, _ in case.steps:
        now = max(now, time)
        if case.kind != "sessions":
            first = max(0, time - case.size + advance) // advance * advance
            for start in range(first, time + 1, advance):
                if start + case.size > now - case.grace:
                    name = f"[{key}@{start}/{start + case.size}]"
                    counts[name] = counts.get(name, 0) + 1
            continue
        found = [one for one in sessions if one[0] == key and one[1] - case.size <= time <= one[2] + case.size]
        start, end = min([time, *(one[1] for one in found)]), max([time, *(one[2] for one in found)])
        if end < now - case.size - case.grace:
            continue
        if any(one[2] < now - case.size - case.grace for one in found):
            return None
        sessions[key, start, end] = 1 + sum(sessions.pop(one) for one in found)
    return counts if case.kind != "sessions" else {f"[{key}@{start}/{end}]": count for (key, start, end), count in sessions.items()}


def last(written: list[Any]) -> dict[str, str]:
    """Return the last value of each key; a delete is written as text."""
    return {key.decode(): value.decode() for key, value, _, _ in written if value is not None}


def differences(case: Case) -> list[str]:
    """Return the differences from stores that forget nothing, in words: nothing, that is."""
    simple = plain(case)
    if case.kind == "sessions" and simple is None:
        return []
    found, wanted = outcome(case), outcome(case, forgets=False)
    wrong = []
    if case.cache_bytes:
        if last(found) != last(wanted):
            wrong.append(f"{case}: {last(found)}; stores that forget nothing: {last(wanted)}")
    elif found != wanted:
        wrong.append(f"{case}: {found}; stores that forget nothing: {wanted}")
    if simple is not None and case.end == "update":
        counts = {key: int(value) for key, value in last(found).items() if value != "None"}
        if counts != simple:
            wrong.append(f"{case}: {counts}; all that was accepted: {simple}")
    return wrong
