"""All stores of a task together: opening, committing, writing to disk, closing."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ks_actors._errors import IllegalTransition, StateError, StateFull, StateLocked, StoreClosed, TaskCorrupted
from ks_actors.records._batch import Batch
from ks_actors.serdes import STRING, json, msgpack
from ks_actors.state import SharedResources, TaskStores, read_checkpoint, write_checkpoint
from ks_actors.state.core import EngineRow
from ks_actors.state.core._key_ranges import after
from ks_actors.state.disk import _manifest as manifest
from ks_actors.state.disk._rocksdb import RocksEngine
from tests.ks_actors.state.conftest import MakeTask
from tests.ks_actors.state.helpers import Task, key_value, window
from tests.layouts import OWN


def test_stores_are_had_by_name(make: MakeTask) -> None:
    """Logged ones are known by name too; a missing name is in the error, with the present ones."""
    task = make(key_value("a"), window("b", logging=False))
    assert (task.stores.names, task.stores.logged) == (("a", "b"), ("a",))
    assert task["b"].name == "b"
    with pytest.raises(StateError, match="task 0_3 has no store 'c'; it has a, b"):
        task.stores.store("c")
    with pytest.raises(StateError, match="not open"):
        task.make().store("a")


def test_one_commit_at_a_time(make: MakeTask) -> None:
    """A token is good until it is kept or dropped, and while it is, there is no other."""
    task = make(key_value())
    token = task.stores.freeze()
    with pytest.raises(IllegalTransition, match="Token 1"):
        task.stores.freeze()
    task.stores.publish(token, {})
    for call in (lambda: task.stores.publish(token, {}), lambda: task.stores.persist_unlogged(token), lambda: list(task.stores.changelog(token))):
        with pytest.raises(IllegalTransition, match="no state is"):
            call()
    dropped = task.stores.freeze()
    task.stores.drop()
    with pytest.raises(IllegalTransition, match="Token 2"):
        task.stores.publish(dropped, {})


def test_nothing_needs_to_be_restored_after_a_clean_close(on_disk: MakeTask) -> None:
    """After any other end only the tail behind the last write is restored: offsets are never ahead of data."""
    task = on_disk(key_value(), window("w"))
    for number in range(10):
        task.store.put(f"k{number}", number)
        task["w"].put("k", "v", number)
        task.commit()
        if number == 5:
            task.flush()
    assert task.reopen(clean=False) == 8
    assert task.reopen(clean=True) == 0
    assert (task.stores.next_offset("s"), task.stores.next_offset("w")) == (10, 10)
    assert len(list(task.store.all())) == len(list(task["w"].all())) == 10


def test_uncommitted_changes_are_gone_after_a_close(make: MakeTask) -> None:
    """A clean one too: the runtime commits before, or does not want it."""
    task = make(key_value())
    task.store.put("a", 1)
    task.commit()
    task.store.put("a", 2)
    task.stores.freeze()
    task.store.put("b", 2)
    task.reopen(clean=True)
    assert list(task.store.all()) == [("a", 1)]


def test_a_new_store_starts_at_the_beginning(on_disk: MakeTask) -> None:
    """Those that were there are where they were."""
    task = on_disk(key_value())
    task.store.put("a", 1)
    task.commit()
    task.specs = [*task.specs, key_value("t", type="rocksdb")]
    task.logs["t"] = []
    assert task.reopen() == 0
    assert (task.stores.next_offset("s"), task.stores.next_offset("t")) == (1, None)
    task["t"].put("a", 2)
    task.commit()
    assert task.reopen() == 0
    assert (task["s"].get("a"), task["t"].get("a")) == (1, 2)
    assert task.stores.next_offset("s") == 1


@pytest.mark.parametrize("other", [key_value(timestamped=True), window(retention_ms=400_000), window(retain_duplicates=True)])
def test_a_store_whose_rows_have_another_form_is_not_read(on_disk: MakeTask, other: Any, caplog: pytest.LogCaptureFixture) -> None:
    """With timestamps on disk, other segments or duplicates: that store is given up alone, with a warning, to be restored; the others stay."""
    former = key_value() if other.retention_ms in {0, 100} and not other.retain_duplicates else window()
    task = on_disk(former, key_value("t", logging=False))
    task["t"].put("a", 1)
    task.commit()
    task.stores.close(clean=True)
    task.specs = [other, key_value("t", logging=False)]
    task.open()
    assert re.search(r"store s of task 0_3, in .*0_3, is deleted, and restored from its changelog: it was .*, and is .* now", caplog.text)
    assert task.stores.next_offset("s") is None
    assert list(task["s"].all()) == []
    assert task["t"].get("a") == 1


def test_a_store_without_a_changelog_is_never_given_up(on_disk: MakeTask) -> None:
    """Its data is the only copy: the error names the store and the directory, and nothing is deleted."""
    task = on_disk(key_value(logging=False))
    task["s"].put("a", 1)
    task.commit()
    task.stores.close(clean=True)
    former, task.specs = task.specs, [window(logging=False)]
    task.stores = task.make()
    with pytest.raises(StateError, match=r"store s of task 0_3 has no changelog, and its only copy, in .*0_3, cannot be used: it was .* move"):
        task.stores.open()
    with pytest.raises(StateError, match=r"store s of task 0_3 has no changelog.*: it is damaged"):
        task.stores.give_up("it is damaged")
    task.specs = former
    task.open()
    assert task["s"].get("a") == 1


def test_a_store_that_is_filled_from_another_topic_is_given_up_alone(on_disk: MakeTask, caplog: pytest.LogCaptureFixture) -> None:
    """An offset of the old topic says nothing about the new one."""
    task = on_disk(key_value(), key_value("t"))
    task["s"].put("a", 1)
    task["t"].put("a", 1)
    task.commit()
    task.stores.close(clean=True)
    task.stores = TaskStores(
        "0_3", task.specs, directory=task.directory, shared=task.shared, record_time=lambda: 0, expired=lambda _: None, topics={"s": "other-topic"}
    )
    task.stores.open()
    assert "it was filled from topic s, and its changelog is other-topic now" in caplog.text
    assert (task.stores.next_offset("s"), task.stores.next_offset("t")) == (None, 1)
    assert (task["s"].get("a"), task["t"].get("a")) == (None, 1)


def test_a_directory_has_one_owner(on_disk: MakeTask) -> None:
    """The second one is told, and may have it when the first has closed; only a closed task can be given up."""
    task = on_disk(key_value())
    second = task.make()
    with pytest.raises(StateLocked, match=r"task 0_3.*in use"):
        second.open()
    with pytest.raises(IllegalTransition, match="before you delete it"):
        task.stores.give_up("a test")
    rows = task.store.all()
    task.stores.close(clean=True)
    second.open()
    second.close(clean=False)
    second.give_up("a test")
    second.give_up("a test")
    assert task.directory is not None
    assert not (task.directory / "rocksdb").exists()
    with pytest.raises(StoreClosed, match="before it was read to its end"):
        next(rows)


def test_a_broken_batch_is_corrupted(on_disk: MakeTask) -> None:
    """A database that cannot be opened, a list of stores that cannot be read, one of another format, a checkpoint that is none."""
    task = on_disk(key_value())
    directory = task.directory
    assert directory is not None
    engine = task.stores._engine
    assert engine is not None
    for broken in (b"no list", msgspec.json.encode(manifest.Manifest(format=99))):
        engine.write([(manifest.STORES, broken)])
        task.stores.close(clean=False)
        task.stores = task.make()
        with pytest.raises(TaskCorrupted, match="task 0_3"):
            task.stores.open()
        engine = task.stores._engine = RocksEngine("0_3", directory / "rocksdb", SharedResources())
    task.stores.close(clean=False)
    current = directory / "rocksdb" / "CURRENT"
    for text in ("MANIFEST-999999\n", "no name"):
        current.write_text(text)
        with pytest.raises(TaskCorrupted, match="task 0_3"):
            task.stores.open()
    (directory / "rocksdb").rename(directory / "elsewhere")
    (directory / "rocksdb").write_text("no directory")
    with pytest.raises(StateError, match="cannot be used"):
        task.stores.open()
    for text in ("1\n0\n", "0\n2\nt 0 5\n", "0\n1\nt 0\n", "0\n1\nt 0 x\n", ""):
        (directory / ".checkpoint").write_text(text)
        with pytest.raises(TaskCorrupted, match="not a checkpoint file"):
            read_checkpoint(directory)


@OWN
def test_a_block_that_cannot_be_read_is_corruption(on_disk: MakeTask) -> None:
    """Whether it is met by a read or by a scan: a scan that just ended would lose records."""
    task = on_disk(key_value(value=STRING))
    for number in range(2000):
        task.store.put(f"{number:05}", f"{number * 7919 % 10007}" * 5)
    task.commit()
    task.stores.close(clean=True)
    assert task.directory is not None
    (table,) = (task.directory / "rocksdb").glob("*.sst")
    data = bytearray(table.read_bytes())
    data[len(data) // 4 : len(data) // 4 + 64] = bytes(64)
    table.write_bytes(data)
    task.open()
    with pytest.raises(TaskCorrupted, match="deleted and restored"):
        list(task.store.all())
    with pytest.raises(TaskCorrupted, match="deleted and restored"):
        for number in range(2000):
            task.store.get(f"{number:05}")


def test_the_checkpoint_file(on_disk: MakeTask) -> None:
    """Is in Kafka Streams' format, with the names of the changelog topics; it says how far a task had come that was closed cleanly."""
    task = on_disk(key_value(), window("w", logging=False))
    assert task.directory is not None
    task.store.put("a", 1)
    task.commit()
    task.stores.close(clean=False)
    assert read_checkpoint(task.directory) == {}
    task.stores = TaskStores(
        "0_3", task.specs, directory=task.directory, shared=None, record_time=lambda: 0, expired=print, topics={"s": "app-s-changelog"}
    )
    task.stores.open()
    task.restore()
    task.stores.close(clean=True)
    assert (task.directory / ".checkpoint").read_text() == "0\n1\napp-s-changelog 3 1\n"
    assert read_checkpoint(task.directory) == {("app-s-changelog", 3): 1}
    write_checkpoint(task.directory, {("app-s-changelog", 3): 1, ("app-t-changelog", 3): -4})
    assert read_checkpoint(task.directory) == {("app-s-changelog", 3): 1}, "the other one is not known"
    write_checkpoint(task.directory, {})
    assert read_checkpoint(task.directory) == {}


