"""The engines of one task that the user supplies: one for each store with an engine of its own."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, final

from ks_actors.state.custom._engine import SuppliedEngine
from ks_actors.state.disk import ENGINES
from ks_actors.topology import StorePlace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ks_actors.state.core import Engine, StoreForTasks
    from ks_actors.topology import StoreSpec


@final
class SuppliedEngines:
    """The open engines by store. `forgetful` has the stores on engines that are not persistent.

    `directory` is the task's; each engine has a subdirectory.
    """

    def __init__(self, task: str, specs: Sequence[StoreSpec], directory: Path | None) -> None:
        self.by_store: dict[str, SuppliedEngine] = {}
        self.forgetful: frozenset[str] = frozenset()
        self._task: str = task
        self._specs: list[StoreSpec] = [spec for spec in specs if spec.place is StorePlace.ENGINE]
        self._directory: Path | None = directory

    @property
    def wanted(self) -> bool:
        """Whether any store has an engine of its own."""
        return bool(self._specs)

    def open(self) -> None:
        """Open all engines. Blocks. After an error, call `close`. Raises as an engine does."""
        for spec in self._specs:
            place = None if self._directory is None else self._directory / ENGINES / spec.name
            self.by_store[spec.name] = SuppliedEngine(self._task, spec, place)
        self.forgetful = frozenset(
            name for name, engine in self.by_store.items() if not engine.persistent
        )

    def close(self) -> None:
        """Close all engines, even when one fails. Blocks. Raises the last error."""
        engines, self.by_store = self.by_store, {}
        with ExitStack() as closing:
            for engine in engines.values():
                closing.callback(engine.close)


def by_engine(
    engines: Iterable[Engine], stores: Sequence[StoreForTasks]
) -> list[tuple[Engine, list[StoreForTasks]]]:
    """Return each engine that has any of the stores, with its stores."""
    found = [(engine, [store for store in stores if store.engine is engine]) for engine in engines]
    return [(engine, own) for engine, own in found if own]
