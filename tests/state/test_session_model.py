"""A session store against a dict: any order of puts, deletes, reads, commits, failures, writes to disk, crashes, restores and queries."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from ks_actors import Window, Windowed
from ks_actors.serdes import DOUBLE, LONG, STRING, json
from ks_actors.state import SharedResources, _task_stores, reader_of
from ks_actors.state.core import _reader, _transactional
from ks_actors.state.timed import _timed_store
from tests.state.helpers import PLACES, Record, Task, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.unmeasured

RETENTION = 130_000
LATEST = 2**63 - 1
SERDES: dict[str, tuple[Any, Any, Callable[[int], Any], Callable[[int], Any]]] = {
    "text": (STRING, LONG, str, int),
    "bytes": (DOUBLE, json(), float, lambda number: [number]),
}
Handle = tuple[Any, int, int]
State = tuple[dict[Handle, Any], int]
"""The sessions, expired ones included, and the latest end."""

KEYS = st.integers(0, 5)
STARTS = st.integers(0, 12).map(lambda number: number * 25_000)
LENGTHS = st.integers(0, 3).map(lambda number: number * 20_000)
CHANGES = st.lists(st.tuples(KEYS, STARTS, LENGTHS, st.sampled_from(("put", "put", "none", "remove"))), min_size=1, max_size=6)


def encoded(key: Any) -> bytes:
    return DOUBLE.serializer("")(key) if isinstance(key, float) else key.encode()


class SessionsAgainstADict(RuleBasedStateMachine):
    """`committed`, `frozen` and `open` are the expected content of the store. Open readers have their expected remaining rows."""

    @initialize(place=st.sampled_from(PLACES), kinds=st.sampled_from(sorted(SERDES)), resident=st.sampled_from((3_000, 1 << 20)))
    def begin(self, place: str, kinds: str, resident: int) -> None:
        key, value, self.key, self.value = SERDES[kinds]
        self.path = Path(tempfile.mkdtemp())
        shared = SharedResources(resident_bytes=resident, tail_records=20)
        self.task = Task([session(key=key, value=value, retention_ms=RETENTION)], self.path, place, shared)
        self.in_memory = place == "in_memory"
        self.number = 0
        self.committed: State = ({}, -1)
        self.open: State = self.committed
        self.frozen: Any = None
        self.token: Any = None
        self.records: dict[str, list[Record]] = {}
        self.changelog: Iterator[Any] | None = None
        self.steps: Iterator[None] | None = None
        self.readers: list[tuple[Any, list[tuple[Handle, Any]]]] = []

    def teardown(self) -> None:
        if hasattr(self, "task"):
            self.task.close()
            shutil.rmtree(self.path)

    # There are few rules, as Hypothesis leaves out some of them in most runs: what has to meet would never meet.

    @rule(changes=CHANGES)
    def change(self, changes: list[tuple[int, int, int, str]]) -> None:
        sessions, observed = dict(self.open[0]), self.open[1]
        for number, start, length, what in changes:
            handle = (self.key(number), start, start + length)
            window = Windowed(handle[0], Window(*handle[1:]))
            if what == "remove":
                self.task.store.remove(window)
                observed = observed if self.in_memory else max(observed, handle[2])
                if handle[2] > observed - RETENTION:
                    sessions.pop(handle, None)
                continue
            self.number += 1
            value = self.value(self.number) if what == "put" else None
            self.task.store.put(window, value)
            observed = max(observed, handle[2])
            if handle[2] > observed - RETENTION:
                sessions.pop(handle, None)
                if value is not None:
                    sessions[handle] = value
        self.open = (sessions, observed)

    @rule(number=KEYS, other=KEYS, earliest=STARTS, latest=STARTS)
    def read(self, number: int, other: int, earliest: int, latest: int) -> None:
        store, key = self.task.store, self.key(number)
        expected = self.visible(self.open, earliest, latest)
        of_key = sorted((row for row in expected if row[0][0] == key), key=self.order_of_key)
        assert self.told(store.find_sessions(key, earliest, latest)) == of_key
        assert self.told(store.backward_find_sessions(key, earliest, latest)) == of_key[::-1]
        assert store.fetch_session(key, earliest, latest) == self.value_of(self.open, (key, earliest, latest))
        low, high = None if number == 0 else key, None if other == 0 else self.key(other)
        within = sorted((row for row in expected if self.within(row[0][0], low, high)), key=self.order)
        assert self.told(store.find_sessions_range(low, high, earliest, latest)) == within
        assert self.told(store.backward_find_sessions_range(low, high, earliest, latest)) == within[::-1]
        ended = [row for row in self.visible(self.open, min(earliest, latest), LATEST) if row[0][2] <= max(earliest, latest)]
        assert self.told(store.find_ended_sessions(min(earliest, latest), max(earliest, latest))) == sorted(ended, key=self.order_of_ends)

    @rule(number=KEYS, earliest=STARTS, latest=STARTS, committed=st.booleans(), reverse=st.booleans(), later=st.booleans())
    def query(self, number: int, earliest: int, latest: int, committed: bool, reverse: bool, later: bool) -> None:
        reader: Any = reader_of(self.task.store)
        state, key = self.committed if committed else self.open, self.key(number)
        expected = self.visible(state, earliest, latest)
        of_key = sorted((row for row in expected if row[0][0] == key), key=self.order_of_key, reverse=reverse)
        found = reader.find(key, earliest, latest, committed=committed, reverse=reverse)
        for handle in [row[0] for row in of_key] or [(key, earliest, latest)]:
            entry = reader.get(*handle, committed=committed)
            assert (None if entry is None else entry[0]) == self.value_of(state, handle)
        low = None if number == 0 else key
        within = sorted((row for row in expected if self.within(row[0][0], low, None)), key=self.order, reverse=reverse)
        ranged = reader.find_range(reader.bounds(low, None), earliest, latest, committed=committed, reverse=reverse)
        self.readers += [(found, of_key), (ranged, within)]
        if not later:
            self.finish_readers()

    @rule(stage=st.sampled_from(("next", "next", "whole")))
    def commit(self, stage: str) -> None:
        if self.token is None:
            self.freeze()
        elif self.changelog is not None:
            self.log_one_slice()
        else:
            self.publish()
        if stage == "whole" and self.token is not None:
            self.publish()

    @rule(idle=st.booleans(), steps=st.integers(0, 8))
    def flush(self, idle: bool, steps: int) -> None:
        if self.steps is None and self.task.stores.wants_flush(idle):
            self.steps = self.task.stores.flush_steps()
        for _ in range(steps):
            if self.steps is not None and next(self.steps, self) is self:
                self.steps = None
        if steps == 0:
            self.steps = None

    @rule(how=st.sampled_from(("drop", "crash", "close")), size=st.integers(1, 5))
    def lose(self, how: str, size: int) -> None:
        if how == "drop":
            self.task.stores.drop()
        else:
            self.finish_readers()
            self.steps = None
            self.task.stores.close(clean=how == "close")
            self.task.stores = self.task.make()
            self.task.stores.open()
            restored = self.task.restore(size)
            assert not (how == "close" and self.task.directory and not self.in_memory and restored)
        self.open, self.frozen, self.token, self.changelog = self.committed, None, None, None

    # Details.

    def visible(self, state: State, earliest: int, latest: int) -> list[tuple[Handle, Any]]:
        sessions, observed = state
        return [
            (handle, value)
            for handle, value in sessions.items()
            if handle[2] > observed - RETENTION and handle[2] >= earliest and handle[1] <= latest
        ]

    def value_of(self, state: State, handle: Handle) -> Any:
        return state[0].get(handle) if handle[2] > state[1] - RETENTION else None

    def within(self, key: Any, low: Any, high: Any) -> bool:
        return (low is None or encoded(key) >= encoded(low)) and (high is None or encoded(key) <= encoded(high))

    def order_of_key(self, row: tuple[Handle, Any]) -> Any:
        _, start, end = row[0]
        return (end, -start) if self.in_memory else (end, start)

    def order(self, row: tuple[Handle, Any]) -> Any:
        key, start, end = row[0]
        return (end, encoded(key), -start) if self.in_memory else (end // 65_000, encoded(key), end, start)

    def order_of_ends(self, row: tuple[Handle, Any]) -> Any:
        key, start, end = row[0]
        return (end, encoded(key), -start) if self.in_memory else (end, start, encoded(key))

    def told(self, rows: Any) -> list[tuple[Handle, Any]]:
        return [((window.key, *window.window), value) for window, value in rows]

    def finish_readers(self) -> None:
        for rows, expected in self.readers:
            for _ in rows.steps:
                pass
            assert [((key, *window), entry[0]) for _, (key, window), entry in rows] == expected
        self.readers.clear()

    def freeze(self) -> None:
        self.token = self.task.stores.freeze()
        self.frozen, self.records = self.open, {}
        self.changelog = self.task.stores.changelog(self.token)

    def log_one_slice(self) -> None:
        assert self.changelog is not None
        found = next(self.changelog, None)
        if found is None:
            self.changelog = None
        else:
            name, batch = found
            self.records.setdefault(name, []).extend(zip(batch.keys, batch.values, batch.timestamps, strict=True))

    def publish(self) -> None:
        while self.changelog is not None:
            self.log_one_slice()
        self.task.accept(self.records)
        self.task.stores.publish(self.token, self.task.ends())
        self.committed, self.frozen, self.token = self.frozen, None, None


TestSessionsAgainstADict = SessionsAgainstADict.TestCase
TestSessionsAgainstADict.settings = settings(max_examples=40, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck))


def drive(seed: int) -> None:
    """Run a seed: unlike Hypothesis, with everything in every run."""
    random = Random(seed)
    machine = SessionsAgainstADict()
    machine.begin(place=random.choice(PLACES), kinds=random.choice(sorted(SERDES)), resident=random.choice((3_000, 1 << 20)))
    keys = random.choice((2, 6))

    def start() -> int:
        return random.randrange(13) * 25_000

    try:
        for _ in range(120):
            match random.choices(("change", "read", "query", "commit", "flush", "lose"), (35, 12, 12, 20, 17, 8))[0]:
                case "change":
                    kinds = ("put", "put", "none", "remove")
                    changes = [
                        (random.randrange(keys), start(), random.randrange(4) * 20_000, random.choice(kinds)) for _ in range(random.randint(1, 6))
                    ]
                    machine.change(changes)
                case "read":
                    machine.read(random.randrange(keys), random.randrange(keys), start(), start())
                case "query":
                    flags = [random.random() < 0.5 for _ in range(3)]
                    machine.query(random.randrange(keys), start(), start(), flags[0], flags[1], flags[2])
                case "commit":
                    machine.commit(random.choice(("next", "next", "whole")))
                case "flush":
                    machine.flush(random.random() < 0.5, random.randrange(30))
                case _:
                    machine.lose(random.choice(("drop", "drop", "crash", "close")), random.randint(1, 5))
        machine.finish_readers()
    finally:
        machine.teardown()


@pytest.fixture
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_reader, _task_stores, _timed_store, _transactional):
        for name, value in {"SLICE": 2, "ROWS": 2, "GROUP": 4, "VISITS": 2, "STEP": 2}.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("_small_steps")
@pytest.mark.parametrize("seed", range(60))
def test_sessions_are_like_a_dict(seed: int) -> None:
    """For any actions in any order, with steps so small that everything falls between two of them."""
    drive(seed)