def test_the_checkpoint_counts_where_a_store_has_no_offset_of_its_own(on_disk: MakeTask) -> None:
    """Without either, a store's state on disk is left-over: it is deleted, and restored from the beginning."""
    task = on_disk(key_value())
    engine, directory = task.stores._engine, task.directory
    assert engine is not None
    assert directory is not None
    engine.write([(task.store.prefix + b"a", (5).to_bytes(8, "big"))])
    task.stores.close(clean=False)
    write_checkpoint(directory, {("s", 3): 7})
    task.open()
    assert (task.stores.next_offset("s"), task.store.get("a")) == (7, 5)
    write_checkpoint(directory, {})
    task.stores.close(clean=False)
    task.open()
    assert (task.stores.next_offset("s"), task.store.get("a")) == (7, 5), "it is in the store by now"
    engine = task.stores._engine
    assert engine is not None
    engine.write([(b"\0offset:s", None)])
    task.stores._written.clear()
    task.stores.close(clean=False)
    task.open()
    assert (task.stores.next_offset("s"), task.store.get("a")) == (None, None)


def test_stores_without_changelog_survive(on_disk: MakeTask) -> None:
    """They are written at the commit, in one go; where the runtime does not, with everything else."""
    task = on_disk(key_value(logging=False), window("w", logging=False, retention_ms=100_000), key_value("l"))
    for name in ("a", "b"):
        task.store.put(name, 1)
        task["w"].put(name, name, 50)
        task["l"].put(name, 1)
    task.store.put("b", None)
    token = task.stores.freeze()
    task.store.put("c", 1)
    assert list(task.log(token)) == ["l"]
    task.stores.persist_unlogged(token)
    task.stores.publish(token, {"l": 2})
    task.reopen(clean=False)
    assert (list(task.store.all()), len(list(task["w"].all())), list(task["l"].all())) == ([("a", 1)], 2, [])
    task.store.put("d", 1)
    task.commit()
    assert task.stores.wants_flush(True)
    task.flush()
    task.reopen(clean=False)
    assert list(task.store.all()) == [("a", 1), ("d", 1)]


