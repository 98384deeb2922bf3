"""The behavior of a key-value store, for any engine and any keys and values."""

from __future__ import annotations

from typing import Any

import pytest

from ks_actors._errors import SerializationError, StoreClosed
from ks_actors.serdes import BYTES, DOUBLE, INTEGER, LONG, STRING, Serde, json
from ks_actors.state import ValueAndTimestamp
from tests.ks_actors.state.conftest import MakeTask
from tests.ks_actors.state.helpers import Task, key_value

KEYS: dict[str, tuple[Any, list[Any]]] = {
    "text": (STRING, ["", "a", "ab", "b", "é"]),
    "negative numbers": (LONG, [0, 1, 7, -5, -1]),  # in the order of their bytes
    "by bytes": (DOUBLE, [0.0, 1.5, 2.5, -1.0, -2.0]),
}
VALUES: dict[str, tuple[Any, list[Any]]] = {
    "fixed": (LONG, [1, 2, 3]),
    "text": (STRING, ["one", "two", "three"]),
    "mutable": (json(), [{"n": 1}, ["two"], "three"]),
    "immutable": (json(int), [1, 2, 3]),
}


@pytest.fixture(params=KEYS)
def keys(request: pytest.FixtureRequest) -> tuple[Any, list[Any]]:
    return KEYS[request.param]


@pytest.fixture(params=VALUES)
def values(request: pytest.FixtureRequest) -> tuple[Any, list[Any]]:
    return VALUES[request.param]


@pytest.fixture(params=["open", "frozen", "kept", "written", "reopened", "restored"])
def stage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def bring(task: Task, stage: str) -> None:
    """Let the puts get as far as `stage`."""
    if stage == "frozen":
        task.stores.freeze()
    elif stage != "open":
        task.commit()
        if stage == "written":
            task.flush()
        elif stage != "kept":
            task.reopen(clean=stage == "reopened")


def test_puts_are_visible_at_every_stage(make: MakeTask, keys: tuple[Any, list[Any]], values: tuple[Any, list[Any]], stage: str) -> None:
    """Reads see overlay, frozen overlay, committed, stored and restored rows alike."""
    (key_serde, (first, second, third, *_)), (value_serde, (one, two, three)) = keys, values
    task = make(key_value(key=key_serde, value=value_serde))
    task.store.put(first, one)
    task.store.put(second, two)
    task.store.put(third, three)
    task.store.put(first, two)
    task.store.put(second, None)
    bring(task, stage)
    assert [task.store.get(key) for key in (first, second, third)] == [two, None, three]
    assert list(task.store.all()) == [(first, two), (third, three)]


def test_ranges_are_in_the_order_of_the_keys_bytes(make: MakeTask, keys: tuple[Any, list[Any]], stage: str) -> None:
    """Both bounds belong to a range; None means no bound, and a reversed range is empty."""
    serde, names = keys
    task = make(key_value(key=serde))
    for position, name in reversed(list(enumerate(names))):
        task.store.put(name, position)
    bring(task, stage)
    if stage != "frozen":
        task.store.put(names[2], 22)
        task.store.put(names[3], None)
    found = [(names[0], 0), (names[1], 1), (names[2], 22), (names[4], 4)] if stage != "frozen" else list(zip(names, range(5), strict=True))
    assert list(task.store.all()) == found
    assert list(task.store.reverse_all()) == found[::-1]
    for low in (None, *names):
        for high in (None, *names):
            first, last = 0 if low is None else names.index(low), 4 if high is None else names.index(high)
            expected = [pair for pair in found if first <= names.index(pair[0]) <= last]
            assert list(task.store.range(low, high)) == expected
            assert list(task.store.reverse_range(low, high)) == expected[::-1]


def test_prefix_scan(make: MakeTask, stage: str) -> None:
    """A prefix is as its serializer writes it; one of 0xff bytes alone has nothing behind it."""
    task = make(key_value(key=BYTES))
    names = [b"a", b"ab", b"abc", b"b", b"\xff", b"\xff\xff", b"\xff\xffz"]
    for position, name in enumerate(names):
        task.store.put(name, position)
    bring(task, stage)
    assert list(task.store.prefix_scan("ab", str.encode)) == [(b"ab", 1), (b"abc", 2)]
    assert list(task.store.prefix_scan(b"\xff\xff", bytes)) == [(b"\xff\xff", 5), (b"\xff\xffz", 6)]
    assert len(list(task.store.prefix_scan(b"", bytes))) == len(names)


