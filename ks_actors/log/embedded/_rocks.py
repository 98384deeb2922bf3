"""Storage in a directory: RocksDB, whose write-ahead log survives if the process is killed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

import msgspec

from ks_actors._errors import LogCorrupted, LogError
from ks_actors.log._types import OffsetAndMetadata
from ks_actors.log.embedded import _codec
from ks_actors.log.embedded._database import Database
from ks_actors.log.embedded._storage import Loaded, TopicRecord, TransactionalId, new_name
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from ks_actors.log.embedded._database import UndoLog
    from ks_actors.log.embedded._partition import Partition
    from ks_actors.log.embedded._segment import Segment
    from ks_actors.log.embedded._topic import Topic
    from ks_actors.records import Batch

_RECENT_BYTES: Final = 16 << 20
# The approximate overhead of memory per batch, and per record.
_BATCH_BYTES: Final = 500
_RECORD_BYTES: Final = 100

_read_log = _codec.decoder(_codec.LogRecord)
_read_topic = _codec.decoder(TopicRecord)
_read_offset = _codec.decoder(_codec.OffsetRecord)
_read_transactional_id = _codec.decoder(TransactionalId)


@final
class RocksStorage:
    """Storage of everything in one RocksDB per log, with an entry per batch.

    Recent batches are in memory as well.
    """

    growth: int = 32 << 20

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self._directory: Path = directory
        self._read_only: bool = read_only
        self._database: Database = Database(directory, read_only=read_only)
        self._log: _codec.LogRecord = _codec.LogRecord()
        self._recent: deque[Segment] = deque()
        self._recent_bytes = 0

    def open(self) -> Loaded:
        """Take the lock of the directory, make it if necessary, and read all but the records."""
        self._database.open()
        try:
            return self._load_all()
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        """Flush the data in memory, and release the lock."""
        for segment in self._recent:
            segment.batch = None
        self._recent.clear()
        self._recent_bytes = 0
        self._database.close()

    def load(self, partition: Partition, segment: Segment) -> Batch:
        """Read the records of a segment, and cache them for a while."""
        data = self._database.get(_codec.records_key(*_place(partition), segment.base))
        if data is None:
            raise LogCorrupted(f"{partition.name} has lost its records at offset {segment.base}")
        batch = _codec.decode_batch(data, segment.base)
        self._remember(segment, batch)
        return batch

    def append(self, added: Sequence[tuple[Partition, Segment, Batch]]) -> None:
        """Write new segments at once."""
        changes: UndoLog = []
        for partition, segment, batch in added:
            _put(changes, partition, segment, batch)
        self._database.write(changes)
        for _, segment, batch in added:
            self._remember(segment, batch)

    def end(
        self,
        markers: Sequence[tuple[Partition, Segment]],
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Write all markers and offsets at once."""
        changes: UndoLog = [
            (_codec.entry_key(*_place(partition), marker.base), _codec.encode_entry(marker))
            for partition, marker in markers
        ]
        for (topic, number), committed in offsets.items():
            record = _codec.OffsetRecord(
                group_id, topic, number, committed.offset, committed.metadata
            )
            changes.append((_codec.offset_key(group_id, topic, number), _codec.encode(record)))
        if changes:
            self._database.write(changes)

    def add_topic(self, topic: Topic) -> None:
        """Write a topic, and mark its id as used."""
        record = TopicRecord(topic.id, topic.name, len(topic.partitions), dict(topic.configs))
        # Write the next id together with the topic, so that no id is ever used again.
        log = msgspec.structs.replace(self._log, next_topic=topic.id + 1)
        self._database.write(
            [(_codec.topic_key(topic.id), _codec.encode(record)), (_codec.LOG, _codec.encode(log))]
        )
        self._log = log

    def grow_topic(self, topic: Topic, partitions: int) -> None:
        """Write the new number of partitions."""
        record = TopicRecord(topic.id, topic.name, partitions, dict(topic.configs))
        self._database.write([(_codec.topic_key(topic.id), _codec.encode(record))])

    def remove_topic(self, topic: Topic, offsets: Mapping[str, Iterable[TopicPartition]]) -> None:
        """Delete a topic in one write; then wipe its records, when no reader can find them."""
        changes: UndoLog = [(_codec.topic_key(topic.id), None)]
        changes.extend(
            (_codec.offset_key(group_id, *partition), None)
            for group_id, partitions in offsets.items()
            for partition in partitions
        )
        self._database.write(changes)
        self._database.wipe(_codec.ranges_of_topic(topic.id))

    def put_transactional_id(self, transactional_id: TransactionalId) -> None:
        """Write a transactional id."""
        self._database.write(
            [(_codec.transactional_id_key(transactional_id.name), _codec.encode(transactional_id))]
        )

    def set_begin(self, partition: Partition, begin: int) -> None:
        """Write the bounds of a partition; the end too, as the last segment may soon be deleted."""
        self._database.write(
            [(_codec.bounds_key(*_place(partition)), _codec.encode_bounds(begin, partition.end))]
        )

    def discard(self, partition: Partition, segments: Sequence[Segment]) -> None:
        """Wipe segments; after a failure the next opening of the log wipes them."""
        if segments:
            self._wipe(_place(partition), segments)

    def replace(
        self, partition: Partition, old: Sequence[Segment], new: Segment | None, batch: Batch
    ) -> None:
        """Replace the old segments by the new segment.

        Write the end of the partition too, as its last segment may have been deleted.
        """
        place = _place(partition)
        # If the new segment has the key of an old segment, its value replaces the deletion.
        changes: dict[bytes, bytes | None] = {}
        for segment in old:
            changes[_codec.entry_key(*place, segment.base)] = None
            changes[_codec.records_key(*place, segment.base)] = None
        changes[_codec.bounds_key(*place)] = _codec.encode_bounds(partition.begin, partition.end)
        if new is not None:
            added: UndoLog = []
            _put(added, partition, new, batch)
            changes.update(added)
        self._database.write(list(changes.items()))
        if new is not None:
            self._remember(new, batch)

    def _wipe(self, place: tuple[int, int], segments: Sequence[Segment]) -> None:
        first, behind = segments[0].base, segments[-1].end
        self._database.wipe(
            [
                (key(*place, first), key(*place, behind))
                for key in (_codec.records_key, _codec.entry_key)
            ]
        )

    def _remember(self, segment: Segment, batch: Batch) -> None:
        segment.batch = batch
        self._recent.append(segment)
        self._recent_bytes += _cost(segment)
        while self._recent_bytes > _RECENT_BYTES and len(self._recent) > 1:
            oldest = self._recent.popleft()
            oldest.batch = None
            self._recent_bytes -= _cost(oldest)

    def _load_all(self) -> Loaded:
        scan = self._database.scan
        self._begin_incarnation()
        loaded = Loaded(
            self._name,
            incarnation=self._log.incarnation,
            next_topic=self._log.next_topic,
        )
        loaded.topics = [_read_topic(value) for _, value in scan(b"t", b"u")]
        loaded.transactional_ids = [_read_transactional_id(value) for _, value in scan(b"x", b"y")]
        loaded.bounds = {
            _codec.read_partition(key): _codec.decode_bounds(value)
            for key, value in scan(b"p", b"q")
        }
        for _, value in scan(b"o", b"p"):
            record = _read_offset(value)
            committed = OffsetAndMetadata(record.offset, record.metadata)
            loaded.offsets.setdefault(record.group_id, {})[
                TopicPartition(record.topic, record.partition)
            ] = committed
        for key, value in scan(b"i", b"j"):
            topic, partition, base = _codec.read_place(key)
            loaded.segments.setdefault((topic, partition), []).append(
                _codec.decode_entry(base, value)
            )
        self._wipe_leftovers(loaded)
        return loaded

    def _begin_incarnation(self) -> None:
        data = self._database.get(_codec.LOG)
        last = _codec.LogRecord() if data is None else _read_log(data)
        self._name = (self._database.get(_codec.NAME) or b"").decode()
        if last.version != _codec.VERSION:
            raise LogError(
                f"the log in {self._directory} is of format {last.version}, but this version reads "
                f"format {_codec.VERSION}"
            )
        if self._read_only:
            self._log = last
            return
        self._log = msgspec.structs.replace(last, incarnation=last.incarnation + 1)
        # A log of an earlier format has no name yet.
        self._name = self._name or new_name()
        self._database.write(
            [(_codec.LOG, _codec.encode(self._log)), (_codec.NAME, self._name.encode())]
        )

    def _wipe_leftovers(self, loaded: Loaded) -> None:
        """Wipe deleted data that could not be wiped at the deletion."""
        known = {topic.identity for topic in loaded.topics}
        for topic in (
            sorted({topic for topic, _ in (*loaded.segments, *loaded.bounds)} - known)
            if not self._read_only
            else ()
        ):
            self._database.wipe(_codec.ranges_of_topic(topic))
        for place in [place for place in loaded.segments if place[0] not in known]:
            del loaded.segments[place]
        for place, segments in loaded.segments.items():
            begin, _ = loaded.bounds.get(place, (0, 0))
            gone = [segment for segment in segments if segment.end <= begin]
            if gone:
                if not self._read_only:
                    self._wipe(place, gone)
                del segments[: len(gone)]


def _place(partition: Partition) -> tuple[int, int]:
    return partition.topic.id, partition.name.partition


def _cost(segment: Segment) -> int:
    return segment.size + _BATCH_BYTES + _RECORD_BYTES * segment.count


def _put(changes: UndoLog, partition: Partition, segment: Segment, batch: Batch) -> None:
    segment.newest = max(batch.timestamps)
    key = (*_place(partition), segment.base)
    changes += [
        (_codec.records_key(*key), _codec.encode_batch(batch)),
        (_codec.entry_key(*key), _codec.encode_entry(segment)),
    ]
