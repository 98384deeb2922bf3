"""The options of `spark.read.format("ks_actors")`."""

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
    "snapshot",
    "live",
    "token",
    "isolation",
    "stale",
    "store_kind",
}
_OF_TOPICS = {
    "log_options",
    "starting_offsets",
    "ending_offsets",
    "starting_timestamp_ms",
    "ending_timestamp_ms",
    "max_records_per_task",
    "latest",
}
_OF_LIVE = {"token", "isolation", "stale"}
_ISOLATIONS = {"read_committed": True, "read_uncommitted": False}
KEY_VALUE, WINDOW, SESSION, VERSIONED, CUSTOM = (
    "key_value",
    "window",
    "session",
    "versioned",
    "custom",
)
_Offsets = dict[str, dict[int, int]]


class StorePlace(msgspec.Struct, frozen=True):
    """Location of a store outside the log: a snapshot, or running apps."""

    store: str
    application_id: str | None
    snapshot: str | None = None
    live: tuple[str, ...] = ()
    token: str = ""
    committed: bool | None = None
    stale: bool = False

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the fields with the token hidden, as printed values end up in logs."""
        return [
            (name, "***" if name == "token" else getattr(self, name))
            for name in self.__struct_fields__
        ]

    def __repr__(self) -> str:
        return (
            f"StorePlace({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"
        )


class SourceOptions(msgspec.Struct, frozen=True):
    """The parsed and checked options. `place` is set for a store outside the log."""

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
    place: StorePlace | None
    store_kind: str

    @property
    def ddl(self) -> str:
        """The columns with their types, as Spark's DDL."""
        kinds = {
            "topic": "string",
            "partition": "int",
            "offset": "bigint",
            "timestamp": "timestamp",
            "key": self.key_type,
            "value": self.value_type,
            "headers": "array<struct<key: string, value: binary>>",
            "window_start": "timestamp",
            "window_end": "timestamp",
        }
        return ", ".join(f"{name} {kinds[name]}" for name in self.columns)


COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
OF_WINDOWS = {
    KEY_VALUE: (),
    WINDOW: ("window_start",),
    SESSION: ("window_start", "window_end"),
    VERSIONED: (),
}
"""The extra columns of windowed stores, by kind."""


def known_columns(kind: str) -> tuple[str, ...]:
    """Return all columns of a kind of store."""
    return COLUMNS + OF_WINDOWS[kind]


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Return the options. Raises ConfigError with all errors."""
    # Spark ignores the case of option names.
    options = {name.lower(): value for name, value in given.items()}
    kind = options.get("store_kind", KEY_VALUE)
    columns = (
        tuple(name.strip() for name in options["columns"].split(","))
        if "columns" in options
        else known_columns(kind if kind in OF_WINDOWS else KEY_VALUE)
    )
    wrong = _wrong(options, columns, kind)
    if wrong:
        raise ConfigError("; ".join(wrong))
    store = options.get("store")
    topics = (
        options["topic"] if store is None else f"{options.get('application_id')}-{store}-changelog"
    )
    numbers = {
        name: _number(options, name)
        for name in ("starting_timestamp_ms", "ending_timestamp_ms", "max_records_per_task")
    }
    return SourceOptions(
        LogAddress(options.get("log", ""), _json(options, "log_options", dict[str, Any])),
        tuple(name.strip() for name in topics.split(",")),
        _flag(options, "latest", store is not None),
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
        None if "log" in options else _place(options),
        kind,
    )


def _wrong(options: Mapping[str, str], columns: tuple[str, ...], kind: str) -> list[str]:
    """Return the errors, apart from those of single values."""
    wrong = [
        f"{name}: is not an option; the options are {', '.join(sorted(_KNOWN))}"
        for name in sorted(set(options) - _KNOWN)
    ]
    places = [name for name in ("log", "snapshot", "live") if name in options]
    if not places:
        wrong.append("log: is required; a store may have snapshot or live instead")
    elif len(places) > 1:
        wrong.append(f"{', '.join(places)}: give only one of them")
    elif places != ["log"]:
        wrong += [
            f"{name}: is for topics, and this reads a store from {places[0]}"
            for name in sorted(_OF_TOPICS & set(options))
        ]
    if places != ["live"]:
        wrong += [f"{name}: is for live stores" for name in sorted(_OF_LIVE & set(options))]
    else:
        wrong += _wrong_about_live(options)
    if ("topic" in options) == ("store" in options):
        wrong.append("topic, store: give exactly one of them")
    if "topic" in options and places and places != ["log"]:
        wrong.append(f"topic: is read from a log, not from {places[0]}")
    if "store" in options and "application_id" not in options and places == ["log"]:
        wrong.append(
            "application_id: is required for a store, because its changelog begins with it"
        )
    return wrong + _wrong_about_kind(options, columns, kind, places)


def _wrong_about_live(options: Mapping[str, str]) -> list[str]:
    wrong = []
    if "token" not in options:
        wrong.append("token: is required for live stores: give the token of App.serve_stores")
    if not _addresses(options):
        wrong.append(
            "live: names no app: give host:port, the address of App.serve_stores, or several with "
            "commas between them"
        )
    if options.get("isolation", "read_committed") not in _ISOLATIONS:
        wrong.append(
            f"isolation: {options['isolation']!r} does not exist; possible are "
            f"{', '.join(_ISOLATIONS)}"
        )
    return wrong


def _wrong_about_kind(
    options: Mapping[str, str], columns: tuple[str, ...], kind: str, places: list[str]
) -> list[str]:
    if kind not in OF_WINDOWS:
        return [f"store_kind: {kind!r} does not exist; possible are {', '.join(OF_WINDOWS)}"]
    if kind != KEY_VALUE and "store" not in options:
        return ["store_kind: is for stores, and this reads a topic"]
    if kind == VERSIONED and places and places != ["log"]:
        return [
            (
                "store_kind: a versioned store is read from its changelog, by log, not "
                f"from {places[0]}"
            )
        ]
    return [
        f"columns: {name!r} does not exist; possible are {', '.join(known_columns(kind))}"
        for name in columns
        if name not in known_columns(kind)
    ]


def _place(options: Mapping[str, str]) -> StorePlace:
    return StorePlace(
        options["store"],
        options.get("application_id"),
        options.get("snapshot"),
        _addresses(options),
        options.get("token", ""),
        _ISOLATIONS.get(options.get("isolation", "")),
        _flag(options, "stale", default=False),
    )


def _addresses(options: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(each.strip() for each in options.get("live", "").split(",") if each.strip())


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise ConfigError(f"{name}: {text!r} is neither true nor false")
    return text == "true"


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise ConfigError(f"{name}: {text!r} is not a whole number")
    return int(text)


def _json(options: Mapping[str, str], name: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(options.get(name, "{}"), type=kind)
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f'{name}: expected a value such as {{"topic": {{"0": 100}}}}: {error}'
        ) from error


def serde_of(name: str) -> Serde[Any]:
    """Return a serde by its dotted name, such as `ks_actors.serdes.STRING`. Raises ConfigError."""
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{name!r} is not a serde that can be imported: {error}") from error
    if not isinstance(found, Serde):
        raise ConfigError(f"{name!r} is not a serde, but {found!r}")
    return found


def _sql_type(serde: str | None, option: str) -> str:
    if serde is None:
        return "binary"
    found = serde_of(serde)
    kind = next((kind for known, kind in _SQL_TYPES if known is found), None)
    if kind is None:
        raise ConfigError(
            f"{option}: is required for {serde}: Spark's type of its values, such as 'string' or "
            "'struct<a: int, b: string>'"
        )
    return kind