def test_an_iterator_shows_the_moment_at_which_it_was_made(make: MakeTask, stage: str) -> None:
    """Puts and deletes while iterating neither break nor change it."""
    task = make(key_value())
    for name in "abcdef":
        task.store.put(name, ord(name))
    bring(task, stage)
    before = [(name, ord(name)) for name in "abcdef"]
    with task.store.all() as rows:
        seen = [next(rows)]
        task.store.put("a", 1)
        task.store.put("c", 1)
        task.store.delete("d")
        task.store.put("dd", 1)
        seen.extend(rows)
    assert seen == before
    assert [key for key, _ in task.store.all()] == ["a", "b", "c", "dd", "e", "f"]
    abandoned = task.store.all()
    abandoned.close()
    assert list(abandoned) == []


def test_deleting_while_iterating_clears_a_store(make: MakeTask, stage: str) -> None:
    """As a punctuator does it."""
    task = make(key_value())
    for name in "abcdef":
        task.store.put(name, ord(name))
    bring(task, stage)
    for key, _ in task.store.all():
        task.store.delete(key)
    assert list(task.store.all()) == []
    if stage != "frozen":
        task.commit()
        task.reopen()
        assert list(task.store.all()) == []


@pytest.mark.parametrize("serde", [STRING, LONG, json()], ids=["text", "fixed", "mutable"])
def test_scans_between_puts(make: MakeTask, serde: Any) -> None:
    """The order of the keys is kept up to date, however many are new, and however many have gone."""
    task = make(key_value(value=serde))
    value: Any = "v" if serde is STRING else 5
    expected: set[str] = set()
    for number in range(300):
        keys = {f"{number * 7919 % 10007 + more}" for more in range(1 + number % 12)}
        for key in keys:
            task.store.put(key, value)
        expected |= keys
        if number % 3 == 0:
            for key in sorted(expected)[: len(expected) // 2]:
                task.store.delete(key)
                expected.discard(key)
        if number % 10 == 0:
            task.commit()
            task.flush()
        assert [key for key, _ in task.store.all()] == sorted(expected)


def test_small_verbs(make: MakeTask) -> None:
    """delete and put_if_absent return the earlier value, put_all puts pairs, None as a key is refused."""
    task = make(key_value())
    store = task.store
    assert store.put_if_absent("a", 1) is None
    assert store.put_if_absent("a", 2) == 1
    store.put_all([("b", 2), ("a", None)])
    assert store.delete("b") == 2
    assert store.delete("b") is None
    assert list(store.all()) == []
    with pytest.raises(TypeError, match="store s"):
        store.put(None, 1)
    with pytest.raises(TypeError, match="store s"):
        store.get(None)


def test_timestamps_come_back_with_the_values(make: MakeTask, stage: str) -> None:
    """A value without a value deletes; entries are plain tuples, for operators."""
    task = make(key_value(timestamped=True))
    store = task.store
    store.put("a", ValueAndTimestamp(1, 10))
    store.put("b", ValueAndTimestamp(2, 20))
    store.put("b", ValueAndTimestamp(None, 30))
    store.put_entry("c", (3, 5))
    bring(task, stage)
    store = task.store
    assert store.get("a") == ValueAndTimestamp(1, 10)
    assert store.get("a").timestamp == 10
    assert type(store.get_entry("a")) is tuple
    assert (store.get_entry("b"), store.get_entry("c")) == (None, (3, 5))
    assert list(store.all()) == [("a", ValueAndTimestamp(1, 10)), ("c", ValueAndTimestamp(3, 5))]


def test_the_changelog_has_the_last_value_per_key(make: MakeTask, values: tuple[Any, list[Any]]) -> None:
    """With the time of the record that it was put for; values are without timestamps, deletions are tombstones."""
    serde, (one, two, three) = values
    task = make(key_value(value=serde), key_value("t", timestamped=True, value=serde))
    for time, value in enumerate((one, two, three)):
        task.now = time
        task.store.put("a", value)
        task["t"].put_entry("b", (value, 100 + time))
    task.store.put("gone", one)
    task.now = 9
    task.store.delete("gone")
    write = serde.serializer("")
    token = task.stores.freeze()
    assert task.log(token) == {"s": [(b"a", write(three), 2), (b"gone", None, 9)], "t": [(b"b", write(three), 102)]}
    assert task.log(token) == task.log(token)


def test_puts_after_the_freeze_are_of_the_next_transaction(make: MakeTask, values: tuple[Any, list[Any]]) -> None:
    """Neither the changelog nor a commit or a rollback has anything of it."""
    serde, (one, two, three) = values
    task = make(key_value(value=serde))
    task.store.put("a", one)
    task.store.put("b", one)
    token = task.stores.freeze()
    task.store.put("a", two)
    task.store.delete("b")
    task.store.put("c", three)
    assert sorted(key for key, _, _ in task.log(token)["s"]) == [b"a", b"b"]
    assert {value for _, value, _ in task.log(token)["s"]} == {serde.serializer("")(one)}
    task.stores.publish(token, {"s": 2})
    task.stores.drop()
    assert list(task.store.all()) == [("a", one), ("b", one)]


def test_drop_takes_back_both_overlays(make: MakeTask, values: tuple[Any, list[Any]]) -> None:
    """The frozen one too: its transaction was not committed."""
    serde, (one, two, three) = values
    task = make(key_value(value=serde))
    task.store.put("a", one)
    task.commit()
    task.store.put("a", two)
    task.store.put("b", two)
    task.stores.freeze()
    task.store.put("a", three)
    task.store.put("b", three)
    task.store.delete("c")
    task.stores.drop()
    assert list(task.store.all()) == [("a", one)]
    assert task.stores.uncommitted_bytes == 0
    assert task.commit() == {}


def test_mutable_values_do_not_leak(make: MakeTask) -> None:
    """Neither into another transaction, nor into one that is being committed, nor out of one that was given up."""
    task = make(key_value(value=json()))
    value = [1]
    task.store.put("a", value)
    value.append(2)
    assert task.store.get("a") == [1]
    task.store.get("a").append(2)
    token = task.stores.freeze()
    task.store.get("a").append(2)
    assert task.store.get("a") == [1]
    again = task.store.get("a")
    again.append(2)
    task.store.put("a", again)
    again.append(3)
    assert task.log(token) == {"s": [(b"a", b"[1]", 0)]}
    task.stores.publish(token, {"s": 1})
    assert task.store.get("a") == [1, 2]
    task.stores.drop()
    assert task.store.get("a") == [1]
    assert task.store.get("a") is not task.store.get("a")
    assert list(task.store.all()) == [("a", [1])]
    next(task.store.all())[1].append(4)
    assert task.store.get("a") == [1]


def test_scans_of_mutable_values_hand_out_copies(make: MakeTask) -> None:
    """Whenever it was put."""
    task = make(key_value(value=json()))
    task.store.put("a", [1])
    task.stores.freeze()
    task.store.put("b", [2])
    for _, value in task.store.all():
        value.append(0)
    assert (task.store.get("a"), task.store.get("b")) == ([1], [2])


@pytest.mark.parametrize("value", [json(), json(int)], ids=["mutable", "immutable"])
def test_unwritable_values_are_refused_when_they_are_put(make: MakeTask, value: Any) -> None:
    """With the store and the key, and nothing is changed by it: no commit fails of it."""
    task = make(key_value(value=value), key_value("fine"))
    task.store.put("good", 1)
    for key in ("good", "bad"):
        with pytest.raises(SerializationError, match=f"store s: the serde cannot write the value of key .*{key}"):
            task.store.put(key, object())
    assert list(task.store.all()) == [("good", 1)]
    assert task.log(task.stores.freeze()) == {"s": [(b"good", b"1", 0)]}


def test_a_mutable_value_that_could_not_be_read_again_is_refused_when_it_is_put(make: MakeTask) -> None:
    """Its serde writes it without a complaint; each later record of the key would fail."""
    task = make(key_value(value=json(dict[str, int])))
    task.store.put("good", {"a": 1})
    with pytest.raises(SerializationError, match="store s: the serde cannot write the value of key 'bad', or cannot read it again"):
        task.store.put("bad", {"a": "text"})
    assert list(task.store.all()) == [("good", {"a": 1})]


@pytest.mark.parametrize("timestamped", [False, True])
def test_a_key_that_cannot_be_written_is_refused(make: MakeTask, timestamped: bool) -> None:
    """When it is put, with nothing changed; so is a wrong timestamp."""
    task = make(key_value(key=LONG, timestamped=timestamped))
    entry = ValueAndTimestamp(1, 5) if timestamped else 1
    for key in (1 << 70, "text"):
        with pytest.raises(SerializationError, match="store s: the serde cannot write key"):
            task.store.put(key, entry)
    if timestamped:
        with pytest.raises(SerializationError, match="store s: a timestamp"):
            task.store.put(1, ValueAndTimestamp(1, 1 << 70))
    assert list(task.store.all()) == []
    assert task.log(task.stores.freeze()) == {}


def test_unreadable_values_are_named(on_disk: MakeTask) -> None:
    """A serde that was changed finds bytes that are none of its own."""
    task = on_disk(key_value(key=STRING, value=STRING))
    task.store.put("key", "no number")
    task.commit()
    task.specs = [key_value(key=INTEGER, value=LONG)]
    task.reopen()
    with pytest.raises(SerializationError, match="store s has a key"):
        list(task.store.all())
    task.specs = [key_value(key=STRING, value=LONG)]
    task.reopen()
    with pytest.raises(SerializationError, match="store s has a value"):
        task.store.get("key")


def test_a_closed_store_says_so(make: MakeTask) -> None:
    """For any call, also through functions that were taken from it before."""
    task = make(key_value(timestamped=True))
    store = task.store
    store.put_entry("a", (1, 1))
    get, put = store.get_entry, store.put_entry
    task.stores.close(clean=False)
    for call in (lambda: get("a"), lambda: put("a", (1, 1)), lambda: store.get("b"), store.all, lambda: store.delete("a")):
        with pytest.raises(StoreClosed, match="store s"):
            call()


def test_an_iterator_of_a_closed_store_does_not_pass_for_read(make: MakeTask, stage: str) -> None:
    """Reading on raises StoreClosed, each time, also where nothing was read yet; one that was read to its end, or closed, has just ended."""
    task = make(key_value())
    for name in "abc":
        task.store.put(name, 1)
    bring(task, stage)
    store = task.store
    unread, half, ended, closed = (store.all() for _ in range(4))
    assert next(half) == ("a", 1)
    assert len(list(ended)) == 3
    closed.close()
    task.stores.close(clean=False)
    for rows in (unread, half):
        for _ in range(2):
            with pytest.raises(StoreClosed, match="store s was closed with its task before it was read to its end"):
                next(rows)
        rows.close()
        assert list(rows) == []
    assert list(ended) == list(closed) == []


def test_the_number_of_entries(make: MakeTask, place: str, stage: str) -> None:
    """Is exact in memory, and an estimate on disk, where the task's own rows count too."""
    task = make(key_value())
    for name in "abcd":
        task.store.put(name, 1)
    task.store.delete("b")
    bring(task, stage)
    assert task.store.approximate_num_entries() in (range(3, 7) if place in {"rocksdb", "shared", "engine"} else [3])


def test_the_bytes_of_an_entry(make: MakeTask) -> None:
    """Are those of its key, of its time and of its value."""
    store = make(key_value(value=STRING)).store
    assert store.key_bytes("é") == "é".encode()
    assert store.entry_bytes("é", "abc") == 2 + 8 + 3
    assert store.entry_bytes("é", None) == 2


def test_unfaithful_keys_are_compared_by_their_bytes(make: MakeTask) -> None:
    """0.0 == -0.0, and they are two keys; a key that no dict could hold is one like any other."""
    task = make(key_value(key=DOUBLE), key_value("j", key=Serde.of(json().serializer(""), json().deserializer(""))))
    task.store.put(0.0, 1)
    task.store.put(-0.0, 2)
    task["j"].put(["a"], 3)
    task.commit()
    assert (task.store.get(0.0), task.store.get(-0.0), task["j"].get(["a"])) == (1, 2, 3)
    assert list(task["j"].all()) == [(["a"], 3)]