def test_nothing_to_persist(make: MakeTask) -> None:
    """Is fine."""
    task = make(key_value())
    token = task.stores.freeze()
    task.stores.persist_unlogged(token)
    task.stores.publish(token, {})
    assert not task.stores.wants_flush(False)


def test_when_a_flush_is_wanted(on_disk: MakeTask) -> None:
    """When the tail to be replayed is long, in records or bytes, or when the task is idle and something is not on disk."""
    task = on_disk(key_value(value=STRING), shared=SharedResources(tail_records=10, tail_bytes=1 << 20))
    assert not task.stores.wants_flush(True)
    task.store.put("a", "x")
    assert not task.stores.wants_flush(True)
    task.commit()
    assert not task.stores.wants_flush(False)
    assert task.stores.wants_flush(True)
    steps = task.stores.flush_steps()
    next(steps)
    assert not task.stores.wants_flush(True)
    assert len(list(steps)) > 0
    task.end_background_work()
    assert not task.stores.wants_flush(True)
    for number in range(10):
        task.store.put("b", str(number))
        task.commit()
    assert task.stores.wants_flush(False)
    task.flush()
    task.end_background_work()
    task.store.put("c", "x" * (1 << 20))
    task.commit()
    assert task.stores.wants_flush(False)
    task.flush()
    task.end_background_work()
    assert not task.stores.wants_flush(False)


