"""RocksDB for a log: atomic writes, which succeed again once a full disk has room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
)

from ks_actors._errors import LogCorrupted, LogError, StorageFull
from ks_actors.lifecycle import component_log
from ks_actors.system import check_fork

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

UndoLog: TypeAlias = "list[tuple[bytes, bytes | None]]"
"""Keys with their new values, None to delete; each key once."""

_logger = component_log(__name__)

_WRITE_BUFFER: Final = 16 << 20
_BLOCK_CACHE: Final = 8 << 20
_PROBE_STEP: Final = 1 << 20
_CHUNK: Final = 1000
_OPENINGS: Final = 5
_FULL: Final = ("No space left", "File too large", "quota exceeded", "Disk quota")


@final
class Database:
    """One RocksDB. A failed write changes nothing.

    Until there is room, each later write fails as well, without changes. After a failed write,
    RocksDB itself accepts no more writes, and its write-ahead log may contain the failed write. So
    the next write reopens the database and undoes the possible changes of the failed write.

    With `read_only` the database takes no lock and changes nothing: it has the data as of its
    opening, and may be open at the same time as the writer's.
    """

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self._directory: Path = directory
        self._read_only: bool = read_only
        self._rdict: Rdict | None = None
        # The old values under the keys of a failed write.
        self._undo: UndoLog | None = None

    def open(self) -> None:
        """Take the lock, and make the directory if necessary.

        Raises LogError, StorageFull, LogCorrupted, and StateError in a process that was forked from
        one that had used RocksDB.
        """
        check_fork()
        if self._read_only:
            self._rdict = self._open_to_read()
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LogError(f"could not create the directory of the log: {error}") from error
        try:
            self._rdict = Rdict(str(self._directory), _options())
        except Exception as error:
            raise self._said(error, "opened") from error

    def _open_to_read(self) -> Rdict:
        if not (self._directory / "CURRENT").is_file():
            raise LogError(f"there is no log in {self._directory}")
        left = _OPENINGS
        while True:
            left -= 1
            try:
                return Rdict(str(self._directory), _options(), access_type=AccessType.read_only())
            except Exception as error:
                # The writer may have replaced files: then the next attempt finds the new files.
                if not left:
                    raise self._said(error, "opened") from error

    def close(self) -> None:
        """Release the lock; does nothing when already closed."""
        rdict, self._rdict = self._rdict, None
        if rdict is None:
            return
        try:
            rdict.close()
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more exact
            # No acknowledged write is lost: the next opening finds it in the write-ahead log.
            _logger.warning(
                "log in %s was closed, but its memory could not be flushed: %s",
                self._directory,
                error,
            )

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`."""
        try:
            value: bytes | None = self._open_rdict().get(key)
        except LogError:
            raise
        except Exception as error:
            raise self._said(error, "read") from error
        return value

    def scan(self, first: bytes, behind: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys from `first` up to, but not including, `behind`, with values.

        Raises LogCorrupted if RocksDB ends early because of a fault.
        """
        # Use a new iterator for each chunk: a live iterator, for example in the traceback of a
        # failed scan, keeps the lock.
        while chunk := self._chunk(first, behind):
            yield from chunk
            first = chunk[-1][0] + b"\0"

    def _chunk(self, first: bytes, behind: bytes) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        # Set no upper bound: rocksdict frees the bytes of a bound too early.
        options = ReadOptions()
        iterator = self._open_rdict().iter(options)
        iterator.seek(first)
        while iterator.valid() and len(found) < _CHUNK:
            key: Any = iterator.key()
            if key >= behind:
                break
            found.append((key, iterator.value()))
            iterator.next()
        try:
            iterator.status()
        except Exception as error:
            raise self._said(error, "read") from error
        return found

    def write(self, changes: UndoLog) -> None:
        """Write all changes or none, durable across a crash of the process.

        Raises StorageFull, LogError.
        """
        if self._read_only:
            raise LogError(
                f"the log in {self._directory} was opened with read_only: open it without that to "
                "write"
            )
        if self._undo is not None:
            self._reopen(self._undo)
        self._write(self._open_rdict(), changes)

    def wipe(self, ranges: Sequence[tuple[bytes, bytes]]) -> None:
        """Delete ranges of keys, each from the first key to after the last.

        If the deletion fails, log the failure; the keys then stay.
        """
        batch = WriteBatch(raw_mode=True)
        for first, behind in ranges:
            batch.delete_range(first, behind)
        try:
            self._open_rdict().write(batch)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more exact
            # RocksDB takes no more writes, so the next write reopens it. This deletion need not be
            # undone, since no reader looks at deleted records.
            self._undo = self._undo or []
            _logger.warning(
                "log in %s keeps deleted records until it is opened again: %s",
                self._directory,
                error,
            )

    def _write(self, rdict: Rdict, changes: UndoLog) -> None:
        batch = WriteBatch(raw_mode=True)
        for key, value in changes:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        try:
            rdict.write(batch)
        except Exception as error:
            # After the failure RocksDB can still read, and has not applied the failed write.
            self._undo = [(key, self.get(key)) for key, _ in changes]
            raise self._said(error, "written") from error

    def _reopen(self, undo: UndoLog) -> None:
        rdict = self._rdict
        if rdict is not None:
            # Opening flushes the data in memory: without room for this data, even readers could no
            # longer use the database.
            self._probe(_WRITE_BUFFER)
            # Close and also delete the reference: a live iterator keeps the lock.
            self.close()
            del rdict
        self.open()
        self._write(self._open_rdict(), undo)
        self._undo = None
        _logger.warning("log in %s can be written again", self._directory)

    def _probe(self, room: int) -> None:
        path = self._directory / "room"
        block = bytes(_PROBE_STEP)
        try:
            with path.open("wb") as file:
                for _ in range(0, room, _PROBE_STEP):
                    file.write(block)
        except OSError as error:
            raise StorageFull(f"no room for {room} bytes in {self._directory}: {error}") from error
        finally:
            path.unlink(missing_ok=True)

    def _open_rdict(self) -> Rdict:
        if self._rdict is None:
            raise LogError(f"the log in {self._directory} is not open")
        return self._rdict

    def _said(self, error: Exception, what: str) -> LogError:
        text = str(error)
        if "lock" in text and ("LOCK" in text or "lock hold" in text):
            return LogError(
                f"the log in {self._directory} is in use by another process, or by another log in "
                "this one: close that, or use another directory"
            )
        if any(sign in text for sign in _FULL):
            return StorageFull(f"no room in {self._directory}: {text}")
        if text.startswith("Corruption"):
            return LogCorrupted(f"the log in {self._directory} is damaged: {text}")
        return LogError(f"the log in {self._directory} could not be {what}: {text}")


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(_WRITE_BUFFER)
    options.set_max_write_buffer_number(3)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_keep_log_file_num(2)
    # Records are written once and read in order. If they are outside of the tree, its compactions
    # do not copy them.
    options.set_enable_blob_files(True)
    options.set_min_blob_size(4096)
    options.set_blob_compression_type(DBCompressionType.lz4())
    options.set_enable_blob_gc(True)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(_BLOCK_CACHE))
    table.set_bloom_filter(10, block_based=False)
    options.set_block_based_table_factory(table)
    return options
