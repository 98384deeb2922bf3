"""Columns of ksql's relations: their types, and their values as they stand in a specification."""

from __future__ import annotations

import base64
import csv
import io
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tests.judges.ksql import times, values
from tests.judges.ksql.reasons import LeftOut, Unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

    Json = Mapping[str, Any]

FORMATS: Final = ("AVRO", "DELIMITED", "JSON", "JSON_SR", "KAFKA", "NONE", "PROTOBUF", "PROTOBUF_NOSR")
# Null in a field of Protobuf is the type's empty value, unless the field says that it is optional.
EMPTY: Final[dict[str, Any]] = {"STRING": "", "INTEGER": 0, "BIGINT": 0, "DOUBLE": 0.0, "BOOLEAN": False, "BYTES": b"", "ARRAY": (), "MAP": {}}
# A double has no more digits: a file of cases that went through doubles may have lost others.
DIGITS: Final = 17
DELIMITERS: Final = {"SPACE": " ", "TAB": "\t"}


@dataclass(frozen=True)
class Column:
    name: str
    kind: str
    header: str | None = None


@dataclass(frozen=True)
class Columns:
    """The columns of a key or a value, in a format."""

    columns: tuple[Column, ...]
    format: str
    properties: Json
    features: tuple[str, ...]
    is_key: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def is_bare(self) -> bool:
        """Whether the only column stands without its name."""
        if len(self.columns) != 1:
            return False
        return self.format == "KAFKA" or "UNWRAP_SINGLES" in self.features

    def read(self, given: Any) -> tuple[Any, ...] | None:
        """Return the columns' values. Raises Unreadable for what ksql cannot read."""
        if given is None or not self.columns:
            return None
        try:
            return self._filled(self._read(given))
        except (ValueError, TypeError, ArithmeticError) as error:
            raise Unreadable(str(error)) from error

    def _read(self, given: Any) -> list[Any]:
        if self.format == "DELIMITED":
            return self._delimited(given if isinstance(given, str) else values.text(given))
        if self.is_bare:
            return [read(given, self.columns[0].kind)]
        if not isinstance(given, dict):
            if len(self.columns) == 1 and self.is_key:
                return [read(given, self.columns[0].kind)]
            raise Unreadable(f"no object: {given!r}")
        found = {name.upper(): value for name, value in given.items()} | given
        return [read(found.get(column.name, found.get(column.name.upper())), column.kind) for column in self.columns]

    def _delimited(self, line: str) -> list[Any]:
        named = self.properties.get("delimiter") or ","
        found = next(csv.reader(io.StringIO(line), delimiter=DELIMITERS.get(named, named)), [""])
        if len(found) != len(self.columns):
            raise Unreadable(f"{len(found)} columns")
        return [None if not text else read(text, column.kind) for text, column in zip(found, self.columns, strict=True)]

    def _filled(self, row: list[Any]) -> tuple[Any, ...]:
        """Return a row as a reader of its format sees it."""
        if not self.format.startswith("PROTOBUF") or self.properties.get("nullableRepresentation") or self.is_bare:
            return tuple(row)
        return tuple(_filled(value, column.kind) for value, column in zip(row, self.columns, strict=True))

    def written(self, row: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
        """Return the values of a row of the application, as a reader of its topic sees them."""
        if row is None or not self.columns:
            return None
        made = self._filled([fitted(row[column.name], column.kind) for column in self.columns])
        return None if self.is_bare and made == (None,) else made

    def written_key(self, key: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        return None if key is None else self.written(dict(zip(self.names, key, strict=True)))


@dataclass(frozen=True)
class Relation:
    """A topic with its columns."""

    topic: str
    key: Columns
    value: Columns
    headers: tuple[Column, ...]
    window: Json | None

    @property
    def window_ms(self) -> int | None:
        """The length of its keys' windows; None for sessions."""
        size = (self.window or {}).get("size")
        return None if size is None else duration_ms(size)


def relation(topic: str, schema: str, formats: Json, window: Json | None = None) -> Relation:
    for each in (formats["keyFormat"], formats["valueFormat"]):
        if each["format"] not in FORMATS:
            raise LeftOut(f"format {each['format']}")
    keys, columns, headers = [], [], []
    for each in values.parts(schema):
        match = re.match(r"`([^`]+)`\s+(.*?)(\s+(?:PRIMARY )?KEY|\s+HEADERS|\s+HEADER\('([^']*)'\))?$", each, re.DOTALL)
        if match is None:
            raise LeftOut(f"schema {each}")
        name, kind, role, header = match.groups()
        if role and role.strip().endswith("KEY"):
            keys.append(Column(name, kind))
        elif role:
            headers.append(Column(name, kind, header))
        else:
            columns.append(Column(name, kind))
    sides = [
        Columns(
            tuple(side),
            formats[f"{role}Format"]["format"],
            formats[f"{role}Format"].get("properties") or {},
            _features(formats, role),
            role == "key",
        )
        for role, side in (("key", keys), ("value", columns))
    ]
    return Relation(topic, sides[0], sides[1], tuple(headers), window)


def read(given: Any, kind: str) -> Any:  # noqa: C901, PLR0911, PLR0912 - one for each type
    """Return a value of JSON as one of the type. Raises ValueError or TypeError for one that has no such form."""
    if given is None:
        return None
    name, inner = values.split_type(kind)
    match name:
        case "STRING":
            return given if isinstance(given, str) else values.json_text(given) if isinstance(given, dict | list) else values.text(given)
        case "INTEGER" | "BIGINT":
            if isinstance(given, bool):
                raise TypeError(f"{given!r} is no {kind}")
            return int(given)
        case "DOUBLE":
            return float(given)
        case "BOOLEAN":
            return _boolean(given)
        case "DECIMAL":
            return _decimal(given, kind)
        case "BYTES":
            return base64.b64decode(given, validate=True)
        case "TIMESTAMP":
            return times.of_ms(int(given))
        case "DATE":
            return times.date_of_days(int(given))
        case "TIME":
            return times.time_of_ms(int(given))
        case "ARRAY":
            return [read(each, inner) for each in given]
        case "MAP":
            of_key, of_value = values.parts(inner)
            return {read(key, of_key): read(each, of_value) for key, each in given.items()}
        case "STRUCT":
            found = {key.upper(): each for key, each in given.items()} | given
            return {field: read(found.get(field, found.get(field.upper())), of) for field, of in values.fields(inner)}
    raise LeftOut(f"type {name}")


def fitted(value: Any, kind: str) -> Any:  # noqa: PLR0911 - one for each type
    """Return a value of the application in the type of its column: numbers in its precision."""
    if value is None:
        return None
    name, inner = values.split_type(kind)
    match name:
        case "DOUBLE":
            return float(value)
        case "DECIMAL":
            return values.cast(value, kind)
        case "DATE" | "TIME" | "TIMESTAMP" if isinstance(value, str):
            return values.cast(value, kind)
        case "INTEGER" | "BIGINT" if isinstance(value, Decimal):
            return int(value)
        case "ARRAY":
            return [fitted(each, inner) for each in value]
        case "MAP":
            of_key, of_value = values.parts(inner)
            return {fitted(key, of_key): fitted(each, of_value) for key, each in value.items()}
        case "STRUCT":
            return {field: fitted(value.get(field), of) for field, of in values.fields(inner)}
    return value


def duration_ms(given: Any) -> int:
    """Return a duration of a plan in ms: an object with its unit, or seconds."""
    if isinstance(given, dict):
        return int(given["value"]) * times.UNITS[given["timeUnit"]]
    return int(given * 1000)


def _features(formats: Json, role: str) -> tuple[str, ...]:
    """Return a side's features; before ksql 0.12 the options of both sides had the value's."""
    old = ("UNWRAP_SINGLES",) if role == "value" and "UNWRAP_SINGLE_VALUES" in (formats.get("options") or ()) else ()
    return (*(formats.get(f"{role}Features") or ()), *old)


def _decimal(given: Any, kind: str) -> Any:
    if isinstance(given, Decimal) and len(given.as_tuple().digits) >= DIGITS:
        raise LeftOut("a number that may have lost digits in the file of cases")
    return values.cast(Decimal(given) if isinstance(given, str) else given, kind)


def _boolean(given: Any) -> bool:
    if isinstance(given, str) and given.lower() in {"true", "false"}:
        return given.lower() == "true"
    if not isinstance(given, bool):
        raise TypeError(f"{given!r} is no BOOLEAN")
    return given


def _filled(value: Any, kind: str) -> Any:
    name, inner = values.split_type(kind)
    if value is None:
        empty = EMPTY.get(name)
        return list(empty) if name == "ARRAY" and empty is not None else empty
    match name:
        case "STRUCT":
            return {field: _filled(value.get(field), of) for field, of in values.fields(inner)}
        case "ARRAY":
            return [_filled(each, inner) for each in value]
        case "MAP":
            return {key: _filled(each, values.parts(inner)[1]) for key, each in value.items()}
    return value
