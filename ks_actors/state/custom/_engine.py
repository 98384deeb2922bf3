"""The engine of one store that the user supplies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, final

from ks_actors._errors import StateError, TaskCorrupted
from ks_actors.state.disk import raise_if_full
from ks_actors.topology import StoreEngine, StoreEngineContext

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from pathlib import Path

    from ks_actors.state.core import EngineRow
    from ks_actors.topology import StoreSpec


@final
class SuppliedEngine:
    """The user's engine behind the contract of `Engine`, with errors that name the store.

    `directory` is the engine's own, and is made here. Raises StateError when the supplier fails or
    returns no engine. Passes on the supplier's StateFull, StateLocked and TaskCorrupted.
    """

    owes: bool = False
    shared: bool = False
    damage: str = ""

    def __init__(self, task: str, spec: StoreSpec, directory: Path | None) -> None:
        self._name: str = f"store {spec.name} of task {task}"
        self._engine: StoreEngine | None = None
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        supplier: Any = spec.type
        try:
            made = supplier(StoreEngineContext(spec.name, task, directory))
        except Exception as error:  # noqa: BLE001 - the user's code
            self._fail("be opened", error)
        if not isinstance(made, StoreEngine):
            raise StateError(
                f"{self._name}: its store_type made {made!r:.100}, which is not a StoreEngine"
            )
        self._engine = made

    @property
    def persistent(self) -> bool:
        """Whether flushed rows are there when the engine is opened again."""
        return self._open.persistent

    @property
    def _open(self) -> StoreEngine:
        if self._engine is None:
            raise StateError(f"{self._name}: its engine is closed")
        return self._engine

    def get(self, key: bytes) -> bytes | None:
        """Return a value. Raises TaskCorrupted when the engine does, and StateError."""
        try:
            value = self._open.get(key)
        except Exception as error:  # noqa: BLE001 - the user's code
            self._fail("be read", error)
        return self._checked(value)

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """Return the values of many keys. Raises as `get` does."""
        asked = list(keys)
        try:
            values = self._open.get_many(asked)
        except Exception as error:  # noqa: BLE001 - the user's code
            self._fail("be read", error)
        if len(values) != len(asked):
            raise StateError(
                f"{self._name}: {type(self._open).__qualname__}.get_many returned {len(values)} "
                f"values for {len(asked)} keys"
            )
        return [self._checked(value) for value in values]

    def _checked(self, value: Any) -> bytes | None:
        if value is None or type(value) is bytes:
            return value
        raise StateError(
            f"{self._name}: {type(self._open).__qualname__} returned {value!r:.100} as a value: "
            "return bytes or None"
        )

    def scan(
        self, low: bytes, high: bytes, *, reverse: bool = False
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Iterate over a snapshot from `low` to before `high`. Raises as `get` does."""
        # The snapshot is taken now, not at the first row.
        try:
            rows = iter(self._open.scan(low, high, reverse=reverse))
        except Exception as error:  # noqa: BLE001 - the user's code
            self._fail("be read", error)
        return self._rows(rows)

    def _rows(self, rows: Any) -> Generator[tuple[bytes, bytes], None, None]:
        try:
            while True:
                try:
                    row = next(rows)
                except StopIteration:
                    return
                except Exception as error:  # noqa: BLE001 - the user's code
                    self._fail("be read", error)
                yield row
        finally:
            if hasattr(rows, "close"):
                rows.close()

    def write(
        self,
        rows: Iterable[EngineRow],
        ranges: Sequence[tuple[bytes, bytes]] = (),
        *,
        durable: bool = False,
    ) -> None:
        """Delete the `ranges`, then write the rows, all or nothing.

        `durable` flushes at once. Raises StateFull, TaskCorrupted and StateError.
        """
        try:
            self._open.write(list(rows), list(ranges))
            if durable:
                self._open.flush()
        except Exception as error:  # noqa: BLE001 - the user's code
            self._fail("be written", error)

    def flush(self, *, wait: bool) -> None:  # noqa: ARG002 - the engine's own flush waits
        """Flush all writes. Raises as `write` does."""
        try:
            self._open.flush()
        except Exception as error:  # noqa: BLE001 - the user's code
            self._fail("be flushed", error)

    def statistics(self) -> dict[str, float]:
        """Return nothing: the engine is the user's."""
        return {}

    def estimated_keys(self) -> int:
        """Return the approximate number of keys. Raises as `get` does."""
        try:
            return int(self._open.approximate_num_entries())
        except Exception as error:  # noqa: BLE001 - the user's code
            self._fail("be read", error)

    def checkpoint(self, directory: Path) -> NoReturn:
        """Raise StateError: snapshots leave out the store."""
        raise StateError(f"{self._name}: its engine cannot be copied to {directory}")

    def close(self) -> None:
        """Close the engine; later calls raise StateError. Raises as `write` does."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        try:
            engine.close()
        except Exception as error:  # noqa: BLE001 - the user's code
            self._fail("be closed", error)

    def _fail(self, action: str, error: Exception) -> NoReturn:
        if isinstance(error, TaskCorrupted):
            self.damage = self.damage or str(error)
        if isinstance(error, StateError):
            raise error
        raise_if_full(error, self._name)
        raise StateError(
            f"{self._name}: its engine cannot {action}: {type(error).__name__}: {error}"
        ) from error
