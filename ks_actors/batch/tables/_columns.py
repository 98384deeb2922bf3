"""Records as Arrow columns."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ks_actors._errors import ConfigError, SerializationError
from ks_actors.batch.tables._arrow_types import micros
from ks_actors.batch.tables._objects import plain
from ks_actors.records import Batch, window_at
from ks_actors.snapshots import SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.batch._reading import LogRange
    from ks_actors.records import CustomWindows

_SUFFIXES = {"window": SUFFIXES["window"], "session": SUFFIXES["session"]}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def headers_column(batch: Batch) -> pa.Array:
    """Return the headers of a batch as lists, empty where there are none."""
    found = [()] * len(batch) if batch.headers is None else batch.headers
    return pa.array(
        [[{"key": key, "value": value} for key, value in one] for one in found], HEADERS
    )


class TopicColumns:
    """Convert batches of a topic to record batches of a schema.

    The schema selects the columns; a column without a decoder stays bytes. Keys of a windowed store
    of this `kind` are split into key and window. `windows` is the length of windows in ms, or
    computes the ends of windows; session keys contain the ends. With `ready` the decoders return
    values that Arrow accepts. `advice` is appended to the error about data that cannot be decoded.
    """

    def __init__(
        self,
        schema: pa.Schema,
        decode_key: Callable[[bytes], Any] | None,
        decode_value: Callable[[bytes], Any] | None,
        kind: str = "",
        windows: int | CustomWindows = 0,
        *,
        ready: bool = False,
        advice: str = "",
    ) -> None:
        self._schema = schema
        self._decoders = {"key": decode_key, "value": decode_value}
        self._ready = ready
        self._advice = advice
        self._suffix = _SUFFIXES.get(kind)
        self._sessions = kind == "session"
        self._ends = cache(lambda start: _end(windows, start))
        self._windows: list[tuple[int, int]] = []

    def of(self, batch: Batch, where: LogRange) -> pa.RecordBatch:
        """Return the columns of a batch.

        Raises SerializationError with the place of the data that cannot be decoded, and ConfigError
        for a type that does not fit the objects of a serde.
        """
        try:
            return self._of(batch, where)
        except ConfigError:
            raise
        except Exception as error:
            raise self.blamed(batch, where, error) from error

    def blamed(self, batch: Batch, where: LogRange, error: Exception) -> SerializationError:
        """Return the error about the first key or value of a batch that cannot be decoded."""
        place = f"{where.topic}-{where.partition}"
        for number, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            for field in self._schema:
                if field.name not in self._decoders:
                    continue
                data = value if field.name == "value" or key is None else self.key_of(key)
                try:
                    self._decoded(field.name, [data], field.type)
                except Exception as found:  # noqa: BLE001 - the error tells it
                    at = f"offset {batch.offsets[number]}" if len(batch.offsets) else f"key {key!r}"
                    return SerializationError(
                        f"{place}: the {field.name} at {at} is not of its serde's type, or not of "
                        f"the type {field.type}: {type(found).__name__}: {found}. {self._advice}"
                    )
        return SerializationError(f"{place}: {type(error).__name__}: {error}")

    def _of(self, batch: Batch, where: LogRange) -> pa.RecordBatch:
        suffix = self._suffix
        if suffix is not None:
            keys: list[Any] = batch.keys
            self._windows = [suffix.unpack_from(key, len(key) - suffix.size) for key in keys]
            batch = Batch(
                list(map(self.key_of, keys)),
                batch.values,
                batch.timestamps,
                batch.headers,
                batch.offsets,
            )
        return pa.RecordBatch.from_arrays(
            [self._column(field, batch, where) for field in self._schema], schema=self._schema
        )

    def key_of(self, key: bytes) -> bytes:
        """Return a key without its window."""
        return key if self._suffix is None else key[: -self._suffix.size]

    def _column(self, field: pa.Field, batch: Batch, where: LogRange) -> pa.Array:
        name = field.name
        if name in self._decoders:
            return self._decoded(name, batch.keys if name == "key" else batch.values, field.type)
        if name == "headers":
            return headers_column(batch)
        columns: dict[str, Callable[[], list[Any]]] = {
            "topic": lambda: [where.topic] * len(batch),
            "partition": lambda: [where.partition] * len(batch),
            "offset": lambda: list(batch.offsets) if len(batch.offsets) else [None] * len(batch),
            "timestamp": lambda: [None if time < 0 else micros(time) for time in batch.timestamps],
            "window_start": lambda: [
                micros(found[1 if self._sessions else 0]) for found in self._windows
            ],
            "window_end": lambda: [micros(self._ends(found[0])) for found in self._windows],
        }
        return pa.array(columns[name](), field.type)

    def _decoded(self, name: str, column: list[bytes | None], kind: pa.DataType) -> pa.Array:
        decode = self._decoders[name]
        if decode is None:
            return pa.array(column, kind)
        objects = [None if data is None else decode(data) for data in column]
        return pa.array(objects if self._ready else plain(f"{name}_type", objects, kind), kind)


def _end(windows: int | CustomWindows, start: int) -> int:
    """Return the end (ms) of the window that begins at `start`."""
    return start + windows if isinstance(windows, int) else window_at(windows, start).end


def latest(batches: Any, *, versioned: bool = False) -> Batch:
    """Return the last record of each key, in offset order, without tombstones, as after compaction.

    The changelog of a versioned store has versions in the order of their puts, including late puts.
    There the last record is the record with the latest timestamp.
    """
    last: dict[bytes | None, tuple[int, bytes | None, int, Any]] = {}
    for batch in batches:
        headers = [()] * len(batch) if batch.headers is None else batch.headers
        for key, value, time, header, offset in zip(
            batch.keys, batch.values, batch.timestamps, headers, batch.offsets, strict=True
        ):
            # A late version of a versioned store comes later in the log, but it is not the latest
            # row.
            if key is None or (versioned and key in last and time < last[key][2]):
                continue
            if value is None and not versioned:
                last.pop(key, None)
            else:
                last[key] = (offset, value, time, header)
    # Offsets are unique, so no two keys or values are ever compared.
    rows = sorted(
        (offset, key, value, time, header)
        for key, (offset, value, time, header) in last.items()
        if value is not None
    )
    return Batch(
        [r[1] for r in rows],
        [r[2] for r in rows],
        [r[3] for r in rows],
        [r[4] for r in rows],
        [r[0] for r in rows],
    )
