"""Random records, as hypothesis makes them, and the functions that they are put through."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ks_actors.records._batch import Batch

KEYS = st.sampled_from(["a", "b", "c", None, "broken"])
VALUES = st.sampled_from(["x", "y", "z", "!", None])
HEADERS: tuple[tuple[str, bytes | None], ...] = (("h", b"1"),)


class Refused(Exception):
    """An error of a user's function."""


def refuse(value: Any) -> None:
    if value == "!":
        raise Refused("!")


def folded(aggregate: str, value: str | None) -> str | None:
    """Append, delete at "z", raise at "!"."""
    refuse(value)
    return None if value == "z" else f"{aggregate}{value}"


def folded_by_key(key: str, value: str | None, aggregate: str) -> str | None:
    assert key is not None
    return folded(aggregate, value)


def grown(aggregate: list[Any], value: Any) -> list[Any]:
    """Change the aggregate in place."""
    refuse(value)
    aggregate.append(value)
    return aggregate


def grown_by_key(_: str, value: Any, aggregate: list[Any]) -> list[Any]:
    return grown(aggregate, value)


@st.composite
def batches(draw: st.DrawFn, keys: st.SearchStrategy[Any] = KEYS, values: st.SearchStrategy[Any] = VALUES, latest: int = 60) -> list[Batch]:
    """Records in offset order, in batches, with or without headers."""
    rows = draw(st.lists(st.tuples(keys, values, st.integers(0, latest)), max_size=25))
    with_headers = draw(st.booleans())
    headers = [HEADERS if index % 2 else () for index in range(len(rows))] if with_headers else None
    offsets = range(100, 100 + 3 * len(rows), 3)
    whole = Batch([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], headers, offsets)
    cut = draw(st.integers(0, len(rows)))
    return [part for part in (whole.slice(0, cut), whole.slice(cut, len(rows))) if len(part)]
