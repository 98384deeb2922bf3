"""Positions of stores: the input offsets that each store includes (KIP-796).

Positions are kept in the database and in the changelog. They are known per commit, not per record:
all changes of a commit count as made at the task's offsets at the commit.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, final

from ks_actors.lifecycle import component_log
from ks_actors.records import Batch
from ks_actors.state.disk import META, read_offsets

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from ks_actors.records import Headers
    from ks_actors.state.core import Engine, EngineRow, StoreForTasks

At: TypeAlias = Mapping[tuple[str, int], int]
"""Offsets by topic and partition: the last included record of each."""
POSITION: Final = META + b"position:"
SUFFIX: Final = ".position"
VERSION_HEADER: Final = "v"
VECTOR_HEADER: Final = "c"
WITH_VECTOR: Final = b"\0"
_FORMAT: Final = 0
_int: Final = struct.Struct(">i")
_pair: Final = struct.Struct(">iq")
_log = component_log(__name__)


def pack(position: At) -> bytes:
    """Return a position in the format of Kafka Streams.

    It is a byte 0 and the number of topics. For each topic the length of its name, the name (UTF-8)
    and the number of partitions follow; for each partition, its number and the offset. All numbers
    are big-endian int32, except offsets (int64).
    """
    topics: dict[str, list[tuple[int, int]]] = {}
    for (topic, partition), offset in position.items():
        topics.setdefault(topic, []).append((partition, offset))
    parts = [bytes((_FORMAT,)), _int.pack(len(topics))]
    for topic, offsets in topics.items():
        name = topic.encode()
        parts += (
            _int.pack(len(name)),
            name,
            _int.pack(len(offsets)),
            *(_pair.pack(*pair) for pair in offsets),
        )
    return b"".join(parts)


def unpack(data: bytes) -> dict[tuple[str, int], int]:
    """Return the position that `pack` or Kafka Streams wrote; raises ValueError."""
    try:
        if data[0] != _FORMAT:
            raise ValueError(f"the position has format {data[0]}, expected {_FORMAT}")
        (count,), at = _int.unpack_from(data, 1), 1 + _int.size
        position: dict[tuple[str, int], int] = {}
        for _ in range(count):
            (length,), at = _int.unpack_from(data, at), at + _int.size
            topic, at = data[at : at + length].decode(), at + length
            (pairs,), at = _int.unpack_from(data, at), at + _int.size
            for _ in range(pairs):
                partition, offset = _pair.unpack_from(data, at)
                position[topic, partition] = offset
                at += _pair.size
    except (struct.error, IndexError) as error:
        raise ValueError(f"the position is cut off: {error}") from error
    return position


def merged(position: At, other: At) -> At:
    """Return the position that includes both; returns `position` itself if that is enough."""
    ahead = {
        partition: offset
        for partition, offset in other.items()
        if offset > position.get(partition, -1)
    }
    return {**position, **ahead} if ahead else position


def position_row(store: str, position: At) -> EngineRow:
    """Return the database row of a store's position."""
    return (POSITION + store.encode(), pack(position))


def vector_of(headers: Headers) -> At | None:
    """Return the position that `marked` or Kafka Streams appended to a record's headers.

    Return None for headers of the user's own, which may have the same short names.
    """
    if len(headers) < 2 or headers[-2] != (VERSION_HEADER, WITH_VECTOR):  # noqa: PLR2004 - a pair
        return None
    name, vector = headers[-1]
    if name != VECTOR_HEADER or vector is None:
        return None
    try:
        return unpack(vector)
    except ValueError:
        return None


