"""A node's context that is real but small, dict stores for it, and a rig that runs one operator both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from ks_actors._errors import ProcessingFailed, StreamsError
from ks_actors.processors.api._operator import Bound, Operator, Process, ProcessBatch, RecordMetadata
from ks_actors.processors.api._update_cache import Cache
from ks_actors.records._batch import Batch, Headers
from ks_actors.records._task_id import TaskId
from ks_actors.serdes import Serde
from ks_actors.task._record_context import RecordContextHolder
from ks_actors.task.origins._record_origins import RecordOrigins

Entry = tuple[Any, int]


class Copies:
    """Stores keep a value as it was put, even if somebody changes the object that was put or read."""

    mutable = True
    bound = 0

    def admit(self, key: Any, value: Any) -> Any:
        return deepcopy(value)

    def check_key(self, key: Any) -> None:
        """Take any key."""


class DictStore(Copies):
    """A timestamped key-value store."""

    count_up = None

    def __init__(self) -> None:
        self.entries: dict[Any, Entry] = {}
        self.broken: set[Any] = set()

    def get_entry(self, key: Any) -> Entry | None:
        if key in self.broken:
            raise TypeError(f"cannot serialize {key!r}")
        return deepcopy(self.entries.get(key))

    def value_bytes(self, key: Any) -> bytes | None:
        value, _ = self.get_entry(key) or (None, 0)
        return None if value is None else str(value).encode()

    def put_entry(self, key: Any, entry: Entry | None) -> None:
        if entry is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = deepcopy(entry)


class DictWindowStore(Copies):
    """A timestamped window store that forgets windows that start `retention_ms` or more before the latest start put into it."""

    counts = False

    def __init__(self, retention_ms: int = 2**63 - 1) -> None:
        self.entries: dict[tuple[Any, int], Entry] = {}
        self.retention_ms: int = retention_ms
        self.time: int = -1
        self.broken: set[Any] = set()

    def get_entry(self, key: Any, start: int) -> Entry | None:
        if key in self.broken:
            raise TypeError(f"cannot serialize {key!r}")
        return deepcopy(self.entries.get((key, start))) if self._kept(start) else None

    def put_entry(self, key: Any, start: int, entry: Entry | None) -> None:
        self.time = max(self.time, start)
        if entry is None:
            self.entries.pop((key, start), None)
        elif self._kept(start):
            self.entries[key, start] = deepcopy(entry)

    def fetch_entries(self, key: Any, first: int, last: int) -> list[tuple[int, Entry]]:
        return sorted(
            (start, deepcopy(entry)) for (of, start), entry in self.entries.items() if of == key and first <= start <= last and self._kept(start)
        )

    def fetch_all_entries(self, first: int, last: int) -> list[tuple[Any, int, Entry]]:
        found = [(key, start, deepcopy(entry)) for (key, start), entry in self.entries.items() if first <= start <= last and self._kept(start)]
        return sorted(found, key=lambda row: (row[1], row[0]))

    def _kept(self, start: int) -> bool:
        return start > self.time - self.retention_ms


class Row(NamedTuple):
    """A record that was forwarded."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers
    offset: int | None


class Failure(NamedTuple):
    """A record that the handler was asked about."""

    error: str
    key: Any
    value: Any
    timestamp: int
    headers: Headers
    offset: int | None