def test_memory_alone_can_want_a_flush(make: MakeTask) -> None:
    """The remaining work of a commit is done then, and nothing is written."""
    task = make(key_value())
    for number in range(60_000):
        task.store.put(str(number), number)
    task.commit()
    assert task.store.uncompacted() > 50_000
    assert task.stores.wants_flush(False)
    task.flush()
    assert task.store.uncompacted() == 0
    assert not task.stores.wants_flush(False)
    assert task.stores.next_offset("s") == 60_000


def test_memory_is_bounded(on_disk: MakeTask) -> None:
    """Rows on disk leave memory when there is more than the limit; nothing that is not there does."""
    task = on_disk(key_value(), shared=SharedResources(resident_bytes=30_000))
    for number in range(1000):
        task.store.put(f"{number:04}", number)
    task.commit()
    task.store.put("0000", -1)
    assert list(task.store.range("0000", "0001")) == [("0000", -1), ("0001", 1)]
    task.flush()
    assert len(task.store._view) < 120
    assert task.store.get("0000") == -1
    assert [task.store.get(f"{number:04}") for number in range(1, 1000)] == list(range(1, 1000))
    assert list(task.store.range("0100", "0102")) == [("0100", 100), ("0101", 101), ("0102", 102)]
    token = task.stores.freeze()
    task.store.put("0001", -1)
    for step, _ in enumerate(task.stores.flush_steps()):
        if step == 0:
            task.stores.publish(token, {"s": 1001})
    assert (task.store.get("0000"), task.store.get("0001")) == (-1, -1)


