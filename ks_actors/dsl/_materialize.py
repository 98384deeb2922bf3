"""The stores of tables: their names and specifications."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from ks_actors._errors import TopologyError
from ks_actors._times import whole_ms
from ks_actors.dsl._options import Materialized
from ks_actors.dsl.windows import CheckedWindows, TimeWindows
from ks_actors.processors.api import check_options
from ks_actors.topology import StoreKind, StoreSpec, valid_name, versioned_key_value

if TYPE_CHECKING:
    from ks_actors.dsl.graph import GraphBuilder
    from ks_actors.dsl.windows import KnownWindows, SessionWindows

K = TypeVar("K")
V = TypeVar("V")


class Stored(NamedTuple):
    """The store of a table; queries can read a store that the user named."""

    spec: StoreSpec
    named: bool


def check_materialized(
    materialized: Materialized[K, V] | str | None, of: str
) -> Materialized[K, V] | None:
    """Return the options of a store: a str is taken as its name, None stays None.

    Raises TopologyError for other objects.
    """
    if isinstance(materialized, str):
        return Materialized(materialized)
    check_options(materialized, Materialized, of=of)
    return materialized


def key_value_store(
    graph: GraphBuilder,
    materialized: Materialized[Any, Any] | None,
    prefix: str,
    *,
    key: Any,
    value: Any,
) -> Stored:
    """Describe the key-value store of a table.

    `key` and `value` stand for serdes missing in `materialized`. A missing name is generated.
    """
    name, named = _name(graph, materialized, prefix)
    if materialized is None:
        return Stored(
            StoreSpec(
                name=name,
                kind=StoreKind.TIMESTAMPED_KEY_VALUE,
                key=key,
                value=value,
                caching=True,
                of_dsl=True,
            ),
            named,
        )
    if materialized.history_retention_ms is not None:
        spec = versioned_key_value(
            name,
            materialized.key or key,
            materialized.value or value,
            history_retention_ms=materialized.history_retention_ms,
            type=materialized.store_type or "rocksdb",
            logging=materialized.logging,
            changelog_configs=materialized.changelog_configs,
        )
        return Stored(spec, named)
    return Stored(
        StoreSpec(
            name=name,
            kind=StoreKind.TIMESTAMPED_KEY_VALUE,
            key=materialized.key or key,
            value=materialized.value or value,
            type=materialized.store_type,
            logging=materialized.logging,
            caching=materialized.caching,
            changelog_configs=dict(materialized.changelog_configs),
            of_dsl=True,
        ),
        named,
    )


def without_history(materialized: Materialized[Any, Any] | None, what: str) -> None:
    """Raise TopologyError when a versioned store is requested where none is possible."""
    if materialized is not None and materialized.history_retention_ms is not None:
        raise TopologyError(
            f"{what} cannot be versioned: remove Materialized(history_retention_ms=…)"
        )


def history_ms(spec: StoreSpec) -> int | None:
    """Return how long (ms) a store keeps replaced values, None if it is not versioned."""
    return spec.history_retention_ms if spec.kind is StoreKind.VERSIONED else None


def window_store(
    graph: GraphBuilder,
    materialized: Materialized[Any, Any] | None,
    prefix: str,
    *,
    key: Any,
    value: Any,
    windows: KnownWindows,
) -> Stored:
    """Describe the window store of a table.

    It keeps results for as long as windows take records, or for the retention of `materialized`.
    """
    # Kafka Streams has versions of key-value stores only (KIP-889).
    without_history(materialized, "a table of windows")
    spec, named = key_value_store(graph, materialized, prefix, key=key, value=value)
    retention_ms = _retention(spec.name, materialized, windows.keep_ms, "window and grace")
    kind = StoreKind.TIMESTAMPED_WINDOW
    custom = windows.windows if isinstance(windows, CheckedWindows) else None
    advance_ms = 0
    if isinstance(windows, TimeWindows):
        advance_ms = windows.advance_ms
    elif isinstance(windows, CheckedWindows) and windows.tumbling:
        advance_ms = windows.size_ms
    stored = msgspec.structs.replace(
        spec,
        kind=kind,
        retention_ms=retention_ms,
        spare_ms=max(0, windows.need_ms - retention_ms),
        window_size_ms=windows.size_ms,
        advance_ms=advance_ms,
        windows=custom,
        rows_of=windows,
    )
    return Stored(stored, named)


def session_store(
    graph: GraphBuilder,
    materialized: Materialized[Any, Any] | None,
    prefix: str,
    *,
    key: Any,
    value: Any,
    windows: SessionWindows,
    on_close: bool,
) -> Stored:
    """Describe the session store of a table.

    It keeps sessions for as long as they take records, or for the retention of `materialized`. If
    results are sent `on_close`, it keeps sessions until they are forwarded, and sessions that late
    records may join.
    """
    without_history(materialized, "a table of sessions")
    spec, named = key_value_store(graph, materialized, prefix, key=key, value=value)
    retention_ms = _retention(spec.name, materialized, windows.keep_ms, "inactivity gap and grace")
    if on_close:
        wanted = None if materialized is None else materialized.retention_ms
        retention_ms = max(
            retention_ms, windows.keep_ms + 1 + (windows.inactivity_gap_ms if wanted is None else 0)
        )
    spare_ms = max(0, windows.need_ms - retention_ms)
    return Stored(
        msgspec.structs.replace(
            spec,
            kind=StoreKind.SESSION,
            retention_ms=retention_ms,
            spare_ms=spare_ms,
            rows_of=windows,
        ),
        named,
    )


def _retention(
    name: str, materialized: Materialized[Any, Any] | None, keep_ms: int, what: str
) -> int:
    """Return the time (ms) for which windows are kept."""
    retention: int = (
        keep_ms
        if materialized is None or materialized.retention_ms is None
        else whole_ms(materialized.retention_ms)
    )
    if retention < keep_ms:
        raise TopologyError(
            f"store {name} keeps windows for {retention} ms, but {what} take {keep_ms} ms: set "
            f"Materialized(retention_ms=…) to {keep_ms} or more, or remove it"
        )
    return retention


def optional_store(
    graph: GraphBuilder,
    materialized: Materialized[Any, Any] | None,
    prefix: str,
    *,
    key: Any,
    value: Any,
) -> StoreSpec | None:
    """Describe the store of an operation that is stored only if the options name a store.

    The counter advances for options without a name, as in Kafka Streams.
    """
    if materialized is None:
        return None
    if materialized.name is None and materialized.history_retention_ms is None:
        if prefix:
            graph.new_store_name(prefix)
        return None
    return key_value_store(graph, materialized, prefix, key=key, value=value).spec


def _name(
    graph: GraphBuilder, materialized: Materialized[Any, Any] | None, prefix: str
) -> tuple[str, bool]:
    if materialized is None or materialized.name is None:
        return graph.new_store_name(prefix), False
    return valid_name(materialized.name), True
