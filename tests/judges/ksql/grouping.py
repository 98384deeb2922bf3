"""Steps that group and aggregate."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ks_actors.dsl import BufferConfig, EmitStrategy, Grouped, Materialized, SessionWindows, Suppressed, TimeWindows
from ks_actors.serdes import session_windowed, windowed
from tests.judges.ksql import aggregates, values
from tests.judges.ksql.codec import KEYS, ROWS
from tests.judges.ksql.columns import duration_ms
from tests.judges.ksql.expressions import expression, safely
from tests.judges.ksql.reasons import LeftOut
from tests.judges.ksql.times import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.judges.ksql.flow import Flow, Row, Step

OLD_KEY_SEPARATOR: Final = "|+|"


def group_by_key(step: Step, source: Flow) -> Flow:
    if source.is_windowed:
        raise LeftOut("grouping by a windowed key")
    present = source.node.filter(lambda key, row: key is not None and row is not None)
    return source.to(present.group_by_key(Grouped(KEYS, ROWS)))


def group_by(step: Step, source: Flow) -> Flow:
    """Group by expressions; rows with a null among them are left away, as in ksql."""
    evaluates = [safely(expression(text)[0]) for text in step["groupByExpressions"]]
    joins_texts = step["@type"].endswith("GroupByV1") and len(evaluates) > 1

    def new_key(row: Row) -> tuple[Any, ...]:
        made = tuple(evaluate(row) for evaluate in evaluates)
        return (OLD_KEY_SEPARATOR.join(values.text(each) for each in made),) if joins_texts and None not in made else made

    present = source.node.filter(lambda key, row: row is not None and None not in new_key(row))
    if source.kind == "stream":
        return source.to(present.group_by(lambda key, row: new_key(row), Grouped(KEYS, ROWS)), keys=(), key_serde=KEYS)
    return source.to(present.group_by(lambda key, row: (new_key(row), row), Grouped(KEYS, ROWS)), keys=(), key_serde=KEYS)


class _Functions:
    """The functions of an aggregation, over states of the plain columns and of each aggregate."""

    def __init__(self, step: Step) -> None:
        self.plain = [name["name"] if isinstance(name, dict) else name.strip("`") for name in step["nonAggregateColumns"]]
        self.calls = [aggregates.call(text) for text in step["aggregationFunctions"]]

    def begin(self) -> tuple[list[Any], list[Any]]:
        return [None] * len(self.plain), [call.aggregate.begin() for call in self.calls]

    def step(self, key: Any, row: Row, state: Any) -> tuple[list[Any], list[Any]]:
        stepped = [call.aggregate.step(before, call.given(row)) for call, before in zip(self.calls, state[1], strict=True)]
        return [row.get(name) for name in self.plain], stepped

    def undo(self, key: Any, row: Row, state: Any) -> tuple[list[Any], list[Any]]:
        undone = []
        for call, before in zip(self.calls, state[1], strict=True):
            if call.aggregate.undo is None:
                raise LeftOut("an aggregate of a table that cannot be undone")
            undone.append(call.aggregate.undo(before, call.given(row)))
        return state[0], undone

    def merge(self, key: Any, one: Any, other: Any) -> tuple[list[Any], list[Any]]:
        plain = [first if second is None else second for first, second in zip(one[0], other[0], strict=True)]
        merged = [call.aggregate.merge(first, second) for call, first, second in zip(self.calls, one[1], other[1], strict=True)]
        return plain, merged

    def row(self, key: Any, state: Any) -> Row | None:
        if state is None:
            return None
        made = dict(zip(self.plain, state[0], strict=True))
        for at, (call, inner) in enumerate(zip(self.calls, state[1], strict=True)):
            made[f"KSQL_AGG_VARIABLE_{at}"] = call.aggregate.result(inner)
        window = getattr(key, "window", None)
        return made if window is None else {**made, "WINDOWSTART": window.start, "WINDOWEND": window.end}

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.plain, *(f"KSQL_AGG_VARIABLE_{at}" for at in range(len(self.calls))), "WINDOWSTART", "WINDOWEND")


def aggregate(step: Step, source: Flow) -> Flow:
    functions = _Functions(step)
    if source.kind == "table":
        table = source.node.aggregate(functions.begin, functions.step, functions.undo, Materialized(None, KEYS, ROWS))
    else:
        table = source.node.aggregate(functions.begin, functions.step, Materialized(None, KEYS, ROWS))
    return source.to(table.map_values(functions.row), kind="table", columns=functions.columns)


def windowed_aggregate(step: Step, source: Flow) -> Flow:
    functions = _Functions(step)
    given = window_of(step["windowExpression"])
    grace = None if given.get("gracePeriod") is None else duration_ms(given["gracePeriod"])
    strategy = EmitStrategy.ON_WINDOW_CLOSE if given.get("emitStrategy") == "FINAL" else EmitStrategy.ON_WINDOW_UPDATE
    if given["windowType"] == "SESSION":
        gap = duration_ms(given["gap"])
        sessions = SessionWindows(gap, max(DAY_MS - gap, 0) if grace is None else grace)
        grouped = source.node.windowed_by(sessions).emit_strategy(strategy)
        table = grouped.aggregate(functions.begin, functions.step, functions.merge, Materialized(None, KEYS, ROWS))
        serde: Any = session_windowed(KEYS)
    else:
        size = duration_ms(given["size"])
        advance = duration_ms(given["advanceBy"]) if given.get("advanceBy") else size
        windows = TimeWindows(size, max(DAY_MS - size, 0) if grace is None else grace, advance)
        retention = max(duration_ms(given["retention"]), size + windows.grace_ms) if given.get("retention") else None
        grouped = source.node.windowed_by(windows).emit_strategy(strategy)
        table = grouped.aggregate(functions.begin, functions.step, Materialized(None, KEYS, ROWS, retention_ms=retention))
        serde = windowed(KEYS, size)
    return source.to(table.map_values(functions.row), kind="table", key_serde=serde, columns=functions.columns)


def suppress(step: Step, source: Flow) -> Flow:
    return source.to(source.node.suppress(Suppressed.until_window_closes(BufferConfig.unbounded())))


def window_of(given: Any) -> Mapping[str, Any]:
    """Return a window expression as an object: before ksql 0.11 it was text."""
    if not isinstance(given, str):
        assert isinstance(given, dict)
        return given
    kind = given.split()[0].upper()
    lengths = [{"value": int(value), "timeUnit": f"{unit.rstrip('S')}S"} for value, unit in re.findall(r"(\d+) ([A-Z]+)", given.upper())]
    if kind == "SESSION":
        return {"windowType": kind, "gap": lengths[0]}
    if kind not in {"HOPPING", "TUMBLING"} or re.search(r"GRACE|RETENTION", given.upper()):
        raise LeftOut(f"window {given}")
    return {"windowType": kind, "size": lengths[0], "advanceBy": lengths[-1]}
