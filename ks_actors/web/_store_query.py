"""The query box: rows of a store, by keys that a person types."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ks_actors._errors import QueryFailed
from ks_actors.serdes import with_default
from ks_actors.topology import StoreKind
from ks_actors.web._answers import Refusal, number, plain, whole
from ks_actors.web._typed_keys import typed_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request

    from ks_actors.app import App
    from ks_actors.query import StoreQueries, StoreScan
    from ks_actors.topology import StoreSpec

_MOST_ROWS: Final = 1_000
_ROWS: Final = 50
_MOST_CHARACTERS: Final = 2_000
_TIMEOUT_S: Final = 5.0
_FOREVER: Final = (1 << 63) - 1
_KEY_VALUE = frozenset(
    {StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.KEY_VALUE_WITH_HEADERS}
)
_WINDOWS = frozenset(
    {StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.WINDOW_WITH_HEADERS}
)

_TIMES: Final = frozenset({"time_from", "time_to"})
_RANGE: Final = frozenset({"from", "to"})
_ALWAYS: Final = frozenset({"as", "limit", "stale", "everywhere"})


class StoreView(msgspec.Struct, frozen=True):
    """A store of the topology: its kind, its serdes, and whether the query box can read it."""

    name: str
    kind: str
    key: str
    value: str
    everywhere: bool
    queryable: bool


class Row(msgspec.Struct, frozen=True):
    """A row of a store; `at` is the start of its window, or its session's start and end."""

    key: Any
    value: Any
    at: Any = None


class Rows(msgspec.Struct, frozen=True):
    """Rows of a store, at most the limit; `more` says that there are others."""

    store: str
    rows: tuple[Row, ...]
    more: bool


def store_views(app: App) -> tuple[StoreView, ...]:
    """Return all stores of the topology by name."""
    topology = app.topology
    specs = {**topology.stores, **topology.global_stores}
    return tuple(
        StoreView(
            name,
            specs[name].kind.value,
            repr(_key_serde(app, specs[name])),
            repr(with_default(specs[name].value, app.config.default_value_serde)),
            name in topology.global_stores,
            specs[name].kind is not StoreKind.CUSTOM,
        )
        for name in sorted(specs)
    )


async def query_store(app: App, request: Request) -> Rows:
    """Return rows by the query string: `key`, or `from` and `to`; `time_from` and `time_to` (ms).

    `from` and `to` do not apply to windows; times do not apply to stores without times.

    `as` says how to read the text of keys: text, json, hex, base64, or auto, which takes the first
    of these that finds rows. `stale` allows standbys, `everywhere` reads all instances. Raises
    Refusal, UnknownStore, QueryFailed and NotRunning.
    """
    name = request.path_params["name"]
    limit = number(request, "limit", _ROWS, most=_MOST_ROWS)
    stale, everywhere = (
        request.query_params.get(which) == "true" for which in ("stale", "everywhere")
    )
    timeout_ms = int(_TIMEOUT_S * 1000)
    store = app.store(name, stale=stale, everywhere=everywhere, timeout_ms=timeout_ms)
    spec = app.topology.stores.get(name) or app.topology.global_stores[name]
    if spec.kind is StoreKind.CUSTOM:
        raise Refusal(400, f"store {name} is a custom store: only its own processors can read it")
    _check_names(request.query_params, spec)
    asked = _Asked(request)
    topic = spec.source_topic or f"{app.config.application_id}-{name}-changelog"
    keys = typed_keys(_key_serde(app, spec), asked.texts, asked.how, topic)
    ways = [_Bounds(asked, each) for each in keys]
    try:
        # A range may be large, and a caller's connection must not hold up a scan for ever.
        async with asyncio.timeout(_TIMEOUT_S):
            return await _first_rows(store, spec, ways, limit)
    except TimeoutError:
        text = f"store {name} did not answer within {_TIMEOUT_S:g} s: ask for fewer rows"
        raise Refusal(504, text) from None


def _check_names(given: Mapping[str, str], spec: StoreSpec) -> None:
    """Raise Refusal for parameters that would be ignored: the answer would not fit the request."""
    ways = [{"key"}] if spec.kind in _WINDOWS | {StoreKind.VERSIONED} else [{"key"}, _RANGE]
    times = frozenset[str]() if spec.kind in _KEY_VALUE else _TIMES
    if any(given.keys() <= way | times | _ALWAYS for way in ways):
        return
    listed = " or ".join(" and ".join(sorted(way)) for way in ways)
    text = f"store {spec.name} is asked by {listed}"
    if times:
        text += ", time_from and time_to"
    names = ", ".join(sorted(given.keys() - _ALWAYS))
    raise Refusal(400, f"{text}; as, limit, stale and everywhere. This asks by {names}")


