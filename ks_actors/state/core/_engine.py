"""The contract of the storage below the memory of stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from pathlib import Path

EngineRow = tuple[bytes, bytes | None]
"""A key and its value; None deletes."""


class Engine(Protocol):
    """The interface of the storage below memory: a sorted map of bytes.

    Nothing is durable before a `flush` completes. `damage` is the error that has shown that the
    data is unreadable; it is empty at first. A `shared` engine is a part of a database of several
    tasks: `close` leaves its rows in memory, and the database is flushed when the last one closes.
    """

    damage: str

    @property
    def shared(self) -> bool:
        """Whether other tasks use the same database."""
        ...

    def get(self, key: bytes) -> bytes | None:
        """Return a value; raises TaskCorrupted when it cannot be read."""
        ...

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """Return the values of many keys; raises TaskCorrupted when one cannot be read."""
        ...

    def scan(
        self, low: bytes, high: bytes, *, reverse: bool = False
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Iterate over a snapshot from `low` to before `high`, in byte order or in reverse."""
        ...

    def write(
        self,
        rows: Iterable[EngineRow],
        ranges: Sequence[tuple[bytes, bytes]] = (),
        *,
        durable: bool = False,
    ) -> None:
        """Delete the `ranges` (their ends are exclusive), then write the rows, all or nothing.

        `durable` rows survive the process at once. Raises StateFull.
        """
        ...

    def flush(self, *, wait: bool) -> None:
        """Flush all writes to disk.

        With `wait` False, do it in the background, and put it off while the background is busy.
        """
        ...

    @property
    def owes(self) -> bool:
        """Whether a `flush` that was put off can run now."""
        ...

    def statistics(self) -> dict[str, float]:
        """Return the engine's statistics by name. May be called in any thread."""
        ...

    def estimated_keys(self) -> int:
        """Return the approximate number of keys."""
        ...

    def checkpoint(self, directory: Path) -> None:
        """Flush all writes, and make the new `directory` an immutable copy."""
        ...

    def close(self) -> None:
        """Flush all writes and release the directory."""
        ...