def test_keys_that_come_and_go_leave_nothing_behind(on_disk: MakeTask) -> None:
    """As in the store of an outer join: each key is put once and deleted soon."""
    task = on_disk(key_value())
    for number in range(30):
        for key in range(100):
            task.store.put(f"{number}-{key}", key)
        assert len(list(task.store.all())) == 100
        task.commit()
        for key in range(100):
            task.store.delete(f"{number}-{key}")
        task.commit()
        task.flush()
    store = task.store
    assert list(store.all()) == []
    assert len(store._view) == 0
    assert len(store._order) + len(store._entered) < 2000


class Faulty:
    """An engine that fails at one write."""

    def __init__(self, engine: Any, fails_at: int) -> None:
        self.engine = engine
        self.left = fails_at

    def write(self, rows: Iterable[EngineRow], ranges: Sequence[tuple[bytes, bytes]] = (), *, durable: bool = False) -> None:
        self.left -= 1
        if self.left == 0:
            raise StateFull("task 0_3: there is no room")
        self.engine.write(rows, ranges, durable=durable)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


@pytest.mark.parametrize("fails_at", range(1, 9))
@pytest.mark.parametrize("again", [True, False])
def test_a_write_that_fails_harms_nothing(on_disk: MakeTask, fails_at: int, again: bool) -> None:
    """Rows in memory stay, and are written at the next attempt; rows on disk are not behind their offsets."""
    task = on_disk(key_value(), window("w", retention_ms=100_000))
    for number in range(700):
        task.store.put(f"{number:04}", number)
        task["w"].put(f"{number % 10}", str(number), number * 250)
    task.commit()
    task.flush()
    for number in range(700):
        task.store.put(f"{number:04}", -number)
        task["w"].put(f"{number % 10}", str(-number), number * 250)
    task.commit()
    task.restore()
    expected = list(task.store.all()), list(task["w"].all())
    faulty = Faulty(task.stores._engine, fails_at)
    task.stores._engine = task.store.engine = task["w"].engine = faulty
    if fails_at < 8:
        with pytest.raises(StateFull):
            task.flush()
    assert (list(task.store.all()), list(task["w"].all())) == expected
    if again:
        task.flush()
    assert task.reopen(clean=False) == (0 if again else 1100)
    assert (list(task.store.all()), list(task["w"].all())) == expected


def test_a_restore_that_cannot_be_written_is_written_later(on_disk: MakeTask) -> None:
    """Restored rows, and later puts, are in memory until then, the newer over the older."""
    task = on_disk(key_value())
    task.accept({"s": [(f"{number:04}".encode(), number.to_bytes(8, "big"), 0) for number in range(500)]})
    task.restore(size=100)
    task.store.put("0499", -1)
    task.commit()
    task.stores._engine = task.store.engine = Faulty(task.stores._engine, 2)
    with pytest.raises(StateFull):
        task.flush()
    task.accept({"s": [(b"0001", None, 0), (b"0002", (22).to_bytes(8, "big"), 0)]})
    task.restore()
    assert [task.store.get(key) for key in ("0000", "0001", "0002", "0499")] == [0, None, 22, -1]
    task.flush()
    task.reopen(clean=False)
    assert [task.store.get(key) for key in ("0000", "0001", "0002", "0499")] == [0, None, 22, -1]
    assert len(list(task.store.all())) == 499


@OWN
def test_a_task_that_is_closed_while_it_restores_goes_on_from_there(on_disk: MakeTask) -> None:
    """There is nothing to commit of it, but restored rows are on disk, and so is its offset: only the rest is read the next time."""
    task = on_disk(key_value())
    task.stores.restore("s", Batch([b"%04d" % number for number in range(100)], [bytes(8)] * 100, [0] * 100), 100)
    task.stores.close(clean=True)
    assert task.directory is not None
    assert read_checkpoint(task.directory) == {("s", 3): 100}
    again = task.make()
    again.open()
    assert again.next_offset("s") == 100
    assert len(list(again.store("s").all())) == 100
    again.close(clean=False)


