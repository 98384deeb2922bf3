"""Stores of the user's own among those of a task (KIP-892)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ks_actors import StateError, StateStore, StateStoreContext, StoreClosed, TaskCorrupted
from ks_actors.log import TopicPartition
from ks_actors.records._batch import Batch
from ks_actors.state import TaskStores, read_checkpoint, write_checkpoint
from ks_actors.topology import stores
from tests.ks_actors.state.helpers import Task, key_value
from tests.layouts import OWN


class InMemory(StateStore):
    """A dict, as bytes, with a log of its changes."""

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}
        self.commits: list[dict[TopicPartition, int]] = []
        self.closed = False

    def init(self, context: StateStoreContext) -> None:
        self.context = context
        context.register(self.take)

    def take(self, batch: Batch) -> None:
        for key, value in zip(batch.keys, batch.values, strict=True):
            if value is None:
                self.data.pop(key, None)
            else:
                self.data[key] = value

    def put(self, key: bytes, value: bytes | None) -> None:
        self.context.log_change(key, value)
        if value is None:
            self.data.pop(key, None)
        else:
            self.data[key] = value

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.commits.append(dict(offsets))

    def close(self) -> None:
        self.closed = True


class OnDisk(InMemory):
    """The dict in a file, which has all at each put: uncommitted puts are there after a crash."""

    persistent = True

    def init(self, context: StateStoreContext) -> None:
        super().init(context)
        assert context.directory is not None
        self.file = context.directory / "data.json"
        if self.file.exists():
            self.load(json.loads(self.file.read_text()))

    def load(self, content: Any) -> None:
        self.data = {key.encode(): value.encode() for key, value in content.items()}

    def content(self) -> Any:
        return {key.decode(): value.decode() for key, value in self.data.items()}

    def put(self, key: bytes, value: bytes | None) -> None:
        super().put(key, value)
        self.file.write_text(json.dumps(self.content()))

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        super().commit(offsets)
        self.file.write_text(json.dumps(self.content()))


class Transactional(OnDisk):
    """The dict in a file, with the offset, as of the last commit."""

    manages_offsets = True
    offset: int | None = None

    def load(self, content: Any) -> None:
        self.offset = content["offset"]
        super().load(content["data"])

    def put(self, key: bytes, value: bytes | None) -> None:
        InMemory.put(self, key, value)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        InMemory.commit(self, offsets)
        (self.offset,) = offsets.values()
        self.file.write_text(json.dumps({"offset": self.offset, "data": self.content()}))

    def committed_offset(self, partition: TopicPartition) -> int | None:
        return self.offset


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Task]]:
    """Make tasks with a custom store `c`, and a store of our own beside it; `exact` for exactly once."""
    tasks: list[Task] = []

    def made(supplier: Callable[[], StateStore], *, exact: bool = False, logging: bool = True) -> Task:
        task = Task([key_value()], tmp_path / str(len(tasks)))
        task.stores.close(clean=True)
        task.specs.append(stores.custom("c", supplier, logging=logging))
        if logging:
            task.logs["c"] = []

        def make_stores() -> TaskStores:
            return TaskStores("0_3", task.specs, directory=task.directory, shared=None, record_time=lambda: task.now, expired=print, exact=exact)

        task.make = make_stores  # type: ignore[method-assign]
        task.open()
        tasks.append(task)
        return task

    yield made
    for task in tasks:
        task.close()


KINDS = (InMemory, OnDisk, Transactional)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_has_its_changes_in_the_changelog(make: Callable[..., Task], kind: type[InMemory]) -> None:
    """The last one of each key, at the time of the record or at its own; then it commits, with the offset that the changelog is at."""
    task = make(kind)
    task.now = 7
    task["c"].put(b"a", b"1")
    task["c"].put(b"b", b"2")
    task["c"].put(b"a", b"3")
    task["c"].context.log_change(b"c", None, 5)
    assert task.stores.uncommitted_bytes > 0
    assert task.commit() == {"c": [(b"a", b"3", 7), (b"b", b"2", 7), (b"c", None, 5)]}
    assert task["c"].commits == [{("c", 3): 3}]
    task.commit()
    assert task["c"].commits == [{("c", 3): 3}]
    assert task.stores.uncommitted_bytes == 0


@pytest.mark.parametrize(("kind", "restored"), [(InMemory, 2), (OnDisk, 0), (Transactional, 0)])
def test_a_store_is_there_again_after_a_close(make: Callable[..., Task], kind: type[InMemory], restored: int) -> None:
    """A persistent store is not restored; another one is, from the beginning of its changelog."""
    task = make(kind)
    for key in (b"a", b"b"):
        task["c"].put(key, b"1")
        task.commit()
    before = task["c"]
    assert task.reopen() == restored
    assert before.closed
    assert task["c"] is not before
    assert task["c"].data == {b"a": b"1", b"b": b"1"}
    task.stores.close(clean=True)
    with pytest.raises(StoreClosed):
        task["c"].put(b"c", b"1")


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_crash(make: Callable[..., Task], kind: type[InMemory], exact: bool) -> None:
    """Exactly once uncommitted changes are not there, and so the store without a known offset is restored; at least once they may be."""
    task = make(kind, exact=exact)
    task["c"].put(b"a", b"1")
    task.commit()
    task["c"].put(b"b", b"2")
    abandoned = task.stores._engine
    assert abandoned is not None
    abandoned.close()  # as the end of a process does
    task.open()
    assert task.restore() == (0 if kind is Transactional or (kind is OnDisk and not exact) else 1)
    uncommitted = {b"b": b"2"} if kind is OnDisk and not exact else {}
    assert task["c"].data == {b"a": b"1"} | uncommitted


def test_a_rollback(make: Callable[..., Task]) -> None:
    """A store that manages its offsets is made anew, as it was; another one cannot go back: the task is to be opened anew, which restores it."""
    task = make(Transactional)
    task["c"].put(b"a", b"1")
    task.commit()
    task["c"].put(b"a", b"2")
    task.stores.freeze()
    task["c"].put(b"b", b"2")
    task.stores.drop()
    assert task["c"].data == {b"a": b"1"}
    assert task.commit() == {}
    for kind in (InMemory, OnDisk):
        task = make(kind)
        task["c"].put(b"a", b"1")
        task.commit()
        task.stores.drop()  # nothing has changed
        task["c"].put(b"a", b"2")
        with pytest.raises(TaskCorrupted, match="task 0_3: store c cannot undo its uncommitted changes"):
            task.stores.drop()
        assert task.reopen(clean=False) == 1
        assert task["c"].data == {b"a": b"1"}


def test_the_checkpoint_file_is_written_when_it_has_to_be(make: Callable[..., Task]) -> None:
    """On opening, on closing, and at each commit only if there is a persistent store that does not manage its offsets."""
    for kind, at_commit in ((InMemory, {}), (Transactional, {}), (OnDisk, {("c", 3): 1})):
        task = make(kind)
        assert task.directory is not None
        task.store.put("k", 1)
        task["c"].put(b"a", b"1")
        task.commit()
        assert read_checkpoint(task.directory) == at_commit
        task.stores.close(clean=True)
        own = {} if kind is InMemory else {("c", 3): 1}
        assert read_checkpoint(task.directory) == {("s", 3): 1} | own
        write_checkpoint(task.directory, {("s", 3): 99} if kind is not OnDisk else {("s", 3): 99, ("c", 3): 1})
        task.open()
        assert read_checkpoint(task.directory) == {("s", 3): 1} | own


def test_offsets_of_an_earlier_layout_are_taken_over(make: Callable[..., Task]) -> None:
    """A store that manages its offsets, and has none, gets that of the checkpoint file; without one it is wiped and restored."""
    task = make(Transactional)
    task["c"].put(b"a", b"1")
    task.commit()
    file = task["c"].file
    task.stores.close(clean=True)
    assert task.directory is not None
    for checkpoint, restored in (({("c", 3): 1}, 0), ({}, 1)):
        file.write_text(json.dumps({"offset": None, "data": {"a": "1"}}))
        write_checkpoint(task.directory, checkpoint)
        task.open()
        assert task["c"].committed_offset(("c", 3)) == checkpoint.get(("c", 3))
        assert task.restore() == restored
        assert task["c"].data == {b"a": b"1"}
        task.stores.close(clean=False)


def test_a_store_without_changelog(make: Callable[..., Task]) -> None:
    """It commits without offsets, and has nowhere to note changes."""

    class Unlogged(OnDisk):
        def init(self, context: StateStoreContext) -> None:
            super().init(context)
            assert context.changelog is None

    task = make(Unlogged, logging=False)
    with pytest.raises(StateError, match="no changelog to log a change to"):
        task["c"].put(b"a", b"1")
    token = task.stores.freeze()
    task.stores.persist_unlogged(token)
    task.stores.publish(token, {})
    assert task["c"].commits == [{}]


def test_a_store_that_only_flushes_is_flushed(make: Callable[..., Task]) -> None:
    """At each commit, and it is told that this is not how it is done any more."""

    class Flushing(InMemory):
        flushed = 0
        commit = StateStore.commit

        def flush(self) -> None:
            self.flushed += 1

    with pytest.warns(DeprecationWarning, match=r"Flushing.flush is deprecated, override commit"):
        task = make(Flushing)
    task["c"].put(b"a", b"1")
    task.commit()
    assert task["c"].flushed == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        task.stores.close(clean=True)


@OWN
def test_objects_that_are_no_store_are_refused(make: Callable[..., Task]) -> None:
    """By name: a supplied object that is no store, and one with a changelog that nothing restores."""

    class Forgetful(InMemory):
        def init(self, context: StateStoreContext) -> None:
            self.context = context

    supplier: Any = dict
    with pytest.raises(StateError, match=r"store c: its supplier made \{\}"):
        make(supplier)
    with pytest.raises(StateError, match=r"call context.register in init"):
        make(Forgetful)


def test_the_content_of_a_store_counts(make: Callable[..., Task]) -> None:
    """`approximate_num_uncommitted_bytes` is part of the task's uncommitted bytes."""

    class Heavy(InMemory):
        def approximate_num_uncommitted_bytes(self) -> int:
            return 1 << 20

    assert make(Heavy).stores.uncommitted_bytes == 1 << 20
