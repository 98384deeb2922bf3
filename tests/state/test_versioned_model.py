"""Versioned stores against lists of versions: any order of puts, reads, commits, failures, writes to disk, crashes and restores."""

from __future__ import annotations

import shutil
import tempfile
from bisect import bisect_right
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from ks_actors.records._versioned import PUT_RETURN_CODE_NOT_PUT, PUT_RETURN_CODE_VALID_TO_UNDEFINED, VersionedRecord
from ks_actors.serdes import DOUBLE, LONG, STRING, json
from ks_actors.state import SharedResources, VersionedReader, reader_of
from ks_actors.state.core import _transactional
from ks_actors.state.versioned import _store, _sweep
from tests.state.helpers import PLACES, Record, Task, versioned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.unmeasured

RETENTION = 40
KEYS = st.integers(0, 4)
TIMES = st.integers(0, 12)
SERDES: dict[str, tuple[Any, Any, Callable[[int], Any], Callable[[int], Any]]] = {
    "text": (STRING, LONG, lambda number: "\0" * number, int),  # keys that begin with each other
    "bytes": (DOUBLE, json(), float, lambda number: [number]),
}
History = dict[Any, dict[int, Any]]
State = tuple[History, int]


class VersionsAgainstLists(RuleBasedStateMachine):
    """`committed`, `frozen` and `open` are the expected content of the store: by key the value from each time on, and stream time."""

    @initialize(place=st.sampled_from(PLACES), kinds=st.sampled_from(sorted(SERDES)), resident=st.sampled_from((900, 1 << 20)))
    def begin(self, place: str, kinds: str, resident: int) -> None:
        key, value, self.key, self.value = SERDES[kinds]
        self.path = Path(tempfile.mkdtemp())
        self.task = Task(
            [versioned(key=key, value=value, history_retention_ms=RETENTION)],
            self.path,
            place,
            SharedResources(resident_bytes=resident, tail_records=9),
        )
        self.number = 0
        self.now = 0
        self.late = 0
        self.committed: State = ({}, -1)
        self.open: State = self.committed
        self.frozen: Any = None
        self.token: Any = None
        self.records: dict[str, list[Record]] = {}
        self.steps: Iterator[None] | None = None

    def teardown(self) -> None:
        if hasattr(self, "task"):
            self.task.close()
            shutil.rmtree(self.path)

    @rule(changes=st.lists(st.tuples(KEYS, TIMES, st.booleans()), min_size=1, max_size=6), ahead=st.integers(0, 12))
    def change(self, changes: list[tuple[int, int, bool]], ahead: int) -> None:
        self.now += ahead
        for key, behind, delete in changes:
            self.put(self.key(key), None if delete else self.next_value(), max(0, self.now - behind * behind // 2))
        assert self.task.late == self.late

    def next_value(self) -> Any:
        self.number += 1
        return self.value(self.number)

    def put(self, key: Any, value: Any, time: int) -> None:
        history, observed = self.open
        code = self.task.store.put(key, value, time)
        if time < observed - RETENTION:
            self.late += 1
            assert code == PUT_RETURN_CODE_NOT_PUT
            return
        versions = {**history.get(key, {}), time: value}
        self.open = ({**history, key: versions}, max(observed, time))
        later = [other for other in versions if other > time]
        assert code == (min(later) if later else PUT_RETURN_CODE_VALID_TO_UNDEFINED)

    @rule(key=KEYS, behind=st.integers(0, 60))
    def read(self, key: int, behind: int) -> None:
        name, time = self.key(key), max(0, self.now - behind)
        store = self.task.store
        assert store.get(name) == expected(self.open, name, None)
        found = store.get(name, time)
        assert found == expected(self.open, name, time)
        if found is not None and isinstance(found.value, list):
            found.value.append("a copy, of no consequence")
        self.query(name, time)

    def query(self, name: Any, time: int) -> None:
        reader = reader_of(self.task.store)
        assert isinstance(reader, VersionedReader)
        for committed, state in ((True, self.committed), (False, self.open)):
            assert reader.get(name, None, committed=committed) == expected(state, name, None)
            assert reader.get(name, time, committed=committed) == expected(state, name, time)
            for time_from, time_to in ((None, None), (time, None), (None, time), (time, self.now)):
                rows = all_versions(state, name, time_from, time_to)
                assert reader.versions(name, time_from, time_to, committed=committed, reverse=False) == rows
                assert reader.versions(name, time_from, time_to, committed=committed, reverse=True) == rows[::-1]

    @rule(stage=st.sampled_from(("next", "next", "whole")))
    def commit(self, stage: str) -> None:
        if self.token is None:
            self.token = self.task.stores.freeze()
            self.frozen = self.open
        else:
            self.publish()
        if stage == "whole" and self.token is not None:
            self.publish()

    def publish(self) -> None:
        self.task.accept(self.task.log(self.token))
        self.task.stores.publish(self.token, self.task.ends())
        self.committed, self.frozen, self.token = self.frozen, None, None

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
        self.token = self.frozen = None
        self.open = self.committed
        if how == "drop":
            self.task.stores.drop()
        else:
            self.steps = None
            self.task.stores.close(clean=how == "close")
            self.task.stores = self.task.make()
            self.task.stores.open()
            restored = self.task.restore(size)
            assert not (how == "close" and self.task.directory and self.task.specs[0].type == "rocksdb" and restored)
        for key in range(5):
            self.read(key, 20)


def expected(state: State, key: Any, time: int | None) -> VersionedRecord[Any] | None:
    history, observed = state
    versions = history.get(key, {})
    times = sorted(versions)
    place = len(times) if time is None else bisect_right(times, time)
    if place == 0 or versions[times[place - 1]] is None or (place < len(times) and time is not None and time < observed - RETENTION):
        return None
    return VersionedRecord(versions[times[place - 1]], times[place - 1], times[place] if place < len(times) else None)


def all_versions(state: State, key: Any, time_from: int | None, time_to: int | None) -> list[VersionedRecord[Any]]:
    history, observed = state
    versions = history.get(key, {})
    times = sorted(versions)
    low = max(-1 if time_from is None else time_from, observed - RETENTION)
    found = []
    for time, end in zip(times, [*times[1:], None], strict=False):
        if versions[time] is None or (time_to is not None and time > time_to):
            continue
        if end is None or (end > low and not (time_to is not None and time_to < observed - RETENTION)):
            found.append(VersionedRecord(versions[time], time, end))
    return found


TestVersionsAgainstLists = VersionsAgainstLists.TestCase
TestVersionsAgainstLists.settings = settings(max_examples=40, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck))


def drive(seed: int) -> None:
    """Run a seed: unlike Hypothesis, with everything in every run."""
    random = Random(seed)
    machine = VersionsAgainstLists()
    machine.begin(place=random.choice(PLACES), kinds=random.choice(sorted(SERDES)), resident=random.choice((900, 1 << 20)))
    try:
        for _ in range(120):
            match random.choices(("change", "read", "commit", "flush", "lose"), (35, 25, 20, 17, 5))[0]:
                case "change":
                    changes = [(random.randrange(5), random.randrange(13), random.random() < 0.3) for _ in range(random.randint(1, 6))]
                    machine.change(changes, random.randrange(13))
                case "read":
                    machine.read(random.randrange(5), random.randrange(60))
                case "commit":
                    machine.commit(random.choice(("next", "next", "whole")))
                case "flush":
                    machine.flush(random.random() < 0.5, random.randrange(30))
                case _:
                    machine.lose(random.choice(("drop", "drop", "crash", "close")), random.randint(1, 5))
    finally:
        machine.teardown()


@pytest.fixture
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_transactional, _sweep, _store):
        for name, value in {"SLICE": 4, "ROWS": 2, "GROUP": 4}.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("_small_steps")
@pytest.mark.parametrize("seed", range(60))
def test_versions_are_like_lists(seed: int) -> None:
    """For any actions in any order, with steps so small that everything falls between two of them."""
    drive(seed)
