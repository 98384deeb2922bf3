"""The base of the models of stores: what a task does, around what one kind of store puts and reads.

Each act draws what it needs from a `Random`: from Hypothesis's own, which finds the shortest run, or from one of a seed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from ks_actors import StoreClosed
from ks_actors.serdes import DOUBLE, LONG, STRING, json
from ks_actors.state import SharedResources
from ks_actors.state.core import _reader, _transactional
from ks_actors.state.join_window import _rows_by_time
from ks_actors.state.key_value import _sorted_keys, _table
from ks_actors.state.task_stores import _task_stores
from ks_actors.state.timed import _timed_store
from ks_actors.state.versioned import _store, _sweep
from ks_actors.state.window import _by_start
from ks_actors.topology._stores import StoreSpec
from tests.examples_of import examples
from tests.ks_actors.state.helpers import PLACES, Record, Task, key_value

RANDOMS = st.randoms()
WITH_SMALL_STEPS = (_by_start, _reader, _rows_by_time, _sorted_keys, _store, _sweep, _table, _task_stores, _timed_store, _transactional)
SMALL = {"SLICE": 2, "ROWS": 2, "GROUP": 4, "VISITS": 2, "STEP": 2, "CHUNK": 2, "MANY": 1}
SERDES: dict[str, tuple[Any, Any, Callable[[int], Any], Callable[[int], Any]]] = {
    "text": (STRING, LONG, str, int),
    "packed": (STRING, STRING, str, str),
    "bytes": (DOUBLE, json(), float, lambda number: [number]),
}
State = dict[str, Any]
"""By store its expected content, which is replaced, never changed."""


def order(key: Any) -> bytes:
    return DOUBLE.serializer("")(key) if isinstance(key, float) else key.encode()


def within(key: Any, low: Any, high: Any) -> bool:
    return (low is None or order(key) >= order(low)) and (high is None or order(key) <= order(high))


class StoreModel(RuleBasedStateMachine):
    """Stores of one kind beside a table. `committed`, `frozen` and `open` are their expected contents; scans that are open have theirs."""

    SERDES: ClassVar = SERDES
    RESIDENT_BYTES = (3_000, 1 << 20)
    TAIL_RECORDS = 20
    EMPTY: ClassVar[State] = {}

    def specs(self, random: Random, key: Any, value: Any) -> Sequence[StoreSpec]:
        raise NotImplementedError

    def change(self, random: Random) -> None:
        """Change one row of a store, and of `open`."""
        raise NotImplementedError

    def read(self, random: Random) -> None:
        """Read latest rows by the store's own methods."""
        raise NotImplementedError

    def query(self, random: Random) -> None:
        """Read rows, committed or not, as queries do, and begin scans."""
        raise NotImplementedError

    @initialize(random=RANDOMS)
    def begin(self, random: Random) -> None:
        key, value, self.key, self.value = self.SERDES[random.choice(sorted(self.SERDES))]
        self.path = Path(tempfile.mkdtemp())
        shared = SharedResources(resident_bytes=random.choice(self.RESIDENT_BYTES), tail_records=self.TAIL_RECORDS)
        place = random.choice(PLACES)
        self.in_memory = place == "in_memory"
        self.task = Task([*self.specs(random, key, value), key_value("beside")], self.path, place, shared)
        self.keys = random.choice((3, 8))
        self.number = self.late = 0
        self.committed: State = {**self.EMPTY, "beside": {}}
        self.open: State = self.committed
        self.frozen: State = self.committed
        self.token: Any = None
        self.records: dict[str, list[Record]] = {}
        self.changelog: Iterator[Any] | None = None
        self.steps: Iterator[None] | None = None
        self.scans: list[tuple[Any, list[Any]]] = []

    def teardown(self) -> None:
        if hasattr(self, "task"):
            self.finish_scans()
            self.task.close()
            shutil.rmtree(self.path)

    # There are few rules, as Hypothesis leaves out some of them in most runs: what has to meet would never meet.

    @rule(random=RANDOMS)
    def changes(self, random: Random) -> None:
        self.late += random.randrange(3)
        for _ in range(random.randint(1, 6)):
            self.change(random)
        key = str(random.randrange(3))
        self.task["beside"].put(key, self.number)
        self.open = {**self.open, "beside": {**self.open["beside"], key: self.number}}

    @rule(random=RANDOMS)
    def reads(self, random: Random) -> None:
        self.read(random)
        assert dict(self.task["beside"].all()) == self.open["beside"]

    @rule(random=RANDOMS)
    def queries(self, random: Random) -> None:
        match random.choice(("begin", "on", "on", "finish")):
            case "on" if self.scans:
                self.read_on(random.choice(self.scans), random.randrange(4))
            case "finish":
                self.finish_scans()
            case _:
                self.query(random)

    @rule(random=RANDOMS)
    def commit(self, random: Random) -> None:
        if self.token is None:
            self.token, self.frozen, self.records = self.task.stores.freeze(), self.open, {}
            self.changelog = self.task.stores.changelog(self.token)
        elif self.changelog is not None:
            self.log_one_store()
        else:
            self.publish()
        if random.random() < 0.3 and self.token is not None:
            self.publish()

    @rule(random=RANDOMS)
    def flush(self, random: Random) -> None:
        if self.steps is None and self.task.stores.wants_flush(random.random() < 0.5):
            self.steps = self.task.stores.flush_steps()
        for _ in range(random.randint(1, 30)):
            if self.steps is not None and next(self.steps, self) is self:
                self.steps = None
        if random.random() < 0.1:
            self.steps = None

    @rule(random=RANDOMS)
    def lose(self, random: Random) -> None:
        """Go back to the last commit: the task, or the process, which closes before or dies."""
        how = random.choice(("drop", "drop", "crash", "close"))
        if how == "drop":
            self.task.stores.drop()
        else:
            self.end_scans()
            self.steps = None
            self.task.stores.close(clean=how == "close")
            self.task.stores = self.task.make()
            self.task.stores.open()
            restored = self.task.restore(random.randint(1, 5))
            assert not (how == "close" and self.task.directory and self.task.specs[0].type == "rocksdb" and restored)
        self.open, self.token, self.changelog = self.committed, None, None
        for _ in range(random.randrange(4)):
            self.reads(random)

    # Details.

    def next_value(self, random: Random) -> Any:
        """Return a value that no row has, or None for a delete."""
        self.number += 1
        return None if random.random() < 0.3 else self.value(self.number)

    def log_one_store(self) -> None:
        assert self.changelog is not None
        found = next(self.changelog, None)
        if found is None:
            self.changelog = None
        else:
            name, batch = found
            self.records.setdefault(name, []).extend(zip(batch.keys, batch.values, batch.timestamps, strict=True))

    def publish(self) -> None:
        while self.changelog is not None:
            self.log_one_store()
        self.task.accept(self.records)
        self.task.stores.publish(self.token, self.task.ends())
        self.committed, self.token = self.frozen, None

    def scan(self, rows: Any, expected: Iterator[tuple[Any, Any]] | list[tuple[Any, Any]], random: Random) -> None:
        """Begin a scan, which sees the rows of now whatever happens before its end."""
        begun = (rows, list(expected))
        self.scans.append(begun)
        self.read_on(begun, random.randrange(3))

    def read_on(self, scan: tuple[Any, list[Any]], count: int) -> None:
        rows, expected = scan
        for _ in range(count):
            if next(rows.steps, self) is None:
                continue
            row = next(rows, None)
            if row is None:
                assert not expected
                self.scans.remove(scan)
                return
            assert (row[1], row[2][0]) == expected.pop(0)

    def finish_scans(self) -> None:
        while self.scans:
            self.read_on(self.scans[0], 10)

    def end_scans(self) -> None:
        """Close the stores to readers: each that has not read all gets an error."""
        self.task.stores.end_reading("the task has left")
        for rows, _ in self.scans:
            with pytest.raises(StoreClosed, match="the task has left"):
                next(rows)
        self.scans = []


WEIGHTS = {"changes": 35, "reads": 12, "queries": 20, "commit": 20, "flush": 17, "lose": 6}


def drive(model: type[StoreModel], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a seed: unlike Hypothesis, with everything in every run, and in such small steps that everything falls between two of them."""
    for module in WITH_SMALL_STEPS:
        for name, value in SMALL.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    random = Random(seed)
    machine = model()
    machine.begin(random)
    try:
        for act in random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=160):
            getattr(machine, act)(random)
    finally:
        machine.teardown()


def case_of(model: type[StoreModel]) -> Any:
    """Return the test case of a model, as Hypothesis runs it."""
    case = model.TestCase
    case.settings = settings(max_examples=examples(40), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck))
    return case
