"""The manifest of a snapshot, written last and sealed with a checksum."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from ks_actors._errors import SnapshotRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
Kind: TypeAlias = Literal[
    "key_value",
    "timestamped_key_value",
    "window",
    "timestamped_window",
    "session",
    "versioned",
    "custom",
    "timestamped_key_value_with_headers",
    "timestamped_window_with_headers",
    "session_with_headers",
]
LeftOut: TypeAlias = Literal["custom", "no_changelog", "in_threads"]
SUFFIXES: Final = {
    "window": struct.Struct(">qi"),
    "timestamped_window": struct.Struct(">qi"),
    "session": struct.Struct(">qq"),
    "timestamped_window_with_headers": struct.Struct(">qi"),
    "session_with_headers": struct.Struct(">qq"),
}
"""The ends of keys in window stores (start and sequence number) and session stores (end, start)."""

VERSION: Final = struct.Struct(">q")
"""The end of keys in versioned stores: the start of the version's validity."""

_segment: Final = struct.Struct(">q")


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of a store that its rows depend on. Times are ms.

    Rows are the last records of a changelog by key. In a window store, the key is followed by the
    window's start (int64, big-endian) and a sequence number (int32), which is 0 unless the store
    keeps `duplicates`. In a session store, it is followed by the session's end and start (int64
    each). A versioned store has a row for each version. Its key is followed by the start of the
    version's validity (int64), which is also its timestamp. A deletion is a version with an empty
    value, and its timestamp is -1 minus that start. `retention_ms` of a versioned store is its
    history retention. In a store with headers, the headers are in front of the value, as
    `pack_headers` writes them. A custom store has the last records of its changelog, in any format.
    Rows are in the order of `places`.
    """

    name: str
    kind: Kind
    retention_ms: int = 0
    segment_ms: int = 0
    duplicates: bool = False

    @property
    def headed(self) -> bool:
        """Whether rows have headers."""
        return self.kind.endswith("_with_headers")

    def places(self, keys: list[bytes]) -> list[bytes]:
        """Return the sort keys of rows.

        A sort key is the row's key; in a window or session store, its segment's number comes first.
        That number is the window's start, or the session's end, in ms, divided by `segment_ms`, as
        int64, big-endian. In a versioned store, the sort key is the key with each byte 0 followed
        by 255, then the bytes 0 and 1, then the time. Raises ValueError for keys that do not belong
        to such a store.
        """
        if self.kind == "versioned":
            if any(len(key) < VERSION.size for key in keys):
                raise ValueError(
                    f"store {self.name}: a key of a versioned store ends with a time, "
                    f"{VERSION.size} bytes"
                )
            return [
                key[: -VERSION.size].replace(b"\0", b"\0\xff") + b"\0\1" + key[-VERSION.size :]
                for key in keys
            ]
        suffix = SUFFIXES.get(self.kind)
        if suffix is None:
            return keys
        pack, segment, unpack, cut = (
            _segment.pack,
            max(1, self.segment_ms),
            suffix.unpack_from,
            suffix.size,
        )
        try:
            return [pack(unpack(key, len(key) - cut)[0] // segment) + key for key in keys]
        except struct.error as error:
            raise ValueError(
                f"store {self.name}: a key of a {self.kind} store ends with two "
                f"numbers, {cut} bytes"
            ) from error


class DataFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of rows: its path below the snapshot, its rows and bytes, and its SHA-256."""

    path: str
    rows: int
    bytes: int
    sha256: str


class StoreSnapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The rows of one store of one task.

    `next_offset` is the next offset of the `changelog` after these rows. It is None when the
    changelog does not have them yet (then App.seed loads them). `observed` is the latest time put
    into a store with times: the start of a window, the end of a session, the time of a version.
    `sequence` is the last sequence number. If these two are missing, the rows determine them.
    `changelog_id` is the id of the changelog's topic (KIP-516), if the log has ids.
    """

    shape: Shape
    files: tuple[DataFile, ...]
    changelog: str | None = None
    next_offset: int | None = None
    observed: int = -1
    sequence: int = 0
    changelog_id: str = ""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(file.rows for file in self.files)


class SourcePosition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source partition's next offset after the state, with the metadata of its commit."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


class TaskSnapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A task at one moment: its stores by name, and the positions of its source partitions.

    `left_out` has the task's stores that are missing in the snapshot, each with the reason. A
    custom store, or an in-memory store of a task that is processed in threads, restores from its
    changelog. A store without a changelog exists only on its disk.
    """

    stores: dict[str, StoreSnapshot] = {}
    positions: tuple[SourcePosition, ...] = ()
    left_out: dict[str, LeftOut] = {}


class SnapshotManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A complete snapshot: its application, its creation time (ms), and its tasks by id.

    `topology` identifies the topology (see `fingerprint`).
    """

    application_id: str
    name: str
    created_ms: int
    tasks: dict[str, TaskSnapshot] = {}
    topology: str = ""
    format: int = FORMAT


class _Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    manifest: msgspec.Raw


# Create these at import: two threads must not both be the first to decode a type.
_sealed: Final = msgspec.json.Decoder(_Sealed)
_manifest: Final = msgspec.json.Decoder(SnapshotManifest)


def seal(manifest: SnapshotManifest) -> bytes:
    """Return the bytes of a manifest, with their checksum."""
    content = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(hashlib.sha256(content).hexdigest(), msgspec.Raw(content)))


def unseal(data: bytes, name: str) -> SnapshotManifest:
    """Return the manifest. Raises SnapshotRefused for corrupt bytes or another format."""
    try:
        sealed = _sealed.decode(data)
        content = bytes(sealed.manifest)
        if hashlib.sha256(content).hexdigest() != sealed.sha256:
            raise SnapshotRefused(
                f"the manifest of {name} has changed since it was written: its checksum does not "
                "match"
            )
        manifest = _manifest.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SnapshotRefused(f"the manifest of {name} cannot be read: {error}") from error
    if manifest.format != FORMAT:
        raise SnapshotRefused(f"{name} is of format {manifest.format}; this version reads {FORMAT}")
    return manifest


def fingerprint(stores: Mapping[int, Mapping[str, Shape]]) -> str:
    """Return a hash of a topology: of its stores' shapes, by subtopology and name."""
    content = msgspec.json.encode(
        {str(number): dict(sorted(shapes.items())) for number, shapes in sorted(stores.items())}
    )
    return hashlib.sha256(content).hexdigest()
