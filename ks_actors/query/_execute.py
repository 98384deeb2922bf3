"""Requests with a position bound, answered partition by partition (KIP-796)."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from ks_actors._errors import FailureReason, KsActorsError, NotRunning, QueryFailed
from ks_actors.log import IsolationLevel, TopicPartition
from ks_actors.query._position import Position
from ks_actors.query._requests import (
    KeyQuery,
    MultiVersionedKeyQuery,
    PrefixQuery,
    RangeQuery,
    SessionKeyQuery,
    SessionRangeQuery,
    TimestampedKeyQuery,
    TimestampedKeyWithHeadersQuery,
    TimestampedRangeQuery,
    TimestampedRangeWithHeadersQuery,
    TimestampedWindowKeyWithHeadersQuery,
    TimestampedWindowRangeWithHeadersQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from ks_actors.query._results import LagInfo, QueryResult, StateQueryResult
from ks_actors.query._scan import Scan, slices
from ks_actors.query._sessions import session_key_scan, session_scan
from ks_actors.query._store import (
    KEY_VALUE,
    SESSIONS,
    VERSIONED,
    WINDOWS,
    prefix_scan,
    range_scan,
    window_key_scan,
    window_scan,
)
from ks_actors.state import HEADERS_FORM, PLAIN_FORM, TIMESTAMPED, TIMESTAMPED_FORM
from ks_actors.task import Role
from ks_actors.topology import HEADED, StoreKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.log import Log
    from ks_actors.query._local import LocalStores, Part
    from ks_actors.query._requests import StateQueryRequest
    from ks_actors.state import Rows

    How: TypeAlias = Scan | Callable[[Any], Any]
    """The way to answer a query: a scan, or one lookup."""

R = TypeVar("R")
TIMED: Final = (TimestampedKeyQuery, TimestampedRangeQuery)
WITH_HEADERS: Final = (
    TimestampedKeyWithHeadersQuery,
    TimestampedRangeWithHeadersQuery,
    TimestampedWindowKeyWithHeadersQuery,
    TimestampedWindowRangeWithHeadersQuery,
)


async def answer(
    local: LocalStores, request: StateQueryRequest[R], timeout_ms: int
) -> StateQueryResult[R]:
    """Ask all partitions that the request names.

    Raises UnknownStore and NotRunning; all other failures are part of the result.
    """
    local.spec(request.store)
    local.check_running()
    if local.is_global(request.store):
        return StateQueryResult({}, await _global(local, request, timeout_ms))
    results: dict[int, QueryResult[Any]] = {}
    wanted = request.partitions
    numbers = (
        sorted(wanted)
        if wanted is not None
        else [part.partition for part in local.parts(request.store)]
    )
    for number in numbers:
        # The failure of one partition is part of the result; the others are still asked.
        results[number] = await _one(local, request, number, timeout_ms)
    return StateQueryResult(results)


async def _global(
    local: LocalStores, request: StateQueryRequest[Any], timeout_ms: int
) -> QueryResult[Any]:
    try:
        return await _ask(local, request, local.global_part(request.store), timeout_ms)
    except QueryFailed as failed:
        return QueryResult(None, failed.reason, str(failed))


async def _one(
    local: LocalStores, request: StateQueryRequest[Any], number: int, timeout_ms: int
) -> QueryResult[Any]:
    try:
        part = local.part(request.store, number)
        if part is None:
            text = (
                f"partition {number} of store {request.store} was not on this instance at the time "
                "of the query"
            )
            return QueryResult(None, FailureReason.NOT_PRESENT, text)
        if request.require_active and not part.active:
            text = (
                f"the query requires an active task, and partition {number} of store "
                f"{request.store} was {part.role.value}"
            )
            return QueryResult(None, FailureReason.NOT_ACTIVE, text)
        return await _ask(local, request, part, timeout_ms)
    except QueryFailed as failed:
        return QueryResult(None, failed.reason, str(failed))


class _Moment:
    """One read at one moment: it checks the bound, and takes the position."""

    def __init__(self, request: StateQueryRequest[Any], part: Part, *, committed: bool) -> None:
        self.position: Position = Position.empty()
        self._request = request
        self._part = part
        self._committed = committed

    def __call__(self, read: Callable[[Any], Any], reader: Any) -> Any:
        request, part = self._request, self._part
        # Nothing is awaited between this and the read, so the position is that of the read.
        self.position = part.position(committed=self._committed)
        # An active store is never behind its own commits, so a bound has nothing to check there.
        if request.require_active or request.bound.is_unbounded:
            return read(reader)
        if not request.bound.admits(
            reached := part.reached(committed=self._committed), part.partition
        ):
            raise QueryFailed(
                f"partition {part.partition} of store {request.store} is at {reached!r}, not yet "
                f"up to {request.bound!r}",
                reason=FailureReason.NOT_UP_TO_BOUND,
                store=request.store,
                partition=part.partition,
            )
        return read(reader)


async def _ask(
    local: LocalStores, request: StateQueryRequest[Any], part: Part, timeout_ms: int
) -> QueryResult[Any]:
    began = perf_counter()
    committed = local.committed(request.isolation)
    moment = _Moment(request, part, committed=committed)
    failure, text, value = None, "", None
    try:
        how = _how(request.query, local.spec(request.store).kind, committed=committed)
        if isinstance(how, Scan):
            value = await _rows(local, part, how, moment, timeout_ms)
        elif how is not None:
            value = await part.at(partial(moment, how), timeout_ms)
        if how is None or value is NotImplemented:
            failure, value = FailureReason.UNKNOWN_QUERY_TYPE, None
            text = (
                f"store {request.store}, a {local.spec(request.store).kind.value} store, does not "
                f"support {request.query!r}"
            )
    # The only error that is not part of the result: it concerns the app, not a partition.
    except NotRunning:
        raise
    except QueryFailed as failed:
        failure, text = failed.reason, str(failed)
    except Exception as error:  # noqa: BLE001 - a serde, for one: told to whoever asks
        failure = FailureReason.STORE_EXCEPTION
        text = (
            str(error)
            if isinstance(error, KsActorsError)
            else f"store {request.store} failed to answer {request.query!r}: {error!r}"
        )
    info = (
        (f"partition {part.partition}, {part.role.value}: {(perf_counter() - began) * 1e6:.0f} µs",)
        if request.execution_info
        else ()
    )
    return QueryResult(value, failure, text, position=moment.position, execution_info=info)


async def _rows(
    local: LocalStores, part: Part, scan: Scan, moment: _Moment, timeout_ms: int
) -> list[Any]:
    def begin(reader: Any) -> Rows:
        rows: Rows = moment(scan.begin, reader)
        return rows

    found: list[Any] = []
    async for rows in slices(
        local, [part], Scan(begin, scan.show, reverse=scan.reverse), timeout_ms
    ):
        found += rows
    return found


def _how(query: object, kind: StoreKind, *, committed: bool) -> How | None:
    """Return how to answer a query; None when a store of that kind cannot answer it."""
    timed = isinstance(query, TIMED) and kind is not StoreKind.CUSTOM
    headed = isinstance(query, WITH_HEADERS) and kind is not StoreKind.CUSTOM
    if (timed and kind not in TIMESTAMPED) or (headed and kind not in HEADED):
        return None
    form = HEADERS_FORM if headed else TIMESTAMPED_FORM if timed else PLAIN_FORM
    return ANSWERS[kind](query, committed=committed, entry=form.show)


def _how_key_value(query: object, *, committed: bool, entry: Callable[[Any], Any]) -> How | None:
    match query:
        case KeyQuery(key) | TimestampedKeyQuery(key) | TimestampedKeyWithHeadersQuery(key):
            return partial(_get, key=key, committed=committed, entry=entry)
        case (
            RangeQuery(low, high, descending)
            | TimestampedRangeQuery(low, high, descending)
            | TimestampedRangeWithHeadersQuery(low, high, descending)
        ):
            return range_scan(low, high, committed=committed, reverse=descending, entry=entry)
        case PrefixQuery(prefix, serializer):
            return prefix_scan(prefix, serializer, committed=committed, entry=entry)
    return None


def _how_windows(query: object, *, committed: bool, entry: Callable[[Any], Any]) -> How | None:
    match query:
        case WindowKeyQuery(key, time_from, time_to) | TimestampedWindowKeyWithHeadersQuery(
            key, time_from, time_to
        ):
            return window_key_scan(
                key, time_from, time_to, committed=committed, reverse=False, entry=entry
            )
        case WindowRangeQuery(time_from, time_to) | TimestampedWindowRangeWithHeadersQuery(
            time_from, time_to
        ):
            return window_scan(time_from, time_to, committed=committed, reverse=False, entry=entry)
    return None


def _how_sessions(query: object, *, committed: bool, entry: Callable[[Any], Any]) -> How | None:
    match query:
        case SessionKeyQuery(key, earliest_end, latest_start):
            return session_key_scan(
                key, earliest_end, latest_start, committed=committed, reverse=False, entry=entry
            )
        case SessionRangeQuery(low, high, earliest_end, latest_start):
            return session_scan(
                low,
                high,
                earliest_end,
                latest_start,
                committed=committed,
                reverse=False,
                entry=entry,
            )
    return None


def _how_versioned(
    query: object,
    *,
    committed: bool,
    entry: Callable[[Any], Any],  # noqa: ARG001 - as of the other kinds
) -> How | None:
    match query:
        case VersionedKeyQuery(key, as_of):
            return lambda reader: reader.get(key, as_of, committed=committed)
        case MultiVersionedKeyQuery(key, time_from, time_to, descending):
            return lambda reader: reader.versions(
                key, time_from, time_to, committed=committed, reverse=descending
            )
    return None


def _how_custom(
    query: object,
    *,
    committed: bool,
    entry: Callable[[Any], Any],  # noqa: ARG001 - as of the other kinds
) -> How:
    """Pass the query to the user's store."""
    return lambda reader: reader.ask(query, committed=committed)


