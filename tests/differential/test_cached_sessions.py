"""Cached sessions differ from Kafka Streams only where its cache still has entries that its store has dropped."""

from __future__ import annotations

from typing import Any

import pytest

from ks_actors import Window, Windowed
from ks_actors.processors.aggregates import _sessions
from ks_actors.processors.aggregates._sessions import Session, SessionAggregation, whole
from ks_actors.processors.api._operator import NodeContext, Process
from ks_actors.processors.api._stream_clock import Clock
from ks_actors.processors.api._update_cache import Cache
from ks_actors.records._batch import Headers
from tests.differential.cases import CACHED_SESSIONS, compare, read_cases

Entry = tuple[Any, int]
SOME = 50
NAMES = [path.name.removesuffix(".jsonl.xz") for path in sorted(CACHED_SESSIONS.iterdir())]


class KafkaStreamsCache:
    """The sessions of one store in a CachingSessionStore that is large enough for all of them, and is flushed after each record."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.held: dict[tuple[Any, int, int], Entry | None] = {}
        self.dirty: dict[tuple[Any, int, int], None] = {}

    def find(self, key: Any, earliest_end: int, latest_start: int) -> list[Session]:
        """Return the rows of the store, and all rows flushed into it, whether it still has them or not."""
        found: dict[tuple[int, int], Entry | None] = {
            (end, start): entry for start, end, entry in self.store.find_entries(key, earliest_end, latest_start)
        }
        for (known, start, end), entry in self.held.items():
            if known == key and end >= earliest_end and start <= latest_start:
                found[end, start] = entry
        return [(start, end, entry) for (end, start), entry in sorted(found.items()) if entry is not None]

    def put(self, key: Any, start: int, end: int, entry: Entry | None) -> None:
        handle = (key, start, end)
        self.held[handle] = entry
        self.dirty.pop(handle, None)
        self.dirty[handle] = None

    def flush(self, context: NodeContext, headers: Headers, *, send_old: bool) -> None:
        """Send the updates; a delete only if the store has the session. Deleted ones leave the cache, the others stay."""
        for handle in self.dirty:
            key, start, end = handle
            entry = self.held[handle]
            old = self.store.get_entry(key, start, end) if entry is None or send_old else None
            if entry is not None or old is not None:
                self.store.put_entry(key, start, end, entry)
                change = (None if entry is None else entry[0], old[0] if send_old and old is not None else None)
                context.forward(Windowed(key, Window(start, end)), change, end, headers)
            if entry is None:
                del self.held[handle]
        self.dirty = {}


class Emulation:
    """Takes the place of how cached sessions are aggregated; operators that share a store share its cache."""

    def __init__(self) -> None:
        self.caches: dict[int, KafkaStreamsCache] = {}

    def form(self, context: NodeContext, aggregation: SessionAggregation, _: Cache, clock: Clock) -> Process:
        store = context.store(aggregation.store)
        cache = self.caches.setdefault(id(store), KafkaStreamsCache(store))
        begin, merge, add = aggregation.fold(context)
        gap, wait = aggregation.gap_ms, aggregation.gap_ms + aggregation.grace_ms

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                context.dropped()
                return
            clock.time = max(clock.time, timestamp)
            found = cache.find(key, timestamp - gap, timestamp + gap)
            start, end = whole(timestamp, found)
            if end < clock.time - wait:
                context.dropped()
                return
            aggregate = begin()
            for _first, _last, (other, _at) in found:
                aggregate = merge(key, aggregate, other)
            if start != end or start != timestamp:
                for first, last, _entry in found:
                    cache.put(key, first, last, None)
            aggregate = add(key, value, aggregate)
            cache.put(key, start, end, None if aggregate is None else (aggregate, timestamp))
            cache.flush(context, headers, send_old=aggregation.send_old)

        return process


@pytest.mark.parametrize("name", NAMES)
def test_with_a_cache_that_keeps_rows_of_the_store_all_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record by record, for every case: so all differences without it have that one reason."""
    monkeypatch.setattr(_sessions, "one_at_a_time", lambda *_: None)
    for case in read_cases(CACHED_SESSIONS, name):
        monkeypatch.setattr(_sessions, "_cached_form", Emulation().form)
        mismatch = compare(case)
        assert mismatch is None, str(mismatch)


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_outlive_their_store_there_are_gone_here(name: str) -> None:
    """Without it most cases are the same; the others reach into sessions that the store does not have any more."""
    cases = read_cases(CACHED_SESSIONS, name)[:SOME]
    same = [case for case in cases if compare(case) is None]
    assert len(same) > len(cases) // 2
    kept = [case for case in cases if case["params"].get("retention", 0) >= 3_600_000]
    assert [case["id"] for case in kept if case not in same] == []
