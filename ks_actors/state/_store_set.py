"""The stores of one task, as those see them who only look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors._errors import StateError
from ks_actors.state._custom import CustomStore, shown
from ks_actors.state._positions import Positions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.state._kinds import AnyStore
    from ks_actors.state._positions import At
    from ks_actors.state.disk import Engine
    from ks_actors.topology import StoreSpec


class StoreSet:
    """The stores of a task by name, where their changelogs are to be read from, and up to which input they are."""

    def __init__(self, task: str, specs: Sequence[StoreSpec], *, vectors: bool) -> None:
        self.task: str = task
        self.logged: tuple[str, ...] = tuple(spec.name for spec in specs if spec.logging)
        self.sources: dict[str, str] = {spec.name: spec.source_topic for spec in specs if spec.source_topic is not None}
        self.positions: Positions = Positions(vectors=vectors)
        self._specs: tuple[StoreSpec, ...] = tuple(specs)
        self._engine: Engine | None = None
        self._stores: dict[str, AnyStore] = {}
        self._offsets: dict[str, int] = {}
        # What the transaction that is being committed has changed, and the task's position then.
        self._changing: frozenset[str] = frozenset()
        self._changed_at: At = {}

    def store(self, name: str) -> Any:
        """Return a store, of the class that its kind has (see `AnyStore`); raises StateError when the task has none of that name, or is not open."""
        return shown(self.kept(name))

    def kept(self, name: str) -> AnyStore:
        """Return a store as it is kept here: one of the user's own with what is done for it. Raises StateError as `store` does."""
        try:
            return self._stores[name]
        except KeyError:
            raise StateError(f"task {self.task} has no store {name!r}; it has {', '.join(self._stores) or 'none, it is not open'}") from None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all stores, in the order in which they were given."""
        return tuple(spec.name for spec in self._specs)

    def next_offset(self, store: str) -> int | None:
        """Return where a store's changelog is to be read from; None is its beginning."""
        return self._offsets.get(store)

    @property
    def offset_sum(self) -> int:
        """How far the stores are: the sum of the offsets that their changelogs are to be read from."""
        return sum(self._offsets.values())

    @property
    def uncommitted_bytes(self) -> int:
        """About how much memory the puts since the last freeze take."""
        return sum(store.uncommitted_bytes() for store in self._stores.values())

    def changed(self, store: str) -> bool:
        """Return whether something was put into a store that is not committed."""
        return store in self._changing or self._puts(store)

    def _puts(self, store: str) -> bool:
        found = self._stores[store]
        return found.changed if isinstance(found, CustomStore) else found.uncommitted_bytes() > 0

    def begin_processing(self, position: Mapping[tuple[str, int], int]) -> None:
        """Take note that all changelogs are read, and the task is processed from behind this position."""
        self.positions.begin(self._stores, self.logged, position)

    def memory_bytes(self) -> dict[str, int]:
        """Return about how much memory each store takes, without what is on disk."""
        return {name: store.memory_bytes() for name, store in list(self._stores.items())}

    def statistics(self) -> dict[str, float]:
        """Return what the database tells of itself, by Kafka Streams' names; nothing when there is none. May be called in any thread."""
        engine = self._engine
        return {} if engine is None else engine.statistics()

    @property
    def on_disk(self) -> bool:
        """Whether there is a database."""
        return self._engine is not None

    def end_reading(self, reason: str) -> None:
        """Tell the queries that read these stores that there is nothing more to be had; to be called before `close`, where they are read."""
        for store in self._stores.values():
            store.end_reading(reason)
