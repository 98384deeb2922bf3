"""Rows of stores in bytes, as in their changelogs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors._errors import FailureReason, QueryFailed
from ks_actors.query._scan import Scan
from ks_actors.state import (
    SUFFIXES,
    CustomReader,
    KeyValueReader,
    VersionedReader,
    log_batch,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.query._local import Part
    from ks_actors.records import Batch
    from ks_actors.topology import StoreKind


def _whole(row: Any) -> Any:
    return row


def _key_scan(low: bytes, high: bytes, *, committed: bool) -> Scan:
    return Scan(lambda reader: reader.scan(low, high, committed=committed, reverse=False), _whole)


def raw_scans(
    part: Part, kind: StoreKind, keys: Sequence[bytes] | None, *, committed: bool
) -> list[Scan]:
    """Return the scans of a partition: one, or one for each key where that is less.

    Raises QueryFailed for kinds that cannot be scanned.
    """
    reader = part.reader
    if isinstance(reader, VersionedReader | CustomReader):
        raise QueryFailed(
            f"store {reader.name}, a {kind.value} store, cannot be read row by row: "
            "read its changelog",
            reason=FailureReason.UNKNOWN_QUERY_TYPE,
            store=reader.name,
            partition=part.partition,
        )
    if keys is not None and isinstance(reader, KeyValueReader):
        return [_key_scan(key, key + b"\0", committed=committed) for key in sorted(set(keys))]
    return [Scan(lambda reader: reader.all(committed=committed), _whole)]


def raw_batch(
    part: Part, kind: StoreKind, rows: Sequence[Any], keys: frozenset[bytes] | None
) -> Batch:
    """Return scanned rows in the form of the changelog.

    Of stores with windows only those of `keys`, if given.
    """
    reader: Any = part.reader
    found = log_batch(reader.store, rows)
    if keys is None or kind not in SUFFIXES:
        return found
    cut = SUFFIXES[kind].size
    return found.select([key[:-cut] in keys for key in found.keys])