def test_a_store_that_is_read_while_it_is_restored(make: MakeTask) -> None:
    """As a standby's is: earlier reads and puts do not hide new rows."""
    task = make(key_value(), window("w"))
    start = (5).to_bytes(8, "big") + bytes(4)
    for number in range(3):
        task.accept({"s": [(b"a", number.to_bytes(8, "big"), 0), (b"b", None if number else b"\0" * 8, 0)]})
        task.accept({"w": [(b"a" + start, str(number).encode(), 0), (b"b" + start, None if number else b"0", 0)]})
        task.restore()
        assert (task.store.get("a"), task.store.get("b")) == (number, None if number else 0)
        assert list(task.store.all()) == ([("a", number)] if number else [("a", 0), ("b", 0)])
        assert task["w"].fetch("a", 5) == str(number)
        assert [value for _, value in task["w"].fetch("b", 0, 9)] == ([] if number else ["0"])
        if number == 1:
            task.flush()


def test_restored_rows_give_way_to_puts(make: MakeTask) -> None:
    """Without having been read before; and from committed to restored rows, as when a task has been on another member for a while."""
    task = make(key_value(), window("w"))
    task.accept({"s": [(b"a", (1).to_bytes(8, "big"), 0), (b"b", (1).to_bytes(8, "big"), 0)]})
    task.restore()
    task.store.put("a", 2)
    task.commit()
    task.store.delete("a")
    assert list(task.store.all()) == [("b", 1)]
    task.commit()
    assert task.store.get("a") is None
    assert list(task.store.all()) == [("b", 1)]
    task.store.put("b", 2)
    task["w"].put("b", "old", 5)
    task.commit()
    task.accept({"s": [(b"b", (3).to_bytes(8, "big"), 0)], "w": [(b"b" + (5).to_bytes(8, "big") + bytes(4), b"new", 0)]})
    task.restore()
    task.flush()
    for _ in range(2):
        assert list(task.store.all()) == [("b", 3)]
        assert list(task["w"].all()) == [(("b", 5), "new")]
        task.reopen(clean=False)


def test_uncommitted_bytes_follow_the_puts(make: MakeTask) -> None:
    """Text within a factor of two, of any size; other objects roughly. A freeze starts at 0."""

    class Point(msgspec.Struct):
        x: list[int]

    task = make(key_value(value=STRING), key_value("j", value=json()), key_value("p", value=msgpack(Point)), window("w"), window("d", value=json()))
    stores = task.stores
    assert stores.uncommitted_bytes == 0
    for _ in range(3):
        for number in range(1000):
            task.store.put(f"{number}", "x" * 10_000)
    assert 1000 * 10_000 < stores.uncommitted_bytes < 1000 * 11_000
    for number in range(1000):
        task.store.put(f"{number}", None if number % 2 else "x")
    assert stores.uncommitted_bytes < 1_000_000
    stores.drop()
    for number in range(1000):
        task["w"].put("k", "x" * 10_000, 50)
        task["w"].put(f"{number}", None if number % 2 else "x" * 1000, 60)
    assert 500_000 < stores.uncommitted_bytes < 1_000_000
    stores.freeze()
    assert stores.uncommitted_bytes == 0
    stores.drop()
    for number in range(1000):
        task["j"].put(str(number), ["x" * 1000] * 10)
        task["d"].put(str(number), {"k": "x" * 1000}, 50)
        task["p"].put(str(number), Point([1] * 100))
    assert 10_000_000 < stores.uncommitted_bytes < 25_000_000
    other = make(key_value("j", value=json()))
    for number in range(10):
        other["j"].put("k", "x" * 10_000 * number)
    assert 90_000 < other.stores.uncommitted_bytes < 91_000
    other["j"].put("k", None)
    other["j"].put("k", 5)
    assert other.stores.uncommitted_bytes < 1000
    other = make(key_value("j", value=json()), window("d", value=json()))
    other["j"].put("k", ["x" * 1_000_000])
    other["d"].put("k", ["x" * 1_000_000], 5)
    assert other.stores.uncommitted_bytes > 2_000_000


