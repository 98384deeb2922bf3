"""Finding and reading snapshots."""

from __future__ import annotations

import hashlib
from operator import lt
from typing import TYPE_CHECKING, Final, final

from ks_actors._errors import SnapshotRefused
from ks_actors.snapshots._blocks import decode_blocks, without_headers
from ks_actors.snapshots._manifest import MANIFEST, unseal
from ks_actors.snapshots._place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ks_actors.records import Batch
    from ks_actors.snapshots._manifest import DataFile, SnapshotManifest, StoreSnapshot

_READ_AHEAD: Final = 1 << 20


@final
class SnapshotReader:
    """A snapshot, complete according to its manifest.

    All methods block. They raise SnapshotRefused for bad content and for files that cannot be read,
    ConnectionError and TimeoutError when the place does not answer.
    """

    def __init__(self, place: Place, manifest: SnapshotManifest) -> None:
        self.place: Place = place
        self.manifest: SnapshotManifest = manifest

    @classmethod
    def open(cls, place: Place | str, *, application_id: str | None = None) -> SnapshotReader:
        """Return the snapshot at a place.

        Raises SnapshotRefused if there is no snapshot, or a snapshot of another application.
        """
        found = Place.of(place) if isinstance(place, str) else place
        data = found.at(MANIFEST).read()
        if data is None:
            raise SnapshotRefused(
                f"{found} is not a complete snapshot: it has no manifest, so its writer did not "
                "finish"
            )
        manifest = unseal(data, str(found))
        if manifest.name != found.name:
            raise SnapshotRefused(
                f"{found} has the manifest of snapshot {manifest.name}: copy snapshots under their "
                "own names"
            )
        if application_id is not None and manifest.application_id != application_id:
            raise SnapshotRefused(
                f"{found} is a snapshot of application {manifest.application_id}, not of "
                f"{application_id}"
            )
        return cls(found, manifest)

    def batches(self, task: str, store: str) -> Iterator[Batch]:
        """Yield the rows of a task's store in order, about 1 MiB at a time.

        Each batch is verified before it is yielded; missing rows at the end are found only after
        the last batch. Raises SnapshotRefused.
        """
        snapshot = self._store(task, store)
        last: bytes | None = None
        for file in snapshot.files:
            for batch in self._rows(file):
                try:
                    places = snapshot.shape.places(batch.keys)
                except ValueError as error:
                    raise SnapshotRefused(f"{self.place} {file.path}: {error}") from error
                if not all(map(lt, places, places[1:])) or (last is not None and places[0] <= last):
                    raise SnapshotRefused(
                        f"{self.place} {file.path}: rows are not in order, or a key occurs twice"
                    )
                last = places[-1]
                headed = snapshot.shape.headed
                yield without_headers(batch, f"{self.place} {file.path}") if headed else batch

    def _store(self, task: str, store: str) -> StoreSnapshot:
        try:
            return self.manifest.tasks[task].stores[store]
        except KeyError:
            raise SnapshotRefused(f"{self.place} has no store {store} of task {task}") from None

    def _rows(self, file: DataFile) -> Iterator[Batch]:
        name = f"{self.place}/{file.path}"
        # A manifest must not name files outside its snapshot.
        if file.path.startswith("/") or ".." in file.path.split("/"):
            raise SnapshotRefused(f"{name} is not below the snapshot")
        try:
            with self.place.at(*file.path.split("/")).read_from() as opened:
                reading = _Reading(opened.read)
                yield from decode_blocks(reading.read, name)
        except (ConnectionError, TimeoutError):  # not an error of this file
            raise
        except FileNotFoundError as error:
            raise SnapshotRefused(f"{name} is missing") from error
        except OSError as error:
            raise SnapshotRefused(f"{name} cannot be read: {error}") from error
        if (reading.size, reading.sum.hexdigest()) != (file.bytes, file.sha256):
            raise SnapshotRefused(f"{name} is not the file that the manifest describes")

    def verify(self) -> int:
        """Read all rows of all stores; return their number. Raises SnapshotRefused."""
        total = 0
        for task, content in self.manifest.tasks.items():
            for store, snapshot in content.stores.items():
                rows = sum(map(len, self.batches(task, store)))
                if rows != snapshot.rows:
                    raise SnapshotRefused(
                        f"{self.place} has {rows:,} rows of store {store} of task {task}, but its "
                        f"manifest says {snapshot.rows:,}"
                    )
                total += rows
        return total


class _Reading:
    """A file that hashes the bytes read, and reads on if the file system returns fewer."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read: Callable[[int], bytes] = read
        self._ahead: bytes = b""
        self.sum = hashlib.sha256()
        self.size: int = 0

    def read(self, count: int) -> bytes:
        ahead = self._ahead
        if len(ahead) < count:
            parts = [ahead]
            missing = count - len(ahead)
            while missing > 0 and (part := self._read(max(missing, _READ_AHEAD))):
                self.sum.update(part)
                self.size += len(part)
                parts.append(part)
                missing -= len(part)
            ahead = b"".join(parts)
        self._ahead = ahead[count:]
        return ahead[:count]


def find_snapshots(
    uri: str | Place, application_id: str
) -> tuple[list[SnapshotReader], list[SnapshotRefused]]:
    """Return an application's snapshots, newest first, and the errors of refused snapshots. Blocks.

    Skips snapshots without a manifest, and everything else that is no snapshot. A snapshot that
    cannot be read is refused. Raises OSError when no snapshot can be read, and when the place does
    not answer.
    """
    root = (Place.of(uri) if isinstance(uri, str) else uri).at(application_id)
    found: list[SnapshotReader] = []
    refused: list[SnapshotRefused] = []
    unreadable: list[OSError] = []
    names = root.names()
    for name in reversed(names):
        place = root.at(name)
        try:
            if place.at(MANIFEST).read() is not None:
                found.append(SnapshotReader.open(place, application_id=application_id))
        except SnapshotRefused as error:
            refused.append(error)
        except (ConnectionError, TimeoutError):  # not an error of this snapshot
            raise
        except OSError as error:
            unreadable.append(error)
            refused.append(SnapshotRefused(f"{place} cannot be read: {error}"))
    if unreadable and len(unreadable) == len(names):
        raise unreadable[0]
    return found, refused