class Node:
    """The context of one node, with the lists `rows` and `batches` as its children."""

    application_id: str = "app"
    kafka_streams_faults: bool = False
    leaves_out: bool = False
    caching: bool = False
    task_id: TaskId = TaskId(0, 0)
    node: str = "NODE"
    children: Mapping[str, Process] = {}
    children_batch: Mapping[str, ProcessBatch] = {}

    def __init__(self, stores: Mapping[str, Any], *, go_on: bool = True) -> None:
        self.stores: Mapping[str, Any] = stores
        self.go_on: bool = go_on
        self.rows: list[Row] = []
        self.batches: list[int] = []
        self.failures: list[Failure] = []
        self.dropped_count: int = 0
        self.offset: int | None = None
        self.progress: dict[str, int] = {}
        self.time: int = -1
        self.commits: int = 0
        self.scheduled: list[tuple[int, str, int | None]] = []
        self.callbacks: list[Callable[[int], None]] = []
        self.metadata: RecordMetadata | None = None
        self.snapshot: Callable[[Any], Any] = lambda value: value

    def forward(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        self.rows.append(Row(key, self.snapshot(value), timestamp, headers, self.offset))

    def forward_batch(self, batch: Batch) -> None:
        count = len(batch)
        assert count > 0, "nothing is forwarded as nothing, not as an empty batch"
        assert len(batch.keys) == len(batch.values) == count
        assert batch.headers is None or len(batch.headers) == count
        self.batches.append(count)
        headers = batch.headers or [()] * count
        offsets: Sequence[int | None] = batch.offsets or [None] * count
        assert len(offsets) == count
        values = [self.snapshot(value) for value in batch.values]
        self.rows.extend(map(Row, batch.keys, values, batch.timestamps, headers, offsets))

    def store(self, name: str) -> Any:
        return self.stores[name]

    def cache(self, store: str, *, send_old: bool) -> Cache | None:
        return None

    def origins(self) -> RecordOrigins:
        return RecordOrigins(RecordContextHolder())

    def schedule(self, interval_ms: int, punctuation: str, callback: Callable[[int], None], start_ms: int | None = None) -> Callable[[], None]:
        self.scheduled.append((interval_ms, punctuation, start_ms))
        self.callbacks.append(callback)
        return lambda: None

    def when_idle(self, after_ms: int, node: Any) -> None:
        """Nothing is idle here: time stands still."""

    def when_made(self, make: Callable[[], None], init: Callable[[], None]) -> None:
        make()
        init()

    def dropped(self, count: int = 1, *, told: bool = True) -> None:
        self.dropped_count += count

    def failed(self, error: BaseException, key: Any, value: Any, timestamp: int, headers: Headers, offset: int | None = None) -> None:
        if isinstance(error, StreamsError):
            raise error
        self.failures.append(Failure(str(error), key, value, timestamp, headers, self.offset if offset is None else offset))
        if not self.go_on:
            raise ProcessingFailed("the handler says so") from error

    def stream_time(self) -> int:
        return self.time

    def wall_time(self) -> int:
        return 1_000

    def key_serde(self, serde: Serde[Any] | None) -> Serde[Any]:
        assert serde is not None
        return serde

    def value_serde(self, serde: Serde[Any] | None) -> Serde[Any]:
        assert serde is not None
        return serde

    def request_commit(self) -> None:
        self.commits += 1

    def record_metadata(self) -> RecordMetadata | None:
        return self.metadata


class Outcome(NamedTuple):
    """The results of one way of running."""

    rows: list[Row]
    dropped: int
    failures: list[Failure]
    stores: dict[str, Any]


def one_by_one(bound: Bound, node: Node, batch: Batch) -> None:
    """Run the record form as the runtime does, with its guard."""
    headers = batch.headers or [()] * len(batch)
    offsets: Sequence[int | None] = batch.offsets or [None] * len(batch)
    for key, value, timestamp, header, offset in zip(batch.keys, batch.values, batch.timestamps, headers, offsets, strict=True):
        node.offset = offset
        try:
            bound.process(key, value, timestamp, header)
        except Exception as error:  # noqa: BLE001 - as the runtime does
            node.failed(error, key, value, timestamp, header)


def run(
    operator: Operator, stores: Mapping[str, Any], batches: Sequence[Batch], *, in_batches: bool, snapshot: Callable[[Any], Any] | None = None
) -> Outcome:
    """Run an operator over batches, in its record form or its batch form."""
    node = Node(stores)
    if snapshot is not None:
        node.snapshot = snapshot
    bound = operator.bind(node)
    for batch in batches:
        if in_batches:
            assert bound.batch is not None
            bound.batch(batch)
        else:
            one_by_one(bound, node, batch)
    bound.close()
    return Outcome(node.rows, node.dropped_count, node.failures, {name: store.entries for name, store in stores.items()})
