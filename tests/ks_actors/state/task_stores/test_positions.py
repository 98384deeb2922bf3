"""The positions of stores in the input: in the database, in the changelog, and in files of Kafka Streams' layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ks_actors import ValueTimestampHeaders
from ks_actors.records._batch import Batch, Headers
from ks_actors.serdes import STRING
from ks_actors.state import TaskStores
from ks_actors.state.task_stores._positions import Positions, merged, pack, unpack
from ks_actors.topology import StoreKind
from tests.ks_actors.state.helpers import Task, key_value, window

FIRST, SECOND = {("in", 3): 7}, {("in", 3): 9, ("other", 3): 1}


def commit(task: Task, position: dict[tuple[str, int], int], **puts: int) -> list[Any]:
    """Put, and commit at a position; return the headers in the changelog."""
    for key, value in puts.items():
        task.store.put(key, value)
    token = task.stores.freeze(position)
    batches = [batch for _, batch in task.stores.changelog(token)]
    task.logs["s"] += [(b"k", b"v", 0)] * sum(map(len, batches))
    task.stores.persist_unlogged(token)
    task.stores.publish(token, task.ends())
    return [header for batch in batches for header in batch.headers or [()] * len(batch)]


def vectored(tmp_path: Path, **options: Any) -> TaskStores:
    stores = TaskStores("0_3", [key_value(**options)], directory=tmp_path, shared=None, record_time=lambda: 0, expired=print, vectors=True)
    stores.open()
    return stores


def test_a_position_is_written_as_kafka_streams_writes_it() -> None:
    """PositionSerde's bytes: 0, then topics with their partitions and offsets; any other form is refused."""
    data = b"\0" + b"\0\0\0\1" + b"\0\0\0\2in" + b"\0\0\0\2" + b"\0\0\0\3" + bytes(7) + b"\7" + b"\0\0\0\4" + bytes(6) + b"\1\0"
    assert pack({("in", 3): 7, ("in", 4): 256}) == data
    assert unpack(data) == {("in", 3): 7, ("in", 4): 256}
    assert unpack(pack(SECOND)) == SECOND
    assert unpack(pack({})) == {}
    for bad in (b"", b"\1", data[:-1], data[:9]):
        with pytest.raises(ValueError, match="position"):
            unpack(bad)


def test_positions_only_go_forward() -> None:
    """Of two positions each partition has the higher offset; a position is not copied when it has it all."""
    assert merged(FIRST, SECOND) == SECOND
    assert merged(SECOND, FIRST) is SECOND
    assert merged({("a", 0): 5, ("b", 0): 1}, {("a", 0): 4, ("b", 0): 2}) == {("a", 0): 5, ("b", 0): 2}


def test_a_commit_that_changes_nothing_leaves_the_position() -> None:
    """A position is that of the last change: standbys get the same one from the changelog."""
    positions = Positions(vectors=False)
    positions.advance(("s",), FIRST)
    positions.advance((), SECOND)
    assert positions.of("s") == FIRST
    assert positions.of("t") == {}


def test_the_position_is_on_disk_with_its_rows(tmp_path: Path) -> None:
    """After a crash the database has the position of its own rows, not that of a commit that it does not have."""
    task = Task([key_value()], tmp_path)
    commit(task, FIRST, a=1)
    task.flush()
    commit(task, SECOND, a=2)
    commit(task, {("in", 3): 30})
    assert task.stores.positions.of("s") == SECOND
    task.stores.close(clean=False)
    task.open()
    assert (task.stores.positions.of("s"), task.stores.next_offset("s"), task.store.get("a")) == (FIRST, 1, 1)
    commit(task, SECOND, a=3)
    task.reopen()
    assert task.stores.positions.of("s") == SECOND
    task.close()


@pytest.mark.parametrize("outcome", ["under way", "committed", "dropped"])
def test_a_flush_keeps_rows_that_a_commit_has_persisted(tmp_path: Path, outcome: str) -> None:
    """A store without a changelog is on disk before its commit: a flush takes position and times back neither then nor later."""
    task = Task([key_value(), window("w", logging=False, retention_ms=100_000)], tmp_path)
    task["w"].put("k", "first", 50)
    commit(task, FIRST, a=1)
    steps = task.stores.flush_steps()
    next(steps)
    task["w"].put("k", "second", 200)
    token = task.stores.freeze(SECOND)
    task.stores.persist_unlogged(token)
    if outcome == "committed":
        task.stores.publish(token, {})
    elif outcome == "dropped":
        task.stores.drop()
    assert list(steps)
    assert task.stores._engine is not None
    task.stores._engine.flush(wait=True)
    task.reopen(clean=False)
    assert task.stores.positions.of("w") == SECOND
    assert (task["w"].fetch("k", 50), task["w"].fetch("k", 200)) == ("first", "second")
    task.close()


def test_a_rollback_takes_the_position_back() -> None:
    """Dropped puts are not part of the position, whether they were frozen or not."""
    stores = TaskStores("0_3", [key_value(type="in_memory")], directory=None, shared=None, record_time=lambda: 0, expired=print)
    stores.open()
    stores.store("s").put("a", 1)
    assert stores.changed("s")
    stores.freeze(FIRST)
    assert stores.changed("s")
    stores.drop()
    assert not stores.changed("s")
    assert stores.positions.of("s") == {}
    stores.close(clean=False)


