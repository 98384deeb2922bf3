"""Stores as DataFrames, from snapshots and running apps. Imports pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from ks_actors._errors import ConfigError, SnapshotRefused
from ks_actors.batch._reading import LogRange
from ks_actors.batch._task_errors import carried
from ks_actors.batch.source._filters import Pushed
from ks_actors.batch.source._live import LiveStores
from ks_actors.batch.source._record_batches import Records
from ks_actors.batch.source._source_options import CUSTOM, VERSIONED
from ks_actors.query import MOST_BYTES, ReadRows, encode
from ks_actors.records import TaskId
from ks_actors.snapshots import MANIFEST, Place, SnapshotReader, find_snapshots
from ks_actors.topology import bare_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ks_actors.batch.source._source_options import SourceOptions, StorePlace
    from ks_actors.records import Batch


class _Rows(InputPartition):
    """A partition of a store: from a task of a snapshot, or from an app."""

    def __init__(self, partition: int, topic: str, where: str, task: str = "") -> None:
        super().__init__(partition)
        self.partition = partition
        self.topic = topic
        self.where = where
        self.task = task


class StoreReader(DataSourceReader):
    """Reader of a store, each partition in its own task, with the columns of its changelog."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        assert options.place is not None
        self._options = options
        self._place: StorePlace = options.place
        self._schema: Any = to_arrow_schema(schema, timezone="UTC")
        self._pushed = Pushed(offsets=False)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - pyspark's name
        """Take filters on topics, partitions and keys; yield the rest for Spark."""
        yield from self._pushed.take(filters)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the wanted partitions that exist now.

        Raises ConfigError, and the errors of SnapshotReader and LiveStores.
        """
        found = self._in_snapshot() if self._place.snapshot is not None else self._in_apps()
        return [one for one in found if self._pushed.wants(one.partition, one.topic)]

    def _in_snapshot(self) -> list[_Rows]:
        store, snapshot = self._place.store, self._opened()
        tasks = {
            task: content.stores[store]
            for task, content in snapshot.manifest.tasks.items()
            if store in content.stores
        }
        if not tasks:
            known = sorted(
                {name for content in snapshot.manifest.tasks.values() for name in content.stores}
            )
            raise SnapshotRefused(
                f"{snapshot.place} has no store {store}; it has {', '.join(known) or 'none'}"
            )
        self._check_kind({each.shape.kind for each in tasks.values()}.pop())
        rows = [
            _Rows(TaskId.parse(task).partition, each.changelog or store, snapshot.place.uri, task)
            for task, each in tasks.items()
        ]
        return sorted(rows, key=lambda one: one.partition)

    def _opened(self) -> SnapshotReader:
        uri, application_id = self._place.snapshot, self._place.application_id
        place = Place.of(uri or "")
        if place.at(MANIFEST).read() is not None:
            return SnapshotReader.open(place, application_id=application_id)
        if application_id is None:
            raise ConfigError(
                f"application_id: is required to find the newest snapshot below {place}, which "
                "is not a snapshot itself"
            )
        found, refused = find_snapshots(place, application_id)
        if not found:
            reasons = "".join(f"; {error}" for error in refused)
            raise SnapshotRefused(
                f"{place} has no complete snapshot of application {application_id}{reasons}"
            )
        return found[0]

    def _in_apps(self) -> list[_Rows]:
        place, rows, count = self._place, dict[int, _Rows](), 0
        for address in place.live:
            with LiveStores(address, place.token) as app:
                described = app.describe(place.store, stale=place.stale)
            self._check_kind(described.kind)
            count = described.count
            for number in described.partitions:
                rows.setdefault(number, _Rows(number, described.changelog or place.store, address))
        if missing := [
            number for number in range(count) if number not in rows and self._pushed.wants(number)
        ]:
            names = ", ".join(map(str, missing))
            raise ConfigError(
                f"live: partitions {names} of store {place.store} are at none of "
                f"{', '.join(place.live)}: name all instances, with commas between them"
            )
        return [rows[number] for number in sorted(rows)]

    def _check_kind(self, kind: str) -> None:
        wanted = bare_kind(kind)
        if wanted == CUSTOM:
            raise ConfigError(
                f"store {self._place.store} is a custom store, and only your code can read its "
                "rows: read its changelog as a topic"
            )
        if wanted == VERSIONED:
            raise ConfigError(
                f"store {self._place.store} is versioned: read it from its changelog, by log, with "
                f"store_kind={wanted}"
            )
        if wanted != self._options.store_kind:
            raise ConfigError(
                f"store_kind: store {self._place.store} is of kind {wanted}, not "
                f"{self._options.store_kind}: change the option"
            )

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Read one partition; runs in a task."""
        with carried():
            records = Records(self._options, self._schema, partition.topic, self._pushed.keys)
            where = LogRange(partition.topic, partition.partition, 0, 0)
            batches = (
                self._snapshot_rows(partition)
                if self._place.snapshot is not None
                else self._live_rows(partition, records)
            )
            yield from records.of(batches, where)

    def _snapshot_rows(self, one: _Rows) -> Iterator[Batch]:
        yield from SnapshotReader.open(one.where).batches(one.task, self._place.store)

    def _live_rows(self, one: _Rows, records: Records) -> Iterator[Batch]:
        place = self._place
        with LiveStores(one.where, place.token) as app:
            request = ReadRows(
                place.store, one.partition, records.encoded_keys(), place.committed, place.stale
            )
            if len(encode(request)) > MOST_BYTES:
                # The keys exceed the app's limit for a request: read all rows, `records` filters
                # them.
                request = replace(request, keys=None)
            yield from app.rows(request)
