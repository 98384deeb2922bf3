"""The read-only view of a task's stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ks_actors._errors import StateError
from ks_actors.state.custom import CustomStore, shown
from ks_actors.state.task_stores._positions import Positions
from ks_actors.topology import StoreKind, StorePlace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ks_actors.state.core import Engine, StoreForTasks
    from ks_actors.state.disk import SharedResources
    from ks_actors.state.task_stores._positions import At
    from ks_actors.topology import StoreSpec


class StoreFigures(NamedTuple):
    """The figures of one store: bytes in memory, rows in memory, open iterators (None: unknown)."""

    memory_bytes: int
    uncommitted_bytes: int
    unwritten_bytes: int
    resident_rows: int
    open_iterators: int | None


class StoreSet:
    """A task's stores by name, the offsets of their changelogs, and their positions."""

    def __init__(self, task: str, specs: Sequence[StoreSpec], *, vectors: bool) -> None:
        self.task: str = task
        self.logged: tuple[str, ...] = tuple(spec.name for spec in specs if spec.logging)
        self.sources: dict[str, str] = {
            spec.name: spec.source_topic for spec in specs if spec.source_topic is not None
        }
        self.positions: Positions = Positions(vectors=vectors)
        self._specs: tuple[StoreSpec, ...] = tuple(specs)
        self._shared: SharedResources | None = None
        self._in_database: frozenset[str] = frozenset(
            spec.name for spec in specs if spec.place is StorePlace.DATABASE
        )
        self._engine: Engine | None = None
        self._stores: dict[str, StoreForTasks] = {}
        self._offsets: dict[str, int] = {}
        # The stores that the transaction being committed has changed, and the task's position then.
        self._changing: frozenset[str] = frozenset()
        self._changed_at: At = {}

    def store(self, name: str) -> Any:
        """Return a store as processors see it, of its kind's class.

        Raises StateError when the task has no store of that name or is not open.
        """
        return shown(self.kept(name))

    def kept(self, name: str) -> StoreForTasks:
        """Return a store as this set keeps it: a custom store in its wrapper.

        Raises StateError as `store` does.
        """
        try:
            return self._stores[name]
        except KeyError:
            raise StateError(
                f"task {self.task} has no store {name!r}; it has "
                f"{', '.join(self._stores) or 'none, it is not open'}"
            ) from None

    @property
    def specs(self) -> tuple[StoreSpec, ...]:
        """The specifications of all stores, in the order in which they were given."""
        return self._specs

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all stores, in the order in which they were given."""
        return tuple(spec.name for spec in self._specs)

    def next_offset(self, store: str) -> int | None:
        """Return the offset to read a store's changelog from; None means its beginning."""
        return self._offsets.get(store)

    @property
    def offset_sum(self) -> int:
        """The progress of the stores: the sum of their changelogs' next offsets."""
        return sum(self._offsets.values())

    @property
    def uncommitted_bytes(self) -> int:
        """The approximate bytes of the puts since the last freeze."""
        total = 0
        for store in self._stores.values():
            total += store.uncommitted_bytes()
        return total

    @property
    def any_changed(self) -> bool:
        """Whether a store has puts since the last freeze."""
        return any(map(self._puts, self._stores))

    def changed(self, store: str) -> bool:
        """Return whether a store has uncommitted puts."""
        return store in self._changing or self._puts(store)

    def _puts(self, store: str) -> bool:
        found = self._stores[store]
        return found.changed if isinstance(found, CustomStore) else found.uncommitted_bytes() > 0

    def begin_processing(self, position: Mapping[tuple[str, int], int]) -> None:
        """Note that all changelogs are read, and processing starts after this position."""
        self.positions.begin(self._stores, self.logged, position)

    def figures(self, *, in_thread: bool) -> Iterator[tuple[StoreSpec, StoreFigures]]:
        """Iterate over the stores with their figures; cheap, and callable at any time.

        While a thread has the task (`in_thread`), leave out custom stores: their code computes
        figures.
        """
        for spec in self._specs:
            custom = spec.kind is StoreKind.CUSTOM
            if in_thread and custom:
                continue
            if (store := self._stores.get(spec.name)) is not None:
                yield (
                    spec,
                    StoreFigures(
                        store.memory_bytes(),
                        store.uncommitted_bytes(),
                        store.unwritten_bytes,
                        store.resident_rows(),
                        None if custom else len(getattr(store, "_iterators", ())),
                    ),
                )

    def memory_bytes(self) -> dict[str, int]:
        """Return the approximate bytes of each store in memory, without its disk part."""
        return {name: store.memory_bytes() for name, store in list(self._stores.items())}

    def statistics(self) -> dict[str, float]:
        """Return the database's statistics, by Kafka Streams' names; empty without a database.

        May be called in any thread.
        """
        engine = self._engine
        return {} if engine is None else engine.statistics()

    @property
    def on_disk(self) -> bool:
        """Whether there is a database."""
        return self._engine is not None

    @property
    def opens_fast(self) -> bool:
        """Whether `open` takes less than a ms: all stores are in memory or a shared database."""
        fast = {StorePlace.MEMORY}
        if self._shared is not None and self._shared.database is not None:
            fast.add(StorePlace.DATABASE)
        return all(spec.place in fast for spec in self._specs)

    @property
    def in_shared(self) -> bool:
        """Whether the rows are in the database of all tasks."""
        engine = self._engine
        return engine is not None and engine.shared

    def end_reading(self, reason: str) -> None:
        """End all queries of these stores. Call it before `close`, in the thread of the queries."""
        for store in self._stores.values():
            store.end_reading(reason)
