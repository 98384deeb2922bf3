"""What `spark.read.format("ks_actors")` may be told."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import msgspec

from ks_actors._errors import ConfigError
from ks_actors.batch._reading import Bounds, LogAddress
from ks_actors.serdes import BOOLEAN, BYTES, DOUBLE, FLOAT, INTEGER, LONG, SHORT, STRING, Serde

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_PER_TASK = 2_000_000
_SQL_TYPES: list[tuple[Serde[Any], str]] = [
    (STRING, "string"),
    (BYTES, "binary"),
    (SHORT, "smallint"),
    (INTEGER, "int"),
    (LONG, "bigint"),
    (FLOAT, "float"),
    (DOUBLE, "double"),
    (BOOLEAN, "boolean"),
]
_KNOWN = {
    "log",
    "log_options",
    "topic",
    "store",
    "application_id",
    "latest",
    "columns",
    "key_serde",
    "value_serde",
    "key_type",
    "value_type",
    "starting_offsets",
    "ending_offsets",
    "starting_timestamp_ms",
    "ending_timestamp_ms",
    "max_records_per_task",
    "path",
}
_Offsets = dict[str, dict[int, int]]


class SourceOptions(msgspec.Struct, frozen=True):
    """The options, read and checked."""

    address: LogAddress
    topics: tuple[str, ...]
    latest: bool
    columns: tuple[str, ...]
    key_serde: str | None
    value_serde: str | None
    key_type: str
    value_type: str
    bounds: Bounds
    most: int

    @property
    def ddl(self) -> str:
        """The columns with their types, as Spark has them."""
        kinds = {
            "topic": "string",
            "partition": "int",
            "offset": "bigint",
            "timestamp": "timestamp",
            "key": self.key_type,
            "value": self.value_type,
            "headers": "array<struct<key: string, value: binary>>",
        }
        return ", ".join(f"{name} {kinds[name]}" for name in self.columns)


COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Return the options. Raises ConfigError, with all that is wrong."""
    options = {name.lower(): value for name, value in given.items()}
    wrong = [f"{name}: is no option; there are {', '.join(sorted(_KNOWN))}" for name in sorted(set(options) - _KNOWN)]
    wrong += [f"{name}: is required" for name in ("log",) if name not in options]
    if ("topic" in options) == ("store" in options):
        wrong.append("topic, store: name one of them")
    if "store" in options and "application_id" not in options:
        wrong.append("application_id: is required for a store: its changelog has the app's name")
    columns = tuple(name.strip() for name in options.get("columns", ",".join(COLUMNS)).split(","))
    wrong += [f"columns: there is no {name!r}; there are {', '.join(COLUMNS)}" for name in columns if name not in COLUMNS]
    if wrong:
        raise ConfigError("; ".join(wrong))
    store = options.get("store")
    topics = options["topic"] if store is None else f"{options['application_id']}-{store}-changelog"
    numbers = {name: _number(options, name) for name in ("starting_timestamp_ms", "ending_timestamp_ms", "max_records_per_task")}
    return SourceOptions(
        LogAddress(options["log"], _json(options, "log_options", dict[str, Any])),
        tuple(name.strip() for name in topics.split(",")),
        options.get("latest", "false" if store is None else "true").lower() == "true",
        columns,
        options.get("key_serde"),
        options.get("value_serde"),
        options.get("key_type") or _sql_type(options.get("key_serde"), "key_type"),
        options.get("value_type") or _sql_type(options.get("value_serde"), "value_type"),
        Bounds(
            numbers["starting_timestamp_ms"],
            numbers["ending_timestamp_ms"],
            _json(options, "starting_offsets", _Offsets),
            _json(options, "ending_offsets", _Offsets),
        ),
        numbers["max_records_per_task"] or _MOST_PER_TASK,
    )


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise ConfigError(f"{name}: {text!r} is no whole number")
    return int(text)


def _json(options: Mapping[str, str], name: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(options.get(name, "{}"), type=kind)
    except msgspec.MsgspecError as error:
        raise ConfigError(f'{name}: is not as expected, such as {{"topic": {{"0": 100}}}}: {error}') from error


def serde_of(name: str) -> Serde[Any]:
    """Return a serde by its dotted name, `ks_actors.serdes.STRING`. Raises ConfigError."""
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{name!r} is no serde that can be imported: {error}") from error
    if not isinstance(found, Serde):
        raise ConfigError(f"{name!r} is no serde, it is {found!r}")
    return found


def _sql_type(serde: str | None, option: str) -> str:
    if serde is None:
        return "binary"
    found = serde_of(serde)
    kind = next((kind for known, kind in _SQL_TYPES if known is found), None)
    if kind is None:
        raise ConfigError(f"{option}: is required for {serde}: Spark's type of what it makes, such as 'string' or 'struct<a: int, b: string>'")
    return kind
