"""Steps that take each record alone: projections, filters, new keys, table functions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ks_actors.dsl import Materialized, Windowed
from tests.judges.ksql.codec import ROWS
from tests.judges.ksql.expressions import column, expression, safely
from tests.judges.ksql.flow import named, on_rows
from tests.judges.ksql.functions import rows_of
from tests.judges.ksql.reasons import LeftOut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.judges.ksql.expressions import Evaluate
    from tests.judges.ksql.flow import Flow, Row, Step


def select(step: Step, source: Flow) -> Flow:
    """Project the rows. The key keeps its columns, with the names that the step gives them."""
    chosen = [_named(text) for text in step["selectExpressions"]]
    keys = tuple(step.get("keyColumnNames") or source.keys)
    kept = step.get("selectedKeys")
    if kept is not None and len(kept) != len(source.keys):
        raise LeftOut("a step that drops columns of the key")

    def project(key: Any, row: Row) -> Row:
        return {name: evaluate(row) for name, evaluate in chosen}

    return source.to(source.node.map_values(on_rows(project)), keys=keys, columns=tuple(name for name, _ in chosen))


def filtered(step: Step, source: Flow) -> Flow:
    test = safely(expression(step["filterExpression"])[0])
    return source.to(source.node.filter(lambda key, row: row is not None and test(row) is True))


def flat_map(step: Step, source: Flow) -> Flow:
    functions = [safely(expression(text)[0]) for text in step["tableFunctions"]]
    names = [f"KSQL_SYNTH_{at}" for at in range(len(functions))]

    def several(key: Any, row: Row | None) -> list[Row]:
        if row is None:
            return []
        return [{**row, **dict(zip(names, made, strict=True))} for made in rows_of([function(row) for function in functions])]

    return source.to(source.node.flat_map_values(several), columns=(*source.columns, *names))


def select_key(step: Step, source: Flow) -> Flow:
    """Give each record of a stream, or row of a table, a new key; keys that are no columns become ones."""
    given = step["keyExpression"]
    texts = given if isinstance(given, list) else [given]
    names = _key_names(texts, source.columns)
    evaluates = [safely(expression(text)[0]) for text in texts]
    if all(text.strip().upper() == "NULL" for text in texts):
        return source.to(_rekeyed(source, lambda key, row: None), keys=())

    def new_key(key: Any, row: Row | None) -> Any:
        # Of a null row only the key's columns are known.
        seen: Row = named(source.keys, key) if row is None else row
        made = tuple(_known(evaluate, seen) if row is None else evaluate(seen) for evaluate in evaluates)
        if isinstance(key, Windowed):
            return Windowed(made, key.window)
        return None if made == (None,) else made

    added = [name for name in names if name not in source.columns]
    rekeyed = source.to(_rekeyed(source, new_key), keys=names)

    def with_key(key: Any, row: Row) -> Row:
        found = named(names, key)
        return {**row, **{name: found[name] for name in added}}

    return rekeyed.to(rekeyed.node.map_values(on_rows(with_key)), columns=(*source.columns, *added))


def _rekeyed(source: Flow, new_key: Callable[[Any, Row | None], Any]) -> Any:
    if source.kind == "stream":
        return source.node.select_key(new_key)
    stream = source.node.to_stream().map(lambda key, row: (new_key(key, row), row))
    return stream.to_table(Materialized(None, source.key_serde, ROWS))


def _known(evaluate: Evaluate, row: Row) -> Any:
    """Return a value that may need columns that are not there; null then."""
    try:
        return evaluate(row)
    except KeyError:
        return None


def _key_names(texts: list[str], columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of new key columns as ksql makes them."""
    found: list[str] = []
    for text in texts:
        inner = re.sub(r"^AS_VALUE\((.*)\)$", r"\1", text.strip())
        wanted = column(inner)
        if wanted is None:
            deref = re.search(r"->\s*`?(\w+)`?\)*$", inner)
            wanted = _unused(deref.group(1), (*columns, *found)) if deref else _numbered((*columns, *found))
        found.append(wanted)
    return tuple(found)


def _unused(name: str, used: tuple[str, ...]) -> str:
    return name if name not in used else next(made for at in range(1, 1000) if (made := f"{name}_{at}") not in used)


def _numbered(used: tuple[str, ...]) -> str:
    return next(name for at in range(1000) if (name := f"KSQL_COL_{at}") not in used)


def _named(text: str) -> tuple[str, Callable[[Mapping[str, Any]], Any]]:
    evaluate, name = expression(text)
    if name is None:
        raise LeftOut(f"no name in {text}")
    return name, safely(evaluate)
