"""A step's result on the way through a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tests.judges.ksql.codec import KEYS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ks_actors.serdes import Serde
    from tests.judges.ksql.columns import Relation

    Step = Mapping[str, Any]
    Row = dict[str, Any]
    Kind = Literal["stream", "table"]


@dataclass(frozen=True)
class Flow:
    """A stream or table of the DSL, or one that is grouped, with the names of its columns.

    Keys are tuples of the key's columns, or windows of them; rows are dicts of all columns.
    """

    kind: Kind
    node: Any
    keys: tuple[str, ...]
    key_serde: Serde[Any] = KEYS
    columns: tuple[str, ...] = ()

    @property
    def is_windowed(self) -> bool:
        return self.key_serde is not KEYS

    def to(self, node: Any, **changes: Any) -> Flow:
        return replace(self, node=node, **changes)


def key_columns(key: Any) -> tuple[Any, ...] | None:
    """Return the key's columns, without its window."""
    found = getattr(key, "key", key)
    assert found is None or isinstance(found, tuple)
    return found


def named(names: tuple[str, ...], key: Any) -> Row:
    """Return the key's columns by name."""
    found = key_columns(key)
    return dict.fromkeys(names) if found is None else dict(zip(names, found, strict=False))


def on_rows(function: Callable[[Any, Row], Row]) -> Callable[[Any, Row | None], Row | None]:
    """Return a function of keys and rows that leaves null alone."""
    return lambda key, row: None if row is None else function(key, row)


def source_columns(relation: Relation) -> tuple[str, ...]:
    return (*relation.key.names, *relation.value.names, *(header.name for header in relation.headers), "ROWTIME", "ROWPARTITION", "ROWOFFSET")
