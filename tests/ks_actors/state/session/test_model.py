"""A session store against a dict: any order of puts, deletes, reads, commits, failures, writes to disk, crashes, restores and queries."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar

import pytest

from ks_actors import Window, Windowed
from ks_actors.state import reader_of
from ks_actors.topology._stores import StoreSpec
from tests.ks_actors.state.helpers import session
from tests.ks_actors.state.model import StoreModel, case_of, drive, order, within

pytestmark = pytest.mark.unmeasured

RETENTION = 130_000
FOR_EVER = 2**63 - 1
Row = tuple[Windowed[Any], Any]


class SessionsAgainstADict(StoreModel):
    """The content: the sessions, expired ones included, and the latest end."""

    EMPTY: ClassVar = {"s": ({}, -1)}

    def specs(self, random: Random, key: Any, value: Any) -> Sequence[StoreSpec]:
        return (session("s", key=key, value=value, retention_ms=RETENTION),)

    def time(self, random: Random) -> int:
        return max(0, self.late - random.randrange(8)) * 25_000

    def change(self, random: Random) -> None:
        start = self.time(random)
        end = start + random.randrange(4) * 20_000
        session = Windowed(self.key(random.randrange(self.keys)), Window(start, end))
        sessions, observed = self.open["s"]
        remove, value = random.random() < 0.25, self.next_value(random)
        if remove:
            self.task["s"].remove(session)
        else:
            self.task["s"].put(session, value)
        if not (remove and self.in_memory):
            observed = max(observed, end)
        if end > observed - RETENTION:
            sessions = {handle: other for handle, other in sessions.items() if handle != session}
            if not remove and value is not None:
                sessions[session] = value
        self.open = {**self.open, "s": (sessions, observed)}

    def visible(self, state: Any, earliest: int, latest: int) -> list[Row]:
        sessions, observed = state["s"]
        limit = max(earliest, observed - RETENTION + 1)
        return [(each, value) for each, value in sessions.items() if each.window.end >= limit and each.window.start <= latest]

    def value_of(self, state: Any, handle: Windowed[Any]) -> Any:
        return dict(self.visible(state, handle.window.end, handle.window.start)).get(handle)

    def read(self, random: Random) -> None:
        store, key, earliest, latest = self.task["s"], self.key(random.randrange(self.keys)), self.time(random), self.time(random)
        expected = self.visible(self.open, earliest, latest)
        of_key = sorted((row for row in expected if row[0].key == key), key=self.order_of_key)
        assert list(store.find_sessions(key, earliest, latest)) == of_key
        assert list(store.backward_find_sessions(key, earliest, latest)) == of_key[::-1]
        assert store.fetch_session(key, earliest, latest) == self.value_of(self.open, Windowed(key, Window(earliest, latest)))
        low, high = (None if random.random() < 0.3 else self.key(random.randrange(self.keys)) for _ in range(2))
        ranged = sorted((row for row in expected if within(row[0].key, low, high)), key=self.order)
        assert list(store.find_sessions_range(low, high, earliest, latest)) == ranged
        assert list(store.backward_find_sessions_range(low, high, earliest, latest)) == ranged[::-1]
        first, last = sorted((earliest, latest))
        ended = [row for row in self.visible(self.open, first, FOR_EVER) if row[0].window.end <= last]
        assert list(store.find_ended_sessions(first, last)) == sorted(ended, key=self.order_of_ends)

    def query(self, random: Random) -> None:
        reader: Any = reader_of(self.task["s"])
        options = {"committed": random.random() < 0.5, "reverse": random.random() < 0.5}
        state, key = self.committed if options["committed"] else self.open, self.key(random.randrange(self.keys))
        earliest, latest = self.time(random), self.time(random)
        expected = self.visible(state, earliest, latest)
        of_key = sorted((row for row in expected if row[0].key == key), key=self.order_of_key, reverse=options["reverse"])
        self.scan(reader.find(key, earliest, latest, **options), of_key, random)
        for handle in [row[0] for row in of_key] or [Windowed(key, Window(earliest, latest))]:
            entry = reader.get(handle.key, *handle.window, committed=options["committed"])
            assert (None if entry is None else entry[0]) == self.value_of(state, handle)
        low = None if random.random() < 0.3 else key
        ranged = sorted((row for row in expected if within(row[0].key, low, None)), key=self.order, reverse=options["reverse"])
        self.scan(reader.find_range(reader.bounds(low, None), earliest, latest, **options), ranged, random)

    def order_of_key(self, row: Row) -> Any:
        start, end = row[0].window
        return (end, -start) if self.in_memory else (end, start)

    def order(self, row: Row) -> Any:
        key, (start, end) = row[0]
        return (end, order(key), -start) if self.in_memory else (end // 65_000, order(key), end, start)

    def order_of_ends(self, row: Row) -> Any:
        key, (start, end) = row[0]
        return (end, order(key), -start) if self.in_memory else (end, start, order(key))


TestSessionsAgainstADict = case_of(SessionsAgainstADict)


@pytest.mark.parametrize("seed", range(60))
def test_sessions_are_like_a_dict(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any actions in any order; a scan finds the rows of its beginning, whatever happens between two of them."""
    drive(SessionsAgainstADict, seed, monkeypatch)
