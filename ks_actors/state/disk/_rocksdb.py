"""The RocksDB engine of the stores, and the resources that all databases of an app share."""

from __future__ import annotations

import time
from copy import copy
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import rocksdict

from ks_actors._errors import TaskCorrupted
from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.state.core import MemoryBudget
from ks_actors.state.disk._hard_link_copy import link_database
from ks_actors.state.disk._rocksdb_errors import is_stall, refuse
from ks_actors.state.disk._statistics import counted, gauges
from ks_actors.system import check_fork

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from pathlib import Path

    from ks_actors.state.core import EngineRow

SMALLEST_MEMTABLE: Final = 64 << 10
LARGEST_MEMTABLE: Final = 16 << 20
MUCH: Final = 1 << 20
"""After so many written bytes, closing a database leaves memory worth returning to the OS."""

# Tables waiting for a merge; at 20 RocksDB stalls writers.
MANY_TABLES: Final = 12
# Tables of the level that follows level 0, which RocksDB keeps below 256 MiB, that need no merge.
FEW_TABLES: Final = 16
STALL_S: Final = 30.0
"""The longest wait (s) of a write for RocksDB's background work."""
STALL_STEP_S: Final = 0.005
TABLE_ROWS: Final = 16_000
MOST_TABLES: Final = 128


ALL_TASKS: Final = "all tasks"
"""The name of a shared database in errors, in place of the task's."""

BEHIND: Final = 1.0
"""Puts wait above this fraction of the allowed replay after a crash."""


