"""Writing snapshots: rows by task and store, then positions, then the manifest."""

from __future__ import annotations

import hashlib
import uuid
from itertools import repeat
from operator import itemgetter, lt
from typing import TYPE_CHECKING, Any, Final, Self, final

from ks_actors.records import Batch
from ks_actors.snapshots._blocks import (
    MAGIC,
    encode_block,
    encode_end,
    in_blocks,
    with_headers,
)
from ks_actors.snapshots._manifest import (
    MANIFEST,
    DataFile,
    Shape,
    SnapshotManifest,
    SourcePosition,
    StoreSnapshot,
    TaskSnapshot,
    seal,
)
from ks_actors.snapshots._place import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import IO

    from ks_actors.snapshots._manifest import LeftOut

FILE_BYTES: Final = 256 << 20
"""Approximate size of row files, in bytes."""


def snapshot_name(created_ms: int) -> str:
    """Return a new name; names sort by their times."""
    return f"{created_ms:015d}-{uuid.uuid4().hex[:8]}"


@final
class StoreWriter:
    """A writer of the rows of one task's store, each key once, in the order of `shape.places`.

    Writers are independent of each other. `snapshot` is the snapshot's place. All methods block.
    Memory is bounded by two blocks of about 1 MiB, plus the file system's buffers. A writer may run
    in another process than the SnapshotWriter, to which you then pass the result of `close`. If two
    processes may write the same rows, because one process was presumed dead, give each writer its
    own `attempt`, which becomes part of its file names.
    """

    def __init__(
        self,
        snapshot: Place,
        task: str,
        shape: Shape,
        *,
        deflate: bool = True,
        file_bytes: int = FILE_BYTES,
        attempt: int | None = None,
    ) -> None:
        self._snapshot: Place = snapshot
        self._task: str = task
        self._shape: Shape = shape
        self._deflate: bool = deflate
        self._file_bytes: int = file_bytes
        self._name: str = shape.name if attempt is None else f"{shape.name}-a{attempt}"
        self._files: list[DataFile] = []
        self._last: bytes | None = None
        self._path: str = ""
        self._open: IO[bytes] | None = None
        self._sum = hashlib.sha256()
        self._size: int = 0
        self._rows: int = 0

    def write(self, batch: Batch) -> None:
        """Write rows. Raises OSError, and ValueError when rows are not in order or lack values."""
        if self._shape.headed:
            batch = with_headers(batch)
        for block in in_blocks((batch,)):
            self._check(block)
            if self._open is None:
                self._begin()
            self._put(
                encode_block(block.keys, block.values, block.timestamps, deflate=self._deflate)
            )
            self._rows += len(block)
            if self._size >= self._file_bytes:
                self._end()

    def write_unsorted(self, batches: Iterable[Batch]) -> None:
        """Sort rows that come in any order, and write them. Raises like `write`.

        All rows are in memory meanwhile.
        """
        rows: list[tuple[Any, ...]] = []
        for batch in batches:
            headers: Iterable[Any] = repeat(()) if batch.headers is None else batch.headers
            columns = (batch.keys, batch.values, batch.timestamps, headers)
            rows += zip(self._shape.places(batch.keys), *columns, strict=False)
        rows.sort(key=itemgetter(0))
        if rows:
            _, keys, values, timestamps, found = map(list, zip(*rows, strict=True))
            self.write(Batch(keys, values, timestamps, found))

    def _check(self, block: Batch) -> None:
        places = self._shape.places(block.keys)
        if not all(map(lt, places, places[1:])) or (
            self._last is not None and places[0] <= self._last
        ):
            raise ValueError(
                f"store {self._shape.name} of task {self._task}: write its rows in the order of "
                "`Shape.places`, each key once"
            )
        self._last = places[-1]

    def _begin(self) -> None:
        self._path = f"{self._task}/{self._name}-{len(self._files):05d}.rows"
        self._open = self._snapshot.at(self._path).write_to()
        self._sum, self._size, self._rows = hashlib.sha256(), 0, 0
        self._put(MAGIC)

    def _put(self, data: bytes) -> None:
        assert self._open is not None
        self._open.write(data)
        self._sum.update(data)
        self._size += len(data)

    def _end(self) -> None:
        assert self._open is not None
        self._put(encode_end(self._rows))
        opened, self._open = self._open, None
        opened.close()
        self._files.append(DataFile(self._path, self._rows, self._size, self._sum.hexdigest()))

    def close(
        self,
        *,
        changelog: str | None = None,
        next_offset: int | None = None,
        observed: int = -1,
        sequence: int = 0,
        changelog_id: str = "",
    ) -> StoreSnapshot:
        """End the last file; return the manifest entry of the store (see StoreSnapshot).

        Raises OSError.
        """
        if self._open is not None:
            self._end()
        return StoreSnapshot(
            self._shape,
            tuple(self._files),
            changelog,
            next_offset,
            observed,
            sequence,
            changelog_id,
        )


@final
class SnapshotWriter:
    """A writer of one snapshot below `<uri>/<application id>/<name>`.

    The snapshot becomes valid only when `commit` returns. With `name`, the writer continues a
    snapshot that another writer began. All methods block.
    """

    def __init__(
        self,
        uri: str | Place,
        application_id: str,
        *,
        created_ms: int,
        name: str | None = None,
        topology: str = "",
    ) -> None:
        self.name: str = snapshot_name(created_ms) if name is None else name
        of_application = (uri if isinstance(uri, Place) else Place.of(uri)).at(application_id)
        # Fail on a bad bucket or bad credentials before any write.
        of_application.names()
        self.place: Place = of_application.at(self.name)
        self._application_id: str = application_id
        self._created_ms: int = created_ms
        self._topology: str = topology
        self._stores: dict[str, dict[str, StoreSnapshot]] = {}
        self._positions: dict[str, tuple[SourcePosition, ...]] = {}
        self._left_out: dict[str, dict[str, LeftOut]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.abort()

    def store(self, task: str, shape: Shape, *, deflate: bool = True) -> StoreWriter:
        """Return a writer for a task's store; pass the result of its `close` to `add`."""
        return StoreWriter(self.place, task, shape, deflate=deflate)

    def add(
        self,
        task: str,
        *stores: StoreSnapshot,
        positions: Iterable[SourcePosition] = (),
        left_out: Mapping[str, LeftOut] | None = None,
    ) -> None:
        """Add a task's written stores, its positions, and the missing stores with the reasons.

        `positions` are those of all stores of the task.
        """
        self._left_out.setdefault(task, {}).update(left_out or {})
        self._stores.setdefault(task, {}).update((store.shape.name, store) for store in stores)
        self._positions[task] = (*self._positions.get(task, ()), *positions)

    @property
    def is_empty(self) -> bool:
        """Whether no task was added."""
        return not self._stores

    def commit(self) -> SnapshotManifest:
        """Write the manifest, which makes the snapshot valid."""
        tasks = {
            task: TaskSnapshot(stores, self._positions[task], self._left_out[task])
            for task, stores in sorted(self._stores.items())
        }
        manifest = SnapshotManifest(
            self._application_id, self.name, self._created_ms, tasks, self._topology
        )
        self.place.at(MANIFEST).write(seal(manifest))
        return manifest

    def abort(self) -> None:
        """Delete the unfinished snapshot."""
        self.place.delete()
