"""The query box: rows of a store, by keys that a person types."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ks_actors.serdes import with_default
from ks_actors.topology import StoreKind
from ks_actors.web._answers import Refusal, number, plain, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from ks_actors.app import App
    from ks_actors.query import StoreQueries, StoreScan
    from ks_actors.topology import StoreSpec

_MOST_ROWS: Final = 1_000
_ROWS: Final = 50
_MOST_CHARACTERS: Final = 2_000
_TIMEOUT_S: Final = 5.0
_FOREVER: Final = (1 << 63) - 1
_KEY_VALUE = frozenset({StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE})
_WINDOWS = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW})


class StoreView(msgspec.Struct, frozen=True):
    """A store of the topology: its kind, its serdes, and whether the query box can read it."""

    name: str
    kind: str
    key: str
    value: str
    everywhere: bool
    queryable: bool


class Row(msgspec.Struct, frozen=True):
    """A row of a store; `at` is the start of its window, or of its session, with the end."""

    key: Any
    value: Any
    at: Any = None


class Rows(msgspec.Struct, frozen=True):
    """Rows of a store, at most the limit; `more` tells that there are others."""

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

    `as` says how the text of keys is meant: text, json, hex or auto. `stale` allows standbys.
    Raises Refusal, UnknownStore, QueryFailed and NotRunning.
    """
    name = request.path_params["name"]
    limit = number(request, "limit", _ROWS, most=_MOST_ROWS)
    stale = request.query_params.get("stale") == "true"
    store = app.store(name, stale=stale, timeout_ms=int(_TIMEOUT_S * 1000))
    spec = app.topology.stores.get(name) or app.topology.global_stores[name]
    if spec.kind is StoreKind.CUSTOM:
        raise Refusal(400, f"store {name} is a custom store: only its own processors can read it")
    asked = _Asked(request, _key_of(app, spec, request))
    try:
        # A range may be large, and a caller's connection must not hold up a scan for ever.
        async with asyncio.timeout(_TIMEOUT_S):
            return await _answer(store, spec, asked, limit)
    except TimeoutError:
        text = f"store {name} did not answer within {_TIMEOUT_S:g} s: ask for fewer rows"
        raise Refusal(504, text) from None


class _Asked:
    """The bounds of a query, as objects."""

    def __init__(self, request: Request, parse: Callable[[str], Any]) -> None:
        given = request.query_params
        self.key: Any = parse(given["key"]) if given.get("key") else None
        self.low: Any = parse(given["from"]) if given.get("from") else None
        self.high: Any = parse(given["to"]) if given.get("to") else None
        self.time_from: int = _time(given.get("time_from"), "time_from", 0)
        self.time_to: int = _time(given.get("time_to"), "time_to", _FOREVER)
        self.by_key: bool = bool(given.get("key"))


async def _answer(
    store: StoreQueries[Any, Any], spec: StoreSpec, asked: _Asked, limit: int
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
            # One more row than asked for tells that there are more, without counting all.
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
    """Return a value for JSON; a long one is cut, as text."""
    found = plain(value)
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    if len(text) <= _MOST_CHARACTERS:
        return found
    return f"{text[:_MOST_CHARACTERS]}… ({len(text)} characters)"


def _key_serde(app: App, spec: StoreSpec) -> Any:
    return with_default(spec.key, app.config.default_key_serde)


def _key_of(app: App, spec: StoreSpec, request: Request) -> Callable[[str], Any]:
    """Return the function that makes a key of a text: the first reading that the serde takes."""
    serialize = _key_serde(app, spec).serializer("", is_key=True)
    how = request.query_params.get("as") or "auto"
    if how not in {"auto", "text", "json", "hex"}:
        raise Refusal(400, f"as is {how!r}: give auto, text, json or hex")

    def parse(text: str) -> Any:
        for candidate in _candidates(text, how):
            # A serde may raise any error about objects of other types.
            with suppress(Exception):
                serialize(candidate)
                return candidate
        raise Refusal(400, f"the store's keys are not made of {text[:100]!r}, read as {how}")

    return parse


def _candidates(text: str, how: str) -> list[Any]:
    found: list[Any] = []
    if how in {"auto", "text"}:
        found.append(text)
    if how in {"auto", "json"}:
        # Too many brackets are no key either.
        with suppress(ValueError, RecursionError):
            found.append(json.loads(text))
    if how in {"auto", "hex"}:
        with suppress(ValueError):
            found.append(bytes.fromhex(text))
    return found


def _time(text: str | None, name: str, default: int) -> int:
    if not text:
        return default
    found = whole(text)
    if found is None or found > _FOREVER:
        raise Refusal(400, f"{name} is {text[:100]!r}: give milliseconds since 1970")
    return found