class SharedResources:
    """The resources that all stores of one app share.

    They are a block cache, which includes RocksDB's write buffers, and a budget for Python's
    memory.

    `resident_bytes` is about the memory of committed state of all tasks together: rows cached for
    fast reads, and rows still to be written. Above this limit, the largest tasks write and evict
    rows. A changelog's tail is its records after the offset on disk. A task also writes when its
    tails exceed `tail_bytes`, or its share of `tail_records`. So after a crash about `tail_records`
    records of all tasks together are replayed. `database` is the database that tasks share; without
    one, each task has its own.
    """

    def __init__(
        self,
        *,
        block_cache_bytes: int = 64 << 20,
        write_buffer_bytes: int = 64 << 20,
        memtable_bytes: int = 16 << 20,
        resident_bytes: int = 256 << 20,
        tail_records: int = 600_000,
        tail_bytes: int = 64 << 20,
        statistics: bool = False,
    ) -> None:
        self.memory: MemoryBudget = MemoryBudget(resident_bytes)
        self.tail_records: int = tail_records
        self.tail_bytes: int = tail_bytes
        self.statistics: bool = statistics
        self.database: Any = None  # a SharedDatabase, whose module imports this one
        self._memtable_bytes: int = memtable_bytes
        # Not the LRU cache: it has 64 shards, and the filter of a million keys does not fit into a
        # shard of 1 MiB. So each get would read the filter again, which takes 95 µs.
        self._cache: Any = rocksdict.Cache.new_hyper_clock_cache(block_cache_bytes, 8 << 10)
        self._buffers: Any = rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(
            write_buffer_bytes, False, self._cache
        )

    @classmethod
    def within(cls, memory_bytes: int, *, statistics: bool = False) -> SharedResources:
        """Return resources that fit into `memory_bytes`.

        A quarter is RocksDB's block cache, half of which serves write buffers. A sixteenth is
        reserved for uncounted memory: open tables and fragmentation. The rest is for Python.
        """
        cache = memory_bytes // 4
        return cls(
            block_cache_bytes=cache,
            write_buffer_bytes=cache // 2,
            memtable_bytes=max(SMALLEST_MEMTABLE, min(LARGEST_MEMTABLE, cache // 8)),
            resident_bytes=memory_bytes - cache - memory_bytes // 16,
            statistics=statistics,
        )

    def options(self) -> Any:
        """Return the options of a new database."""
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(self._memtable_bytes)
        options.set_max_write_buffer_number(3)
        # the default, 1 MiB, makes many small stores cost three times the budget
        options.set_arena_block_size(64 << 10)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        # All databases of the process share these threads: more would take the app's processors.
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(2)
        # All tables stay open: opening one again reads its index and filter.
        options.set_max_open_files(-1)
        # A task writes from one thread at a time, so RocksDB need not guard against others.
        options.set_allow_concurrent_memtable_write(False)
        options.set_enable_write_thread_adaptive_yield(False)
        options.set_write_buffer_manager(self._buffers)
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(self._cache)
        table.set_bloom_filter(10, False)
        # Indexes and filters count as part of the cache: outside of the cache, their memory grows
        # with the number of tables.
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        table.set_format_version(5)
        options.set_block_based_table_factory(table)
        if self.statistics:
            options.enable_statistics()
        return options

    def part_of_tail(self, records: int) -> float:
        """Return a task's number of records as a fraction of its allowed replay after a crash."""
        return records * max(1, self.memory.tasks) / max(1, self.tail_records)

    def apart(self) -> SharedResources:
        """Return the same resources for a task that does not use the shared database."""
        found = copy(self)
        found.database = None
        return found

    def close(self) -> None:
        """Close the shared database, and release the memory. Blocks. Raises StateError.

        Call it once all tasks are closed.
        """
        database, self.database = self.database, None
        self._cache = self._buffers = None
        if database is not None:
            database.close()


def _write_options(*, log: bool) -> Any:
    options: Any = rocksdict.WriteOptions()  # the stub declares methods as properties
    options.disable_wal = not log
    options.memtable_insert_hint_per_batch = True
    options.no_slowdown = True  # a write that would wait fails instead: see `_write_behind`
    return options


def _batch(
    rows: Iterable[EngineRow], ranges: Sequence[tuple[bytes, bytes]], prefix: bytes = b""
) -> Any:
    """Return a write batch that deletes `ranges` and then applies `rows`; use it only once.

    All keys get the `prefix`.
    """
    batch = rocksdict.WriteBatch(raw_mode=True)
    for low, high in ranges:
        batch.delete_range(prefix + low, prefix + high)
    for key, value in rows:
        if value is None:
            del batch[prefix + key]
        else:
            batch[prefix + key] = value
    return batch


def _check_beginning(directory: Path) -> None:
    """Raise FileNotFoundError for a database without its CURRENT file.

    RocksDB would start a new database in its place.
    """
    if (directory / "CURRENT").exists():
        return
    if any(directory.glob("*.sst")) or any(log.stat().st_size for log in directory.glob("*.log")):
        raise FileNotFoundError(
            f"No such file: {directory / 'CURRENT'}, though {directory} has data of a database"
        )


class RocksEngine:
    """One RocksDB database.

    Open and close block. Close it only when no other thread uses it. Opening stops all threads
    while files are written and synced; a `read_only` database writes nothing. Background flushes
    begin at most every `flush_s` seconds. RocksDB only merges tables whose keys overlap, so while
    there are many tables, flushed ones get the rows `ends`, with the first and the last key. After
    an error it is `failed`: RocksDB may refuse all writes until it is opened again.

    Everything is in one column family, so later writes are never on disk without earlier ones.
    """

    shared: bool = False
    _prefix: bytes = b""

    def __init__(
        self,
        task: str,
        directory: Path,
        shared: SharedResources,
        *,
        read_only: bool = False,
        flush_s: float = 0.0,
        ends: Sequence[EngineRow] = (),
    ) -> None:
        self._task: str = task
        self._directory: Path = directory
        self._flush_s: float = flush_s
        self._ends: Sequence[EngineRow] = ends
        self._flushed_at: float = time.monotonic() - flush_s
        self.damage: str = ""
        self.failed: bool = False
        check_fork()
        try:
            options = shared.options()
            if read_only:
                self._database: Any = rocksdict.Rdict(
                    str(directory), options, access_type=rocksdict.AccessType.read_only()
                )
            else:
                directory.mkdir(parents=True, exist_ok=True)
                _check_beginning(directory)
                self._database = rocksdict.Rdict(str(directory), options)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse(error)
        self._database.set_write_options(_write_options(log=False))
        self._logged: Any = _write_options(log=True)
        # The database itself looks up the column family by name on each access.
        self._data: Any = self._database.get_column_family("default")
        self._get: Any = self._data.get
        self._counting: Any = options if shared.statistics else None
        self._bytes: int = 0  # written bytes
        self._owed: bool = False

    def get(self, key: bytes) -> bytes | None:
        """Return a value; raises TaskCorrupted when it cannot be read."""
        try:
            value: bytes | None = self._get(key)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse(error)
        return value

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """Return the values of many keys; raises TaskCorrupted when one cannot be read."""
        try:
            return list(map(self._get, keys))  # as fast as RocksDB's own
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse(error)

    def scan(
        self, low: bytes, high: bytes, *, reverse: bool = False
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Iterate over a snapshot from `low` to before `high`, in byte order or in reverse."""
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(high)
        rows = self._data.iter(options)
        if reverse:
            rows.seek_to_last()
        else:
            rows.seek(low)
        return self._rows(rows, low, reverse=reverse, keep=(options, high))

    def _rows(
        self, rows: Any, low: bytes, *, reverse: bool, keep: object
    ) -> Generator[tuple[bytes, bytes], None, None]:
        # RocksDB reads the upper bound from Python's memory: `keep` holds it while the iterator
        # lives. Moving an invalid iterator is fatal.
        valid, key, value, move = (
            rows.valid,
            rows.key,
            rows.value,
            rows.prev if reverse else rows.next,
        )
        while valid():
            found = key()
            if reverse and found < low:
                break
            yield found, value()
            move()
        try:
            rows.status()  # an iterator ends silently at an unreadable block
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            # An iterator keeps its database locked, and the error's traceback keeps this frame.
            del rows, valid, key, value, move
            self._refuse(error)
        del keep

    def write(
        self,
        rows: Iterable[EngineRow],
        ranges: Sequence[tuple[bytes, bytes]] = (),
        *,
        durable: bool = False,
    ) -> None:
        """Delete the `ranges`, then write the rows, all or nothing.

        Blocks while RocksDB's background work is behind, for `STALL_S` at most. Raises StateFull,
        and StateError.
        """
        rows = list(rows)
        how = (self._logged,) if durable else ()
        try:
            batch = _batch(rows, ranges, self._prefix)
            self._bytes += batch.size_in_bytes()
            # Other writes skip RocksDB's log: the changelog restores rows lost in a crash.
            self._database.write(batch, *how)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            if not is_stall(error):
                self._refuse(error)
            self._write_behind(rows, ranges, how)

    def _write_behind(
        self, rows: list[EngineRow], ranges: Sequence[tuple[bytes, bytes]], how: tuple[Any, ...]
    ) -> None:
        """Write as soon as RocksDB's background work has made room in memory.

        RocksDB's own wait would not end while the disk is full.
        """
        end = time.monotonic() + STALL_S
        while True:
            time.sleep(STALL_STEP_S)
            try:
                if self._data.property_int_value("rocksdb.background-errors"):
                    self._database.flush(wait=True)  # raises the background error if it persists
                self._database.write(_batch(rows, ranges, self._prefix), *how)
            except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
                if not is_stall(error) or time.monotonic() > end:
                    self._refuse(error)
            else:
                return

    def flush(self, *, wait: bool) -> None:
        """Flush all writes to disk.

        With `wait` False, do it in the background, and put it off while the background is busy.
        """
        self._owed = not wait and (self._rests() or self._lags())
        if self._owed:
            return
        self._flushed_at = time.monotonic()
        try:
            if self._ends and self._tables_at(self._base_level()) > FEW_TABLES:
                self._database.write(_batch(self._ends, ()))
            self._database.flush(wait=wait)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._owed = is_stall(error) and not wait
            if not self._owed:
                self._refuse(error)

    @property
    def owes(self) -> bool:
        """Whether a `flush` that was put off can run now."""
        return self._owed and not self._rests() and not self._lags()

    def _rests(self) -> bool:
        """Return whether the last flush was less than `flush_s` ago."""
        return time.monotonic() - self._flushed_at < self._flush_s

    def _lags(self) -> bool:
        """Return whether starting a flush may wait for other flushes or merges.

        After a background error return False, so that the flush raises it.
        """
        asked = self._data.property_int_value
        # RocksDB would make the caller wait for these, and the caller is the app's loop.
        waiting = asked("rocksdb.num-immutable-mem-table") or self._tables_at(0) >= MANY_TABLES
        return bool(waiting and not asked("rocksdb.background-errors"))

    def _base_level(self) -> int:
        return int(self._data.property_int_value("rocksdb.base-level") or 1)

    def _tables_at(self, level: int) -> int:
        return int(self._data.property_value(f"rocksdb.num-files-at-level{level}") or 0)

    def checkpoint(self, directory: Path) -> None:
        """Flush all writes, and link the files into a new directory as a separate database.

        Blocks.
        """
        self.flush(wait=True)
        try:
            link_database(self._database, self._directory, directory)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse_use(error)

    def statistics(self) -> dict[str, float]:
        """Return RocksDB's statistics; empty while it is being closed.

        May be called in any thread.
        """
        data, counting = self._data, self._counting
        if data is None:
            return {}
        try:
            figures = gauges(data)
        except (RuntimeError, rocksdict.DbClosedError):  # closed meanwhile by another thread
            return {}
        return figures if counting is None else figures | counted(counting.get_statistics())

    def ingest(self, tables: Sequence[Path]) -> None:
        """Ingest sorted tables, which must not overlap with existing rows. Blocks.

        The files are moved.
        """
        if not tables:
            return
        options = rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        try:
            self._database.ingest_external_file([str(table) for table in tables], options)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse_use(error)

    def compact(self, low: bytes, high: bytes) -> None:
        """Merge the tables with keys from `low` to `high`, so that deleted rows free their disk.

        Blocks; other threads run. Raises StateError.
        """
        options = rocksdict.CompactOptions()
        options.set_exclusive_manual_compaction(False)  # RocksDB's own merges go on
        try:
            self._data.compact_range(low, high, options)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse(error)

    def estimated_keys(self) -> int:
        """Return the approximate number of keys."""
        return int(self._data.property_int_value("rocksdb.estimate-num-keys") or 0)

    def close(self) -> None:
        """Flush all writes and release the directory; a closed database stays as it is."""
        if self._database is None:
            return
        self._get = None
        try:
            self._data.close()
            self._database.close()
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse(error)
        finally:
            self._data = self._database = None
        if self._bytes >= MUCH and HAS_KERNEL:
            # Otherwise each thread that closes a database keeps that memory for its next one.
            _kernel.trim_memory()

    def _refuse(self, error: Exception) -> NoReturn:
        self.failed = True
        try:
            self._refuse_use(error)
        except TaskCorrupted as damaged:
            self.damage = self.damage or str(damaged)
            raise

    def _refuse_use(self, error: Exception) -> NoReturn:
        """Raise the error for files outside of the database, which may be missing."""
        whose = "the state of" if self._task == ALL_TASKS else "task"
        what = "" if self._task == ALL_TASKS else ": the state"
        refuse(error, f"{whose} {self._task}{what} in {self._directory}")


@final
class SortedTables:
    """A writer of sorted tables, which a database ingests as they are.

    Rows must come in key order. Ending a table stops all threads for half a microsecond per row, so
    tables are small. There are at most `MOST_TABLES`, because each is an open file.
    """

    def __init__(self, task: str, directory: Path, shared: SharedResources) -> None:
        self._task: str = task
        self._directory: Path = directory
        self._shared: SharedResources = shared
        self._writer: Any = None
        self._rows: int = 0
        self.paths: list[Path] = []

    def write(self, rows: Sequence[EngineRow]) -> bool:
        """Write rows without deletions; return whether there was room.

        Raises StateError and StateFull.
        """
        if self._writer is None and len(self.paths) >= MOST_TABLES:
            return False
        try:
            if self._writer is None:
                self._directory.mkdir(parents=True, exist_ok=True)
                self.paths.append(self._directory / f"{len(self.paths):06d}.sst")
                self._writer = rocksdict.SstFileWriter(self._shared.options())
                self._writer.open(str(self.paths[-1]))
            writer = self._writer
            for key, value in rows:
                writer[key] = value
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            refuse(error, f"task {self._task}: the state in {self._directory}")
        self._rows += len(rows)
        if self._rows >= TABLE_ROWS:
            self.end()
        return True

    def end(self) -> None:
        """End the current table; the next row may have any key."""
        writer, self._writer, self._rows = self._writer, None, 0
        if writer is not None:
            try:
                writer.finish()
            except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
                refuse(error, f"task {self._task}: the state in {self._directory}")
