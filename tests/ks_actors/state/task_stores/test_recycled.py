"""Two copies of a task's stores take turns: one is written to, the other follows its changelog; then the other way round, without being closed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors.serdes import STRING, msgpack
from ks_actors.state import SharedResources
from ks_actors.topology._stores import StoreSpec
from tests.examples_of import examples
from tests.ks_actors.state.helpers import PLACES, Task, key_value, window

pytestmark = pytest.mark.unmeasured

KEYS = ("a", "b", "c", "d")
RETENTION_MS = 100


class Pair:
    """Two copies, one of them active, and their expected content."""

    def __init__(self, spec: StoreSpec, directory: Path, place: str) -> None:
        # Small enough that what is in memory is let go of.
        shared = SharedResources(resident_bytes=2_000)
        self.active, self.standby = (Task([spec], directory / name, place, shared) for name in ("one", "two"))
        self.standby.logs = self.active.logs
        self.committed: dict[Any, Any] = {}
        self.pending: dict[Any, Any] = {}

    def put(self, handle: Any, value: Any) -> None:
        """Put into the active copy."""
        self.active.now += 1
        if isinstance(handle, tuple):
            self.active.store.put(handle[0], value, handle[1])
        else:
            self.active.store.put(handle, value)
        self.pending[handle] = value

    def commit(self) -> None:
        self.active.commit()
        self.committed |= self.pending
        self.pending = {}

    def swap(self) -> None:
        """Let the other one be active: uncommitted changes are void."""
        self.active.stores.drop()
        self.pending = {}
        for _ in self.active.stores.compact_steps():
            pass
        self.standby.restore()
        self.active, self.standby = self.standby, self.active
        self.active.now = max(self.active.now, self.standby.now)

    def flush(self, task: Task, steps: int) -> None:
        """Write some of it."""
        if task.stores.wants_flush(True):
            for number, _ in enumerate(task.stores.flush_steps()):
                if number == steps:
                    break

    def check(self) -> None:
        """The active copy has all puts, the other one the committed ones that it has read."""
        self.standby.restore()
        assert shown(self.active) == alive(self.committed | self.pending, self.active)
        assert shown(self.standby) == alive(self.committed, self.standby)

    def close(self) -> None:
        self.active.close()
        self.standby.close()


def shown(task: Task) -> dict[Any, Any]:
    found = dict(task.store.all())
    for handle, value in found.items():
        assert (task.store.fetch(*handle) if isinstance(handle, tuple) else task.store.get(handle)) == value
    return found


def alive(model: dict[Any, Any], task: Task) -> dict[Any, Any]:
    limit = getattr(task.store, "_limit", -1)
    return {handle: value for handle, value in model.items() if value is not None and not (isinstance(handle, tuple) and handle[1] <= limit)}


OTHER_STEPS = [st.just(("commit",)), st.just(("swap",)), st.just(("check",)), st.tuples(st.just("flush"), st.booleans(), st.integers(0, 3))]
VALUES = st.none() | st.integers(0, 99).map(str)
TABLE_STEPS = st.lists(st.one_of(*[st.tuples(st.just("put"), st.sampled_from(KEYS), VALUES)] * 3, *OTHER_STEPS), max_size=60)
WINDOW_STEPS = st.lists(
    st.one_of(*[st.tuples(st.just("put"), st.tuples(st.sampled_from(KEYS), st.integers(0, 30).map(lambda n: n * 10)), VALUES)] * 3, *OTHER_STEPS),
    max_size=60,
)


def play(spec: StoreSpec, place: str, steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        pair = Pair(spec, Path(directory), place)
        try:
            for what, *rest in steps:
                if what == "put":
                    handle, value = rest
                    if isinstance(handle, tuple) and handle[1] <= pair.active.store._limit:
                        continue
                    pair.put(handle, value)
                elif what == "flush":
                    pair.flush(pair.active if rest[0] else pair.standby, rest[1])
                else:
                    getattr(pair, what)()
            pair.check()
            pair.commit()
            pair.swap()
            pair.check()
        finally:
            pair.close()


@settings(max_examples=examples(60))
@pytest.mark.parametrize("place", PLACES)
@given(steps=TABLE_STEPS)
def test_tables_take_turns(place: str, steps: list[tuple[Any, ...]]) -> None:
    """Rows read from the changelog replace earlier puts, and never later ones."""
    play(key_value(value=STRING), place, steps)


@settings(max_examples=examples(40))
@pytest.mark.parametrize("place", PLACES)
@given(steps=TABLE_STEPS)
def test_tables_with_mutable_values_take_turns(place: str, steps: list[tuple[Any, ...]]) -> None:
    """Those are kept as bytes, and by the bytes of their keys."""
    play(key_value(value=msgpack(str), key=msgpack(str)), place, steps)


@settings(max_examples=examples(60))
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("advance", [0, 1])
@given(steps=WINDOW_STEPS)
def test_windows_take_turns(place: str, advance: int, steps: list[tuple[Any, ...]]) -> None:
    """Windows expire in both copies by the records that each has seen."""
    play(window(retention_ms=RETENTION_MS, advance_ms=advance), place, steps)


DUPLICATE_STEPS = st.lists(
    st.one_of(*[st.tuples(st.just("put"), st.sampled_from(KEYS), st.integers(0, 400), st.integers(0, 99).map(str))] * 3, *OTHER_STEPS), max_size=60
)


class Rows(Pair):
    """The same for a store that keeps all that is put."""

    def add(self, key: str, start: int, value: str) -> None:
        self.active.now += 1
        self.active.store.put(key, value, start)
        self.pending[len(self.committed) + len(self.pending)] = (key, start, value)

    def check(self) -> None:
        self.standby.restore()
        for task, model in ((self.active, {**self.committed, **self.pending}), (self.standby, self.committed)):
            alive_rows = sorted(row for row in model.values() if row[1] > task.store._limit)
            assert sorted((key, start, value) for (key, start), value in task.store.all()) == alive_rows
            found = [(key, start, value) for key in KEYS for start, value in task.store.fetch(key, 0, 1000)]
            assert sorted(found) == alive_rows


@settings(max_examples=examples(60))
@pytest.mark.parametrize("place", PLACES)
@given(steps=DUPLICATE_STEPS)
def test_stores_with_duplicates_take_turns(place: str, steps: list[tuple[Any, ...]]) -> None:
    """The buffered rows of joins: each row is there once, in both copies, from any writer."""
    with tempfile.TemporaryDirectory() as directory:
        pair = Rows(window(retention_ms=RETENTION_MS, retain_duplicates=True), Path(directory), place)
        try:
            for what, *rest in [*steps, ("check",), ("commit",), ("swap",), ("check",)]:
                if what == "put":
                    if rest[1] > pair.active.store._limit:
                        pair.add(*rest)
                elif what == "flush":
                    pair.flush(pair.active if rest[0] else pair.standby, rest[1])
                else:
                    getattr(pair, what)()
        finally:
            pair.close()


@pytest.mark.parametrize("place", PLACES)
def test_many_changes_that_nobody_has_looked_at_do_not_pass_for_newer(place: str, tmp_path: Path) -> None:
    """A commit of more than is looked at at once, and newer values from the changelog before the rest is."""
    pair = Pair(key_value(value=STRING), tmp_path, place)
    for number in range(5_000):
        pair.put(f"k{number}", "old" if number % 2 else None)
    pair.commit()
    pair.swap()
    for number in range(5_000):
        pair.put(f"k{number}", "new" if number % 3 else None)
    pair.commit()
    pair.standby.restore(size=1_000)
    pair.flush(pair.standby, 1_000)
    pair.check()
    pair.close()
