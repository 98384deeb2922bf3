"""RocksDB below the stores: one database per task, resources that all of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, final

import rocksdict

from ks_actors.kernel import kernel as _kernel
from ks_actors.state.core import MemoryBudget
from ks_actors.state.disk._hard_link_copy import link_database
from ks_actors.state.disk._rocksdb_errors import refuse
from ks_actors.state.disk._statistics import counted, gauges

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from pathlib import Path

Row = tuple[bytes, bytes | None]
"""A key and its value; no value deletes."""

SMALLEST_MEMTABLE: Final = 64 << 10
LARGEST_MEMTABLE: Final = 16 << 20
MUCH: Final = 1 << 20
"""Bytes that were written to a database, from which on closing it leaves memory that is worth to be given back."""

MANY_TABLES: Final = 12  # that are still to be merged: at 20 RocksDB has writers wait
TABLE_ROWS: Final = 16_000
MOST_TABLES: Final = 128


class Engine(Protocol):
    """What stores need of the place below memory: a sorted map of bytes. Nothing is durable before a `flush` has come to its end."""

    def get(self, key: bytes) -> bytes | None:
        """Return a value; raises TaskCorrupted when it cannot be read."""
        ...

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """Return the values of many keys; raises TaskCorrupted when one cannot be read."""
        ...

    def scan(self, low: bytes, high: bytes, *, reverse: bool = False) -> Generator[tuple[bytes, bytes], None, None]:
        """Iterate over `low` to before `high` as they are now, in byte order or against it."""
        ...

    def write(self, rows: Iterable[Row], ranges: Sequence[tuple[bytes, bytes]] = (), *, durable: bool = False) -> None:
        """Delete ranges (the end does not belong to them), then write rows, all or nothing; raises StateFull.

        `durable` rows survive the process at once.
        """
        ...

    def flush(self, *, wait: bool) -> None:
        """Bring to disk what was written; with `wait` False in the background, and later than now while that has enough to do."""
        ...

    @property
    def owes(self) -> bool:
        """Whether `flush` has put something off that it could do now."""
        ...

    def statistics(self) -> dict[str, float]:
        """Return what it tells of itself by name. May be called in any thread."""
        ...

    def estimated_keys(self) -> int:
        """Return about how many keys there are."""
        ...

    def checkpoint(self, directory: Path) -> None:
        """Bring to disk what was written, and make `directory`, which there is none of yet, a copy that does not change any more."""
        ...

    def close(self) -> None:
        """Bring to disk what was written, and let go of the directory."""
        ...


BEHIND: Final = 1.0
"""Parts of what may be replayed after a crash, from which on whoever adds to it has to wait."""


class SharedResources:
    """What all stores of one app share: a block cache with RocksDB's write buffers in it, and a budget for what is in Python's memory.

    `resident_bytes` is about how much all tasks together may keep of their committed state in memory: what is read fast, and what is still to be
    written. When it is more, those that have most write and let go. A task writes to disk too when the changelogs' tails behind the offsets on disk
    pass its part of `tail_records`, or `tail_bytes`: about `tail_records` of all tasks together are replayed after a crash.
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
        self._memtable_bytes: int = memtable_bytes
        # The LRU cache has 64 shards, and a filter of a million keys does not fit into 1 MiB: it would be read again for each get, 95 µs.
        self._cache: Any = rocksdict.Cache.new_hyper_clock_cache(block_cache_bytes, 8 << 10)
        self._buffers: Any = rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(write_buffer_bytes, False, self._cache)

    @classmethod
    def within(cls, memory_bytes: int, *, statistics: bool = False) -> SharedResources:
        """Return what keeps to so many bytes: a quarter is RocksDB's block cache, half of that for write buffers, the rest is for Python.

        But for a sixteenth, for what nobody counts: tables that are open, memory that is free in pieces.
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
        """Return the options of one more database."""
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(self._memtable_bytes)
        options.set_max_write_buffer_number(3)
        options.set_arena_block_size(64 << 10)  # the default, 1 MiB, makes many small stores cost three times the budget
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(2)
        options.set_max_open_files(-1)
        options.set_allow_concurrent_memtable_write(False)
        options.set_enable_write_thread_adaptive_yield(False)
        options.set_write_buffer_manager(self._buffers)
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(self._cache)
        table.set_bloom_filter(10, False)
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        table.set_format_version(5)
        options.set_block_based_table_factory(table)
        if self.statistics:
            options.enable_statistics()
        return options

    def part_of_tail(self, records: int) -> float:
        """Return how much so many records of a task are of those that may be replayed of it after a crash."""
        return records * max(1, self.memory.tasks) / max(1, self.tail_records)

    def close(self) -> None:
        """Let go of the memory, once every database is closed."""
        self._cache = self._buffers = None


def _write_options(*, log: bool) -> Any:
    options: Any = rocksdict.WriteOptions()  # its stub takes properties for methods
    options.disable_wal = not log
    options.memtable_insert_hint_per_batch = True
    return options


def _check_beginning(directory: Path) -> None:
    """Raise FileNotFoundError when a database has lost the file that it begins with: RocksDB would begin a new one in its place."""
    if (directory / "CURRENT").exists():
        return
    if any(directory.glob("*.sst")) or any(log.stat().st_size for log in directory.glob("*.log")):
        raise FileNotFoundError(f"No such file: {directory / 'CURRENT'}, beside data of the database")


@final
class RocksEngine:
    """One RocksDB. Open and close block; nothing may be in use in another thread when it is closed.

    To open one stops all threads for as long as it takes: some files are written and brought to disk. What is only to be read is opened `read_only`,
    which writes nothing.

    Everything is in one column family, so that what was written last is never on disk without what was written before.
    """

    def __init__(self, task: str, directory: Path, shared: SharedResources, *, read_only: bool = False) -> None:
        self._task: str = task
        self._directory: Path = directory
        try:
            options = shared.options()
            if read_only:
                self._database: Any = rocksdict.Rdict(str(directory), options, access_type=rocksdict.AccessType.read_only())
            else:
                directory.mkdir(parents=True, exist_ok=True)
                _check_beginning(directory)
                self._database = rocksdict.Rdict(str(directory), options)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse(error)
        self._database.set_write_options(_write_options(log=False))
        self._logged: Any = _write_options(log=True)
        self._data: Any = self._database.get_column_family("default")  # asking the database itself looks the family up by name each time
        self._get: Any = self._data.get
        self._counting: Any = options if shared.statistics else None
        self._bytes: int = 0  # that were written
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
            return list(map(self._get, keys))  # RocksDB's own takes as long
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse(error)

    def scan(self, low: bytes, high: bytes, *, reverse: bool = False) -> Generator[tuple[bytes, bytes], None, None]:
        """Iterate over `low` to before `high` as they are now, in byte order or against it."""
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(high)
        rows = self._data.iter(options)
        if reverse:
            rows.seek_to_last()
        else:
            rows.seek(low)
        return self._rows(rows, low, reverse=reverse, keep=(options, high))

    def _rows(self, rows: Any, low: bytes, *, reverse: bool, keep: object) -> Generator[tuple[bytes, bytes], None, None]:
        # RocksDB reads the upper bound where Python has it: `keep` holds it for as long as the iterator lives. To move an invalid one is fatal.
        valid, key, value, move = rows.valid, rows.key, rows.value, rows.prev if reverse else rows.next
        while valid():
            found = key()
            if reverse and found < low:
                break
            yield found, value()
            move()
        try:
            rows.status()  # an iterator ends silently at a block that cannot be read
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse(error)
        del keep

    def write(self, rows: Iterable[Row], ranges: Sequence[tuple[bytes, bytes]] = (), *, durable: bool = False) -> None:
        """Delete ranges, then write rows, all or nothing; raises StateFull."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for low, high in ranges:
            batch.delete_range(low, high)
        for key, value in rows:
            if value is None:
                del batch[key]
            else:
                batch[key] = value
        self._bytes += batch.size_in_bytes()
        try:
            if durable:
                self._database.write(batch, self._logged)
            else:
                self._database.write(batch)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse(error)

    def flush(self, *, wait: bool) -> None:
        """Bring to disk what was written; with `wait` False in the background, and later than now while that has enough to do."""
        self._owed = not wait and self._lags()
        if self._owed:
            return
        try:
            self._database.flush(wait=wait)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse(error)

    @property
    def owes(self) -> bool:
        """Whether `flush` has put something off that it could do now."""
        return self._owed and not self._lags()

    def _lags(self) -> bool:
        """Return whether to begin a flush could mean to wait until RocksDB has ended others, or merged tables; after an error it is to be told."""
        asked = self._data.property_int_value
        waiting = asked("rocksdb.num-immutable-mem-table") or int(self._data.property_value("rocksdb.num-files-at-level0") or 0) >= MANY_TABLES
        return bool(waiting and not asked("rocksdb.background-errors"))

    def checkpoint(self, directory: Path) -> None:
        """Bring to disk what was written, and link all of it into a new directory, which is a database of its own. Blocks."""
        self.flush(wait=True)
        try:
            link_database(self._database, self._directory, directory)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse(error)

    def statistics(self) -> dict[str, float]:
        """Return what RocksDB tells of itself, nothing when it is being closed. May be called in any thread."""
        data, counting = self._data, self._counting
        if data is None:
            return {}
        try:
            figures = gauges(data)
        except (RuntimeError, rocksdict.DbClosedError):  # whoever closes it has it for himself
            return {}
        return figures if counting is None else figures | counted(counting.get_statistics())

    def ingest(self, tables: Sequence[Path]) -> None:
        """Take in sorted tables, which overlap with nothing that is there; the files are gone then. Blocks."""
        if not tables:
            return
        options = rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        try:
            self._database.ingest_external_file([str(table) for table in tables], options)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse(error)

    def estimated_keys(self) -> int:
        """Return about how many keys there are."""
        return int(self._data.property_int_value("rocksdb.estimate-num-keys") or 0)

    def close(self) -> None:
        """Bring to disk what was written, and let go of the directory."""
        self._get = None
        try:
            self._data.close()
            self._database.close()
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
            self._refuse(error)
        finally:
            self._data = self._database = None
        if self._bytes >= MUCH and _kernel is not None:
            _kernel.trim_memory()  # each thread that closes one would keep as much for the next one that it closes

    def _refuse(self, error: Exception) -> NoReturn:
        refuse(error, f"task {self._task}: the state in {self._directory}")


@final
class SortedTables:
    """Write rows that come in the order of their keys into sorted tables, which a database takes in as they are.

    To end a table stops all threads, for half a microsecond per row: so tables are small, and no more than `MOST_TABLES`, as each is an open file.
    """

    def __init__(self, task: str, directory: Path, shared: SharedResources) -> None:
        self._task: str = task
        self._directory: Path = directory
        self._shared: SharedResources = shared
        self._writer: Any = None
        self._rows: int = 0
        self.paths: list[Path] = []

    def write(self, rows: Sequence[Row]) -> bool:
        """Write rows that are no deletions; return whether there was room. Raises StateError, StateFull."""
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
        """End the table that is being written; the next row need not be behind its rows."""
        writer, self._writer, self._rows = self._writer, None, 0
        if writer is not None:
            try:
                writer.finish()
            except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more precise
                refuse(error, f"task {self._task}: the state in {self._directory}")
