"""Records in the middle of a stream as an Arrow table, and back. Imports pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ks_actors._errors import BatchError
from ks_actors.batch.tables._arrow_types import micros
from ks_actors.batch.tables._objects import objects_of, plain
from ks_actors.processors import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TIME: Final = pa.timestamp("us", tz="UTC")
_COLUMNS: Final = ("key", "value", "timestamp", "headers")


def table_of(
    records: Sequence[Record[Any, Any]], key: pa.DataType | None, value: pa.DataType | None
) -> pa.Table:
    """Return records as rows: key, value, timestamp, headers. Infer the types that are None."""
    headers = [
        [{"key": name, "value": data} for name, data in record.headers] for record in records
    ]
    columns = [
        _column("key", [record.key for record in records], key),
        _column("value", [record.value for record in records], value),
        pa.array([micros(record.timestamp) for record in records], _TIME),
        pa.array(headers, _HEADERS),
    ]
    return pa.Table.from_arrays(columns, names=list(_COLUMNS))


def _column(name: str, objects: list[Any], kind: pa.DataType | None) -> pa.Array:
    values = plain(f"{name}_type", objects, kind)
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        wanted, advice = (
            ("a column of their own type", f"give their type as {name}_type")
            if kind is None
            else (f"of type {kind}", f"give another {name}_type")
        )
        raise BatchError(
            f"the {name}s of these records cannot be {wanted}: {error}; {advice}"
        ) from error


def records_of(rows: pa.Table, timestamp: int) -> list[Record[Any, Any]]:
    """Return rows as records; those without a timestamp get `timestamp` (ms).

    Raises BatchError unless the columns are key and value, with optional timestamp and headers.
    """
    names = rows.column_names
    if not {"key", "value"} <= set(names) <= set(_COLUMNS):
        raise BatchError(
            f"the returned rows have the columns {', '.join(names)}: return key and value, "
            "optional timestamp and headers, and nothing else; put several columns into one by "
            "struct(...)"
        )
    keys, values = objects_of(rows.column("key")), objects_of(rows.column("value"))
    times = [timestamp] * len(keys)
    if "timestamp" in names:
        times = [timestamp if time is None else time for time in _times(rows.column("timestamp"))]
    if "headers" not in names:
        return list(map(Record, keys, values, times))
    headers = [
        tuple((each["key"], each["value"]) for each in one or ())
        for one in rows.column("headers").to_pylist()
    ]
    return list(map(Record, keys, values, times, headers))


def _times(column: pa.ChunkedArray) -> list[int | None]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    if not pa.types.is_integer(column.type):
        raise BatchError(
            f"the timestamps of the returned rows are of type {column.type}: return timestamps, or "
            "whole numbers of ms"
        )
    found: list[int | None] = column.to_pylist()
    return found
