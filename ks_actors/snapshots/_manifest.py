"""What a snapshot says of itself: written last, sealed, and refused when anything of it is not as it was written."""

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
Kind: TypeAlias = Literal["key_value", "timestamped_key_value", "window", "timestamped_window", "session", "versioned", "custom"]
LeftOut: TypeAlias = Literal["custom", "no_changelog", "in_threads"]
SUFFIXES: Final = {"window": struct.Struct(">qi"), "timestamped_window": struct.Struct(">qi"), "session": struct.Struct(">qq")}
"""What keys end with where there are windows: start and sequence number; of sessions end and start."""

VERSION: Final = struct.Struct(">q")
"""What keys end with where there are versions: the time that one is valid from."""

_segment: Final = struct.Struct(">q")


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a store is, as far as its rows depend on it. Times are ms.

    Rows are the last records of a changelog by key: in a window store the key is followed by the window's start (int64, big-endian) and a sequence
    number (int32), which is 0 unless the store keeps `duplicates`; in a session store by the session's end and start (int64 each). A versioned store
    has a row for each version: its key is followed by the time since when it is valid (int64), which is also its timestamp; what says that there is
    no value since then is an empty one, with -1 less that time as its timestamp. Of a versioned store `retention_ms` is the history retention. A
    custom store is all in the last records of its changelog, whatever they are. Rows are in the order of `places`.
    """

    name: str
    kind: Kind
    retention_ms: int = 0
    segment_ms: int = 0
    duplicates: bool = False

    def places(self, keys: list[bytes]) -> list[bytes]:
        """Return what rows are in the order of: their keys, in a window or session store with the number of the segment before them.

        That is the window's start, or the session's end, in ms, divided by `segment_ms`, as int64, big-endian. In a versioned store it is the key
        with each byte 0 followed by 255, then the bytes 0 and 1, then the time. Raises ValueError for what is no key of such a store.
        """
        if self.kind == "versioned":
            if any(len(key) < VERSION.size for key in keys):
                raise ValueError(f"store {self.name}: a key of a versioned store ends with a time, {VERSION.size} bytes")
            return [key[: -VERSION.size].replace(b"\0", b"\0\xff") + b"\0\1" + key[-VERSION.size :] for key in keys]
        suffix = SUFFIXES.get(self.kind)
        if suffix is None:
            return keys
        pack, segment, unpack, cut = _segment.pack, max(1, self.segment_ms), suffix.unpack_from, suffix.size
        try:
            return [pack(unpack(key, len(key) - cut)[0] // segment) + key for key in keys]
        except struct.error as error:
            raise ValueError(f"store {self.name}: a key of a {self.kind} store ends with two numbers, {cut} bytes") from error


class DataFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of rows: its path below the snapshot, how many rows and bytes it has, and their SHA-256."""

    path: str
    rows: int
    bytes: int
    sha256: str


class StoreSnapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rows of one store of one task.

    `next_offset` is where the `changelog` goes on behind what is in the rows; None when it does not have them (then it is to be seeded). `observed`
    is the latest time that was ever put into a store that has times (the start of a window, the end of a session, the time of a version), `sequence`
    the last sequence number; without, rows tell.
    """

    shape: Shape
    files: tuple[DataFile, ...]
    changelog: str | None = None
    next_offset: int | None = None
    observed: int = -1
    sequence: int = 0

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(file.rows for file in self.files)


class SourcePosition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Up to where (not included) a partition is in the state, with the text that was committed beside it."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


class TaskSnapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A task at one moment: its stores by name, and the positions of all that it reads.

    `left_out` are the stores that it has and the snapshot has not, each with the reason: it is a custom one, or it is in memory and its task is
    processed in threads, so it is restored from its changelog; or it has no changelog, so nothing but its disk has it.
    """

    stores: dict[str, StoreSnapshot] = {}
    positions: tuple[SourcePosition, ...] = ()
    left_out: dict[str, LeftOut] = {}


class SnapshotManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole snapshot: of which application, made when (ms), and its tasks by id. `topology` tells topologies apart (see `fingerprint`)."""

    application_id: str
    name: str
    created_ms: int
    tasks: dict[str, TaskSnapshot] = {}
    topology: str = ""
    format: int = FORMAT


class _Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    manifest: msgspec.Raw


# Made here: what msgspec learns of a type when it first meets it must not be learned by two threads at once.
_sealed: Final = msgspec.json.Decoder(_Sealed)
_manifest: Final = msgspec.json.Decoder(SnapshotManifest)


def seal(manifest: SnapshotManifest) -> bytes:
    """Return the manifest as it is written."""
    content = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(hashlib.sha256(content).hexdigest(), msgspec.Raw(content)))


def unseal(data: bytes, name: str) -> SnapshotManifest:
    """Return what was written; raises SnapshotRefused when it is anything else."""
    try:
        sealed = _sealed.decode(data)
        content = bytes(sealed.manifest)
        if hashlib.sha256(content).hexdigest() != sealed.sha256:
            raise SnapshotRefused(f"the manifest of {name} is not as it was written: its checksum does not match")
        manifest = _manifest.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SnapshotRefused(f"the manifest of {name} cannot be read: {error}") from error
    if manifest.format != FORMAT:
        raise SnapshotRefused(f"{name} is of format {manifest.format}; this version reads {FORMAT}")
    return manifest


def fingerprint(stores: Mapping[int, Mapping[str, Shape]]) -> str:
    """Return what tells topologies apart: the shapes of all stores by number of the subtopology, and name."""
    content = msgspec.json.encode({str(number): dict(sorted(shapes.items())) for number, shapes in sorted(stores.items())})
    return hashlib.sha256(content).hexdigest()
