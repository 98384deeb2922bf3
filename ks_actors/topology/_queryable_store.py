"""The typed name of a store that queries can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, final

if TYPE_CHECKING:
    from ks_actors.serdes import Serde

K = TypeVar("K")
V = TypeVar("V")


@final
class QueryableStore(Generic[K, V]):
    """The name of a store with its key and value types, from `Table.queryable`.

    Pass it to `App.store` in place of the name to get typed results. A serde is None where the
    table has the app's default.
    """

    __slots__ = ("key", "name", "value")

    def __init__(self, name: str, key: Serde[K] | None, value: Serde[V] | None) -> None:
        self.name: str = name
        """The name of the store."""
        self.key: Serde[K] | None = key
        """The serde of its keys."""
        self.value: Serde[V] | None = value
        """The serde of its values."""

    def __repr__(self) -> str:
        return f"<QueryableStore {self.name}>"
