"""An engine of one's own for stores: a table of SQLite, as a user may write it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from ks_actors import StoreEngine, StoreEngineContext


class SqliteEngine(StoreEngine):
    """Rows in a file of SQLite, or in its memory where there is no directory."""

    persistent = True

    def __init__(self, context: StoreEngineContext) -> None:
        place = ":memory:" if context.directory is None else str(context.directory / "rows.sqlite")
        self._database = sqlite3.connect(place, isolation_level=None, check_same_thread=False)
        # A lost tail is restored from the changelog, so a write need not wait for the disk.
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")

    def get(self, key: bytes) -> bytes | None:
        found = self._database.execute("SELECT value FROM rows WHERE key = ?", (key,)).fetchone()
        return None if found is None else bytes(found[0])

    def scan(self, low: bytes, high: bytes, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        order = "DESC" if reverse else "ASC"
        found = self._database.execute(f"SELECT key, value FROM rows WHERE key >= ? AND key < ? ORDER BY key {order}", (low, high))  # noqa: S608 - a constant
        # All of it now: later writes do not change it.
        return iter(found.fetchall())

    def write(self, rows: Sequence[tuple[bytes, bytes | None]], ranges: Sequence[tuple[bytes, bytes]]) -> None:
        with self._database:
            self._database.execute("BEGIN")
            self._database.executemany("DELETE FROM rows WHERE key >= ? AND key < ?", ranges)
            self._database.executemany("DELETE FROM rows WHERE key = ?", [(key,) for key, value in rows if value is None])
            self._database.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", [(key, value) for key, value in rows if value is not None])

    def approximate_num_entries(self) -> int:
        return int(self._database.execute("SELECT count(*) FROM rows").fetchone()[0])

    def close(self) -> None:
        self._database.close()
