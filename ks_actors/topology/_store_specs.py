"""Stores to add to a topology by hand.

`stores.key_value(…)`, `stores.window(…)`, and so on, and `stores.custom(…)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors._errors import TopologyError
from ks_actors._hints import unknown_name
from ks_actors.processors.api import (
    check_configs,
    check_flag,
    check_function,
    checked_ms,
)
from ks_actors.serdes import serde_of
from ks_actors.topology._names import valid_name
from ks_actors.topology._store_engine import check_store_type
from ks_actors.topology._stores import StoreKind, StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from ks_actors.serdes import Serde, SerdeOrType
    from ks_actors.topology._custom_store import StateStore
    from ks_actors.topology._store_engine import StoreType


def key_value(
    name: str,
    key: SerdeOrType[Any] | None = None,
    value: SerdeOrType[Any] | None = None,
    *,
    type: StoreType | None = None,  # noqa: A002 - it is the word for it, and a keyword only
    timestamped: bool = False,
    headers: bool = False,
    logging: bool = True,
    changelog_configs: Mapping[str, str] | None = None,
) -> StoreSpec:
    """Describe a store of one value per key.

    A `timestamped` store keeps the time (ms) of each value too, a store with `headers` the time and
    the headers (KIP-1271). Serdes not given are the app's defaults.
    """
    serdes = _check(
        name,
        key,
        value,
        type,
        changelog_configs,
        timestamped=timestamped,
        headers=headers,
        logging=logging,
    )
    return StoreSpec(
        name=name,
        kind=StoreKind.KEY_VALUE_WITH_HEADERS
        if headers
        else StoreKind.TIMESTAMPED_KEY_VALUE
        if timestamped
        else StoreKind.KEY_VALUE,
        key=serdes["key"],
        value=serdes["value"],
        type=type,
        logging=logging,
        changelog_configs=dict(changelog_configs or {}),
    )


def window(
    name: str,
    key: SerdeOrType[Any] | None = None,
    value: SerdeOrType[Any] | None = None,
    *,
    retention_ms: int | timedelta,
    window_size_ms: int | timedelta,
    retain_duplicates: bool = False,
    type: StoreType | None = None,  # noqa: A002 - it is the word for it, and a keyword only
    timestamped: bool = False,
    headers: bool = False,
    logging: bool = True,
    changelog_configs: Mapping[str, str] | None = None,
) -> StoreSpec:
    """Describe a store of a value per key and window start.

    Values are kept until they are `retention_ms` behind the latest start in the store.
    `retain_duplicates` keeps every value that is put for the same key and start, and ignores
    deletes. A `timestamped` store keeps the time (ms) of each value too, a store with `headers` the
    time and the headers (KIP-1271); a store with headers cannot retain duplicates.
    """
    serdes = _check(
        name,
        key,
        value,
        type,
        changelog_configs,
        timestamped=timestamped,
        headers=headers,
        logging=logging,
        retain_duplicates=retain_duplicates,
    )
    if headers and retain_duplicates:
        raise TopologyError(
            f"window store {name} cannot keep headers with duplicates: leave out headers or "
            "retain_duplicates"
        )
    retention_ms = checked_ms(retention_ms, role="retention_ms", of=f"window store {name}")
    window_size_ms = checked_ms(window_size_ms, role="window_size_ms", of=f"window store {name}")
    if not 0 <= window_size_ms <= retention_ms:
        raise TopologyError(
            f"window store {name} cannot keep windows of {window_size_ms} ms for {retention_ms} "
            "ms: give a retention_ms of window_size_ms or more"
        )
    return StoreSpec(
        name=name,
        kind=StoreKind.WINDOW_WITH_HEADERS
        if headers
        else StoreKind.TIMESTAMPED_WINDOW
        if timestamped
        else StoreKind.WINDOW,
        key=serdes["key"],
        value=serdes["value"],
        type=type,
        logging=logging,
        changelog_configs=dict(changelog_configs or {}),
        retention_ms=retention_ms,
        window_size_ms=window_size_ms,
        retain_duplicates=retain_duplicates,
    )


def versioned_key_value(
    name: str,
    key: SerdeOrType[Any] | None = None,
    value: SerdeOrType[Any] | None = None,
    *,
    history_retention_ms: int | timedelta,
    type: StoreType | None = None,  # noqa: A002 - it is the word for it, and a keyword only
    logging: bool = True,
    changelog_configs: Mapping[str, str] | None = None,
) -> StoreSpec:
    """Describe a store of a value per key and time (KIP-889).

    An old value can be queried until `history_retention_ms` after its replacement. A put that is
    older than the latest put by more than that is dropped. The changelog keeps all versions for
    that long, and a day more.
    """
    serdes = _check(name, key, value, type, changelog_configs, logging=logging)
    history_retention_ms = checked_ms(
        history_retention_ms, role="history_retention_ms", of=f"versioned store {name}"
    )
    if history_retention_ms < 0:
        raise TopologyError(
            f"versioned store {name} cannot keep history for {history_retention_ms} ms: give 0 or "
            "more"
        )
    return StoreSpec(
        name=name,
        kind=StoreKind.VERSIONED,
        key=serdes["key"],
        value=serdes["value"],
        type=type,
        logging=logging,
        changelog_configs=dict(changelog_configs or {}),
        history_retention_ms=history_retention_ms,
    )


def session(
    name: str,
    key: SerdeOrType[Any] | None = None,
    value: SerdeOrType[Any] | None = None,
    *,
    retention_ms: int | timedelta,
    type: StoreType | None = None,  # noqa: A002 - it is the word for it, and a keyword only
    headers: bool = False,
    logging: bool = True,
    changelog_configs: Mapping[str, str] | None = None,
) -> StoreSpec:
    """Describe a store of an aggregate per key and session.

    A session is kept until a put of a session that ends `retention_ms` or more after it. With
    `headers` the store keeps the headers of each aggregate too (KIP-1271).
    """
    serdes = _check(name, key, value, type, changelog_configs, headers=headers, logging=logging)
    retention_ms = checked_ms(retention_ms, role="retention_ms", of=f"session store {name}")
    if retention_ms < 0:
        raise TopologyError(
            f"session store {name} cannot keep sessions for {retention_ms} ms: give a retention_ms "
            "of 0 or more"
        )
    return StoreSpec(
        name=name,
        kind=StoreKind.SESSION_WITH_HEADERS if headers else StoreKind.SESSION,
        key=serdes["key"],
        value=serdes["value"],
        type=type,
        logging=logging,
        changelog_configs=dict(changelog_configs or {}),
        retention_ms=retention_ms,
    )


def custom(
    name: str,
    supplier: Callable[[], StateStore],
    *,
    logging: bool = True,
    changelog_configs: Mapping[str, str] | None = None,
) -> StoreSpec:
    """Describe a custom store (KIP-892).

    `supplier` makes a new store for each task, and whenever a task starts over.
    """
    _check(name, None, None, None, changelog_configs, logging=logging)
    check_function(supplier, 0, role="supplier", of=f"store {name}")
    return StoreSpec(
        name=name,
        kind=StoreKind.CUSTOM,
        key=None,
        value=None,
        logging=logging,
        changelog_configs=dict(changelog_configs or {}),
        supplier=supplier,
    )


def _check(
    name: str,
    key: Any,
    value: Any,
    type: Any,  # noqa: A002 - as above
    changelog_configs: Any,
    **flags: bool,
) -> dict[str, Serde[Any] | None]:
    """Return the serdes of key and value; types are replaced by their serdes."""
    of = f"store {valid_name(name)}"
    serdes = {
        role: serde_of(given, role=role, of=of) for role, given in (("key", key), ("value", value))
    }
    check_store_type(type, role="type", of=of)
    if changelog_configs is not None:
        check_configs(changelog_configs, role="changelog_configs", of=of)
    for role, flag in flags.items():
        check_flag(flag, role=role, of=of)
    return serdes


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        return unknown_name(__name__, name)
