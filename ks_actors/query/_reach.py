"""The partitions that a reader of a store can reach: those of this instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

from ks_actors._errors import FailureReason, QueryFailed
from ks_actors.query._calls import NO_KEY
from ks_actors.query._scan import slices

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ks_actors.query._calls import Call
    from ks_actors.query._local import LocalStores, Part
    from ks_actors.query._scan import Scan


class How(NamedTuple):
    """The store that a reader asks, and the way in which it may be answered."""

    store: str
    partition: int | None
    committed: bool
    stale: bool
    timeout_ms: int


class Reach(Protocol):
    """The partitions of stores that a reader asks."""

    async def first(self, how: How, call: Call) -> Any:
        """Return the first answer of a partition that is not None; its own partition is first."""
        ...

    def rows(self, how: How, scan: Scan) -> AsyncGenerator[list[Any], None]:
        """Yield the rows of a scan in order, a slice at a time."""
        ...

    async def count(self, how: How) -> int:
        """Return the approximate number of keys."""
        ...


@final
class LocalReach:
    """The partitions of this instance."""

    def __init__(self, local: LocalStores) -> None:
        self._local = local

    async def first(self, how: How, call: Call) -> Any:
        """Return the first answer of a partition that is not None; its own partition is first."""
        parts, missing = self._parts_for(how, call.key)
        for part in parts:
            entry = await part.at(call, how.timeout_ms)
            if entry is not None and entry != []:
                return entry
        if missing is not None:
            raise missing
        return None

    def _parts_for(self, how: How, key: Any) -> tuple[list[Part], QueryFailed | None]:
        """Return the partitions that may have a key, and the error if none has it."""
        local, name = self._local, how.store
        if how.partition is not None or local.is_global(name):
            parts = local.readable(name, how.partition, stale=how.stale)
            parts[0].reader.key_bytes(key)
            return parts, None
        parts = local.readable(name, None, stale=True)
        homes = local.homes(name, parts[0].reader.key_bytes(key))
        here = [part for part in parts if part.partition in homes]
        if not how.stale:
            local.require_active(name, here)
            parts = [part for part in parts if part.active]
        parts.sort(key=lambda part: part.partition not in homes)
        if len(here) == len(homes):
            return parts, None
        return parts, QueryFailed(
            f"store {name}: key {key!r} belongs to partition "
            f"{' or '.join(map(str, sorted(homes)))}, which is not on this instance: ask the "
            "instance that has it, pass everywhere=True, or pass `partition`",
            reason=FailureReason.NOT_PRESENT,
            store=name,
            partition=min(homes, default=None),
        )

    async def rows(self, how: How, scan: Scan) -> AsyncGenerator[list[Any], None]:
        """Yield the rows of a scan in order, a slice at a time."""
        missing: QueryFailed | None = None
        if scan.key is NO_KEY:
            parts = self._local.readable(how.store, how.partition, stale=how.stale)
        else:
            parts, missing = self._parts_for(how, scan.key)
        found = False
        async for rows in slices(self._local, parts, scan, how.timeout_ms):
            found = found or bool(rows)
            yield rows
        if missing is not None and not found:
            raise missing

    async def count(self, how: How) -> int:
        """Return the approximate number of keys."""
        parts = self._local.readable(how.store, how.partition, stale=how.stale)
        return sum([await part.at(count, how.timeout_ms) for part in parts])


def count(reader: Any) -> int:
    """Return the approximate number of keys of a store."""
    found: int = reader.store.approximate_num_entries()
    return found
