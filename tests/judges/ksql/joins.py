"""Steps that join two sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors.dsl import Joined, JoinWindows, StreamJoined
from tests.judges.ksql.codec import ROWS
from tests.judges.ksql.columns import duration_ms
from tests.judges.ksql.expressions import expression, safely
from tests.judges.ksql.flow import named, on_rows
from tests.judges.ksql.reasons import LeftOut
from tests.judges.ksql.times import DAY_MS

if TYPE_CHECKING:
    from tests.judges.ksql.flow import Flow, Row, Step

METHODS: Final = {"INNER": "join", "LEFT": "left_join", "OUTER": "outer_join"}


class _Sides:
    """The two sides of a join, with the left one of the DSL's call first: a right join is a left one of the other side."""

    def __init__(self, step: Step, left: Flow, right: Flow) -> None:
        self.is_turned = step["joinType"] == "RIGHT"
        method = METHODS.get("LEFT" if self.is_turned else step["joinType"])
        if method is None:
            raise LeftOut(f"join {step['joinType']}")
        self.method = method
        self.first, self.second = (right, left) if self.is_turned else (left, right)
        self.columns = (*left.columns, *right.columns)
        self.key = step.get("keyColName")

    def row(self, first: Row | None, second: Row | None) -> Row:
        return {**dict.fromkeys(self.columns), **(first or {}), **(second or {})}

    def keyed_row(self, key: Any, first: Row | None, second: Row | None) -> Row:
        return self.with_key(key, self.row(first, second))

    def with_key(self, key: Any, row: Row) -> Row:
        return {**row, **named((self.key,), key)} if self.key else row

    def joined(self, node: Any) -> Flow:
        names = (self.key,) if self.key else self.first.keys
        return self.first.to(node, keys=names, columns=(*self.columns, *((self.key,) if self.key else ())))


def stream_stream(step: Step, left: Flow, right: Flow) -> Flow:
    sides = _Sides(step, left, right)
    before, after = (duration_ms(step[f"{side}Millis"]) for side in ("before", "after"))
    grace = max(DAY_MS - before - after, 0) if step.get("graceMillis") is None else duration_ms(step["graceMillis"])
    windows = JoinWindows(after, before, grace) if sides.is_turned else JoinWindows(before, after, grace)
    options: StreamJoined[Any, Any, Any] = StreamJoined(left.key_serde, ROWS, ROWS)
    return sides.joined(getattr(sides.first.node, sides.method)(sides.second.node, sides.keyed_row, windows, options))


def stream_table(step: Step, left: Flow, right: Flow) -> Flow:
    sides = _Sides(step, left, right)
    if sides.is_turned or sides.method == "outer_join":
        raise LeftOut(f"join of stream and table: {step['joinType']}")
    options: Joined[Any, Any, Any] = Joined(left.key_serde, ROWS, ROWS)
    return sides.joined(getattr(left.node, sides.method)(right.node, sides.keyed_row, options))


def foreign_key(step: Step, left: Flow, right: Flow) -> Flow:
    """Join two tables by an expression of the left one's rows; the key stays the left one's."""
    sides = _Sides(step, left, right)
    if sides.is_turned or sides.method == "outer_join":
        raise LeftOut(f"join by a foreign key: {step['joinType']}")
    evaluate = safely(expression(step.get("leftJoinExpression") or step["leftJoinColumnName"])[0])

    def key_of(row: Row) -> Any:
        found = evaluate(row)
        return None if found is None else (found,)

    return sides.joined(getattr(left.node, sides.method)(right.node, sides.row, foreign_key=key_of))


def table_table(step: Step, left: Flow, right: Flow) -> Flow:
    sides = _Sides(step, left, right)
    table = getattr(sides.first.node, sides.method)(sides.second.node, sides.row)
    return sides.joined(table.map_values(on_rows(sides.with_key)))