def test_a_flush_can_be_begun_again(on_disk: MakeTask) -> None:
    """Whether the one before was abandoned, or is still in use: that one has come to its end then."""
    task = on_disk(key_value())
    for number in range(1000):
        task.store.put(f"{number}", number)
    task.commit()
    left = task.stores.flush_steps()
    next(left)
    next(left)
    assert task.flush() > 1
    assert list(left) == []
    assert task.reopen(clean=False) == 0
    assert len(list(task.store.all())) == 1000


def test_commits_go_on_while_memory_is_put_in_order(on_disk: MakeTask) -> None:
    """Commits between two steps are looked at before anything leaves memory."""
    shared = SharedResources(resident_bytes=60_000)
    task = on_disk(key_value(), window("w", value=STRING, retention_ms=1 << 40), shared=shared)
    expected = {}
    for number in range(3000):
        expected[f"{number:04}"] = number
        task.store.put(f"{number:04}", number)
        task["w"].put(f"{number % 50}", f"{number}", number)
    task.commit()
    assert list(task.store.range("0000", "0000")) == [("0000", 0)]
    for step, _ in enumerate(task.stores.flush_steps()):
        expected[f"{step % 3000:04}"] = -step
        task.store.put(f"{step % 3000:04}", -step)
        task["w"].put(f"{step % 50}", f"again {step}", step)
        if step % 3 == 0:
            task.commit()
    assert len(task.store._view) < 3000
    assert dict(task.store.all()) == expected
    for number in range(20):
        expected[f"new {number}"] = number
        task.store.put(f"new {number}", number)
    assert dict(task.store.all()) == expected
    task.commit()
    for _ in range(3):
        task.flush()
    assert len(task["w"].fetch_all_entries(0, 5000)) == 3000
    task.reopen(clean=False)
    assert dict(task.store.all()) == expected


def test_the_end_of_a_prefix() -> None:
    """Is the next key that does not have it; a prefix of nothing but 0xff has none."""
    assert (after(b"\1"), after(b"a\xff"), after(b"\xff\xff"), after(b"")) == (b"\2", b"b", b"", b"")


def test_an_engine_that_is_closed_says_so(tmp_path: Path) -> None:
    """As a StateError, which names the task, for any fault; only a second close does nothing."""
    engine = RocksEngine("0_3", tmp_path, SharedResources())
    engine.close()
    engine.close()
    calls: list[Callable[[], object]] = [lambda: engine.flush(wait=True), lambda: engine.get(b""), lambda: engine.write([])]
    for call in calls:
        with pytest.raises(StateError, match="task 0_3"):
            call()


def test_a_task_without_number_has_partition_zero(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As the stores of global tables."""
    stores = TaskStores("global", [key_value(type="rocksdb")], directory=tmp_path, shared=None, record_time=lambda: 0, expired=print)
    with caplog.at_level(logging.WARNING):
        stores.open()
    token = stores.freeze()
    stores.publish(token, {"s": 4})
    stores.close(clean=True)
    assert read_checkpoint(tmp_path) == {("s", 0): 4}


def test_no_more_stores_than_ids(tmp_path: Path) -> None:
    """A store's id is one byte."""
    specs = [key_value(f"s{number}", type="rocksdb") for number in range(255)]
    stores = TaskStores("0_0", specs, directory=tmp_path, shared=None, record_time=lambda: 0, expired=print)
    with pytest.raises(TaskCorrupted, match="254 stores"):
        stores.open()


def test_shared_resources_can_be_let_go(tmp_path: Path) -> None:
    """When all databases that used them are closed."""
    shared = SharedResources()
    task = Task([key_value()], tmp_path, shared=shared)
    task.close()
    shared.close()