ANSWERS: Final[dict[StoreKind, Callable[..., How | None]]] = {
    **dict.fromkeys(KEY_VALUE, _how_key_value),
    **dict.fromkeys(WINDOWS, _how_windows),
    **dict.fromkeys(SESSIONS, _how_sessions),
    **dict.fromkeys(VERSIONED, _how_versioned),
    StoreKind.CUSTOM: _how_custom,
}
"""For each kind of store, the function that finds a query's answer."""


def _get(reader: Any, *, key: Any, committed: bool, entry: Callable[[Any], Any]) -> Any:
    found = reader.get(key, committed=committed)
    return None if found is None else entry(found)


async def lags(local: LocalStores, log: Log) -> dict[str, dict[int, LagInfo]]:
    """Return the lag of each local store partition behind its changelog; 0 for active stores."""
    currents: dict[tuple[str, int], tuple[TopicPartition, int | None]] = {}
    topics = local.topics()
    for registered in local.registry:
        if registered.task.subtopology < 0:
            continue
        active = registered.role is Role.ACTIVE
        for name in registered.stores.logged:
            changelog = TopicPartition(topics.changelog(name), registered.task.partition)
            currents[name, registered.task.partition] = (
                changelog,
                # An active store is at the end of its changelog by definition.
                None if active else registered.stores.next_offset(name) or 0,
            )
    ends = await log.end_offsets(
        [changelog for changelog, _ in currents.values()], IsolationLevel.READ_UNCOMMITTED
    )
    found: dict[str, dict[int, LagInfo]] = {}
    for (name, partition), (changelog, current) in sorted(currents.items()):
        end = ends[changelog]
        found.setdefault(name, {})[partition] = LagInfo(end if current is None else current, end)
    return found