def test_the_last_record_of_a_commit_tells_the_position(tmp_path: Path) -> None:
    """In the headers of Kafka Streams' changelogs, `v` and `c`; a restore gets the position. A commit without changes writes nothing."""
    task = Task([key_value()], tmp_path)
    assert commit(task, FIRST, a=1, b=2) == [(), ()]  # not unless it is asked for
    task.close()
    stores = vectored(tmp_path / "a")
    for number in range(1500):
        stores.store("s").put(f"k{number}", number)
    token = stores.freeze(FIRST)
    batches = [batch for _, batch in stores.changelog(token)]
    stores.publish(token, {"s": 1500})
    assert [batch.headers is None for batch in batches] == [True, False]
    assert batches[-1].headers is not None
    assert batches[-1].headers == [()] * 499 + [(("v", b"\0"), ("c", pack(FIRST)))]
    copy = vectored(tmp_path / "b")
    for number, batch in enumerate(batches):
        assert copy.positions.of("s") == {}
        copy.restore("s", batch, 1000 + 500 * number)
    assert copy.positions.of("s") == FIRST
    assert list(stores.changelog(stores.freeze(SECOND))) == []
    stores.close(clean=False)
    copy.close(clean=True)
    again = vectored(tmp_path / "b")
    assert (again.positions.of("s"), again.next_offset("s")) == (FIRST, 1500)
    again.close(clean=False)


def test_headers_of_others_are_not_positions(tmp_path: Path) -> None:
    """A vector counts with the version header; the last one of a batch has it all."""
    stores = vectored(tmp_path)
    strange: tuple[list[Headers], ...] = ([()], [(("c", b"x"),)], [(("v", b"\1"), ("c", b"x"))], [(("v", b"\0"),)], [(("v", b"\0"), ("c", None))])
    for headers in strange:
        stores.restore("s", Batch([b"k"], [bytes(8)], [0], headers), 1)
        assert stores.positions.of("s") == {}
    two: list[Headers] = [(("v", b"\0"), ("c", pack(FIRST))), (("v", b"\0"), ("c", pack(SECOND))), ()]
    stores.restore("s", Batch([b"k"] * 3, [bytes(8)] * 3, [0] * 3, two), 4)
    assert stores.positions.of("s") == SECOND
    stores.close(clean=False)


@pytest.mark.parametrize("logged", [True, False])
def test_position_files_are_taken_over(tmp_path: Path, logged: bool) -> None:
    """A `.position` file has the position of a store without one of its own; it is deleted, and the store's own position counts more (KIP-892)."""
    file = tmp_path / "0_3" / "s.position"
    file.parent.mkdir()
    file.write_text("0\n1\nin 3 99\n")
    task = Task([key_value(logging=logged)], tmp_path)
    for expected in (
        {},
        FIRST,
        FIRST,
    ):  # a new store has nothing of what the file says, one without a position takes it over, one with one does not
        assert task.stores.positions.of("s") == expected
        assert not file.exists()
        task.store.put("a", 1)
        token = task.stores.freeze()
        list(task.stores.changelog(token))
        task.stores.persist_unlogged(token)
        task.stores.publish(token, {"s": 1} if logged else {})
        task.stores.close(clean=True)
        file.write_text("0\n1\nin 3 7\n" if expected == {} else "0\n1\nin 3 99\n")
        task.open()
    task.close()


def test_a_position_file_that_was_taken_over_survives_a_crash(tmp_path: Path) -> None:
    """The database has it durably before the file is gone."""
    task = Task([key_value()], tmp_path)
    commit(task, {}, a=1)
    task.stores.close(clean=True)
    (tmp_path / "0_3" / "s.position").write_text("0\n1\nin 3 7\n")
    for _ in range(2):
        task.open()
        assert task.stores.positions.of("s") == FIRST
        task.stores.close(clean=False)


def test_a_position_file_that_cannot_be_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The store is not wiped for it: only its position is not known."""
    task = Task([key_value()], tmp_path)
    commit(task, {}, a=1)
    task.stores.close(clean=True)
    (tmp_path / "0_3" / "s.position").write_text("1\n0\n")
    task.open()
    assert task.stores.positions.of("s") == {}
    assert task.store.get("a") == 1
    assert "is not a position file; the position of store s is unknown until the store changes" in caplog.text
    task.close()


CURRENCY = ("c", b"currency")


@pytest.mark.parametrize(
    "headers",
    [
        (CURRENCY,),
        (("v", b"2"), CURRENCY),
        (("v", b"\0"), CURRENCY),
        (CURRENCY, ("v", b"\0")),
        (CURRENCY, ("trace", b"1")),
        (("v", b"\0"), ("c", None)),
    ],
)
def test_headers_of_the_users_own_are_not_taken_for_a_position(headers: Headers, tmp_path: Path) -> None:
    """Restored rows have them all, whatever their names are; only the two that a commit appends are taken off."""

    def vectored_with_headers(name: str) -> TaskStores:
        spec = key_value(value=STRING)
        spec = msgspec.structs.replace(spec, kind=StoreKind.KEY_VALUE_WITH_HEADERS)
        made = TaskStores("0_3", [spec], directory=tmp_path / name, shared=None, record_time=lambda: 0, expired=print, vectors=True)
        made.open()
        return made

    active, standby = vectored_with_headers("active"), vectored_with_headers("standby")
    for key in "ab":
        active.store("s").put(key, ValueTimestampHeaders("x", 1, headers))
    token = active.freeze(FIRST)
    batches = [batch for _, batch in active.changelog(token)]
    active.publish(token, {"s": 2})
    for batch in batches:
        standby.restore("s", Batch(batch.keys[:1], batch.values[:1], batch.timestamps[:1], (batch.headers or [])[:1]), 1)
        assert standby.positions.of("s") == {}
        standby.restore("s", batch, 2)
    assert [standby.store("s").get(key).headers for key in "ab"] == [headers, headers]
    assert standby.positions.of("s") == FIRST
    for stores in (active, standby):
        stores.close(clean=False)