@final
class Positions:
    """The committed positions of a task's stores.

    The mappings that `of` returns are never changed. With `vectors`, the last record of each commit
    in a store's changelog carries the position in Kafka Streams' headers, so that standby tasks
    know their positions.
    """

    def __init__(self, *, vectors: bool) -> None:
        self.vectors: bool = vectors
        self._at: dict[str, At] = {}
        self._lost: set[str] = set()

    def of(self, store: str) -> At:
        """Return the position of a store."""
        return self._at.get(store, {})

    def follows_task(self, store: str) -> bool:
        """Whether an active store includes all records that its task has processed.

        A store without changelog may have lost part of it.
        """
        return store not in self._lost

    def advance(self, stores: Iterable[str], position: At) -> None:
        """Advance the stores to at least this position."""
        for store in stores:
            self._at[store] = merged(self.of(store), position)
            self._lost.discard(store)

    def begin(self, stores: Iterable[str], logged: Collection[str], position: At) -> None:
        """Note that the task starts processing at this position, after all changelogs are read.

        Only a store without changelog may lack records.
        """
        for store in stores:
            if store in logged:
                self.advance((store,), position)
            elif merged(self.of(store), position) is not self.of(store):
                self._lost.add(store)

    def forget(self) -> None:
        """Forget all stores."""
        self._at.clear()
        self._lost.clear()

    def leave(self, topics: Collection[str], stores: Mapping[str, StoreForTasks]) -> None:
        """Forget all offsets in recreated topics, on disk as well. Blocks."""
        for name, at in self._at.items():
            left = {each: offset for each, offset in at.items() if each[0] not in topics}
            if len(left) < len(at):
                self._at[name] = left
                if (engine := stores[name].engine) is not None:
                    engine.write([position_row(name, left)], durable=True)

    # The database.

    def recall(self, engine: Engine, store: str, path: Path | None, *, empty: bool) -> None:
        """Load a store's position from the database.

        If the database has no position yet, the position file of Kafka Streams' layout at `path` is
        migrated into the database; the file is deleted (KIP-892). For an `empty` store the file is
        ignored, because it is wrong.
        """
        data = None if empty else engine.get(POSITION + store.encode())
        if data is not None:
            self._at[store] = unpack(data)
        if path is None or not path.is_file():  # a custom store may have the name
            return
        if data is None and not empty:
            try:
                self._at[store] = read_offsets(path)
            except ValueError as error:
                _log.warning(
                    "%s is not a position file; the position of store %s is unknown until the "
                    "store changes: %s",
                    path,
                    store,
                    error,
                )
            else:
                # durable, because the file is deleted next
                engine.write([position_row(store, self._at[store])], durable=True)
        path.unlink()

    def rows(self, before: Mapping[str, At], logged: Collection[str]) -> list[EngineRow]:
        """Return the rows for `before`, the positions of stores when the write began.

        Leave out a store without changelog if its position has changed since: `persist_unlogged`
        has written the newer position.
        """
        return [
            position_row(store, at)
            for store, at in before.items()
            if at and (store in logged or at is self.of(store))
        ]

    # The changelog.

    def marked(self, store: str, batches: Iterable[Batch], position: At) -> Iterator[Batch]:
        """Return a commit's batches, with the position in the headers of the last record."""
        last: Batch | None = None
        for batch in batches:
            if last is not None:
                yield last
            last = batch
        if last is not None:
            vector: Headers = (
                (VERSION_HEADER, WITH_VECTOR),
                (VECTOR_HEADER, pack(merged(self.of(store), position))),
            )
            known = last.headers or [()] * len(last)
            headers = [*known[:-1], (*known[-1], *vector)]
            yield Batch(last.keys, last.values, last.timestamps, headers)

    def unmarked(self, headers: list[Headers]) -> list[Headers]:
        """Return a changelog's headers without positions."""
        return [
            # The comparison first: most records have no position.
            found[:-2]
            if found and found[-1][0] == VECTOR_HEADER and vector_of(found) is not None
            else found
            for found in headers
        ]

    def restored(self, store: str, headers: Sequence[Headers]) -> None:
        """Take the position from a changelog's records.

        Read the last record first: earlier positions never exceed later ones.
        """
        for header in filter(None, reversed(headers)):
            position = vector_of(header)
            if position is not None:
                self.advance((store,), position)
                return