class _Asked:
    """The bounds of a query, except its keys."""

    def __init__(self, request: Request) -> None:
        given = request.query_params
        self.time_from: int = _time(given.get("time_from"), "time_from", 0)
        self.time_to: int = _time(given.get("time_to"), "time_to", _FOREVER)
        # An empty text is a key as well.
        names = ("key",) if "key" in given else ("from", "to")
        self.texts: dict[str, str] = {name: given[name] for name in names if name in given}
        self.how: str = given.get("as") or "auto"


class _Bounds:
    """The bounds of a query, as objects."""

    def __init__(self, asked: _Asked, keys: Mapping[str, Any]) -> None:
        self.by_key: bool = "key" in keys
        self.key: Any = keys.get("key")
        self.low: Any = keys.get("from")
        self.high: Any = keys.get("to")
        self.time_from: int = asked.time_from
        self.time_to: int = asked.time_to


async def _first_rows(
    store: StoreQueries[Any, Any], spec: StoreSpec, ways: Sequence[_Bounds], limit: int
) -> Rows:
    """Return the rows of the first way to read the keys that has rows."""
    failed: QueryFailed | None = None
    for bounds in ways:
        try:
            found = await _answer(store, spec, bounds, limit)
        except QueryFailed as error:
            # Another reading of the key may belong to another partition, which is here.
            failed = failed or error
        else:
            if found.rows:
                return found
    if failed is not None:
        raise failed
    return Rows(store.name, (), more=False)


async def _answer(
    store: StoreQueries[Any, Any], spec: StoreSpec, asked: _Bounds, limit: int
) -> Rows:
    if spec.kind in _KEY_VALUE:
        if asked.by_key:
            return _one(store, asked.key, await store.get(asked.key))
        return await _some(store, store.range(asked.low, asked.high), limit, _pair)
    if spec.kind is StoreKind.VERSIONED:
        if not asked.by_key:
            raise Refusal(400, f"store {store.name} keeps versions: give a key")
        versions = await store.versions(asked.key, asked.time_from, asked.time_to)
        key = _short(asked.key)
        rows = [Row(key, _short(one.value), [one.timestamp, one.valid_to]) for one in versions]
        return Rows(store.name, tuple(rows[:limit]), len(rows) > limit)
    if spec.kind in _WINDOWS:
        if asked.by_key:
            found = store.fetch(asked.key, asked.time_from, asked.time_to)
            key = _short(asked.key)
            return await _some(store, found, limit, lambda row: Row(key, _short(row[1]), row[0]))
        scan = store.fetch_all(asked.time_from, asked.time_to)
        return await _some(
            store, scan, limit, lambda row: Row(_short(row[0][0]), _short(row[1]), row[0][1])
        )
    sessions = (
        store.find_sessions(asked.key, asked.time_from, asked.time_to)
        if asked.by_key
        else store.find_sessions_range(asked.low, asked.high, asked.time_from, asked.time_to)
    )
    return await _some(store, sessions, limit, _session)


async def _some(
    store: StoreQueries[Any, Any], scan: StoreScan[Any], limit: int, show: Callable[[Any], Row]
) -> Rows:
    rows: list[Row] = []
    async with aclosing(aiter(scan)) as found:  # type: ignore[type-var] # an async generator
        async for row in found:
            # One row beyond the limit shows that there are more, without counting all.
            if len(rows) == limit:
                return Rows(store.name, tuple(rows), more=True)
            rows.append(show(row))
    return Rows(store.name, tuple(rows), more=False)


def _one(store: StoreQueries[Any, Any], key: Any, value: Any) -> Rows:
    rows = () if value is None else (Row(_short(key), _short(value)),)
    return Rows(store.name, rows, more=False)


def _pair(row: tuple[Any, Any]) -> Row:
    return Row(_short(row[0]), _short(row[1]))


def _session(row: tuple[Any, Any]) -> Row:
    windowed, value = row
    return Row(_short(windowed.key), _short(value), [windowed.window.start, windowed.window.end])


def _short(value: Any) -> Any:
    """Return a value for JSON; a long value is cut, as text."""
    found = plain(value)
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    if len(text) <= _MOST_CHARACTERS:
        return found
    return f"{text[:_MOST_CHARACTERS]}… ({len(text)} characters)"


def _key_serde(app: App, spec: StoreSpec) -> Any:
    return with_default(spec.key, app.config.default_key_serde)


def _time(text: str | None, name: str, default: int) -> int:
    if not text:
        return default
    found = whole(text)
    if found is None or found > _FOREVER:
        raise Refusal(400, f"{name} is {text[:100]!r}: give milliseconds since 1970")
    return found
