"""Keys that a store could not have: its serde cannot write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import SerializationError
from ks_actors.records import Window, Windowed
from ks_actors.serdes import LONG, STRING, UUID, Serde, json
from ks_actors.topology._stores import StoreSpec
from tests.ks_actors.state.conftest import MakeTask
from tests.ks_actors.state.helpers import key_value, session, versioned, window

KEYS: list[tuple[Serde[Any], Any, Any]] = [
    (STRING, "a", 5),
    (STRING, "a", b"a"),
    (LONG, 1, "1"),
    (UUID, None, "x" * 36),
    (json(str), "a", 5),
]
"""A serde, a key that it writes, and one that it refuses."""


KINDS: dict[str, tuple[Callable[..., StoreSpec], Callable[[Any, Any], Any], list[Callable[[Any, Any], Any]]]] = {
    "key-value": (
        key_value,
        lambda store, key: store.put(key, 1),
        [
            lambda store, key: store.get(key),
            lambda store, key: store.delete(key),
            lambda store, key: store.put_if_absent(key, 1),
            lambda store, key: store.put(key, None),
            lambda store, key: store.range(key, None),
            lambda store, key: store.reverse_range(None, key),
            lambda store, key: store.get_entry(key),
        ],
    ),
    "window": (
        lambda **options: window(value=LONG, **options),
        lambda store, key: store.put(key, 1, 0),
        [
            lambda store, key: store.fetch(key, 0),
            lambda store, key: store.fetch(key, 0, 10),
            lambda store, key: store.backward_fetch(key, 0, 10),
            lambda store, key: store.fetch_range(key, key, 0, 10),
            lambda store, key: store.put(key, None, 0),
        ],
    ),
    "window by start": (
        lambda **options: window(value=LONG, advance_ms=10, **options),
        lambda store, key: store.put(key, 1, 0),
        [
            lambda store, key: store.fetch(key, 0),
            lambda store, key: store.fetch(key, 0, 10),
            lambda store, key: store.put(key, None, 0),
        ],
    ),
    "window with duplicates": (
        lambda **options: window(value=LONG, retain_duplicates=True, **options),
        lambda store, key: store.put(key, 1, 0),
        [lambda store, key: store.fetch(key, 0), lambda store, key: store.fetch(key, 0, 10)],
    ),
    "session": (
        lambda **options: session(value=LONG, **options),
        lambda store, key: store.put(Windowed(key, Window(0, 1)), 1),
        [
            lambda store, key: store.fetch_session(key, 0, 1),
            lambda store, key: store.fetch(key),
            lambda store, key: store.backward_fetch(key),
            lambda store, key: store.find_sessions(key, 0, 10),
            lambda store, key: store.fetch_range(key, key),
            lambda store, key: store.remove(Windowed(key, Window(0, 1))),
        ],
    ),
    "versioned": (
        lambda **options: versioned(value=LONG, **options),
        lambda store, key: store.put(key, 1, 5),
        [
            lambda store, key: store.get(key),
            lambda store, key: store.get(key, 5),
            lambda store, key: store.delete(key, 5),
            lambda store, key: store.put(key, None, 5),
        ],
    ),
}


@pytest.mark.parametrize(("serde", "good", "wrong"), KEYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_the_store_could_not_have_is_refused(make: MakeTask, kind: str, serde: Serde[Any], good: Any, wrong: Any) -> None:
    """By reads as by puts, by SerializationError with the store and the key, wherever its rows are.

    A read that answers "there is none" would do so for ever, and hide the mistake.
    """
    spec, put, calls = KINDS[kind]
    task = make(spec(key=serde))
    for _ in range(2):
        for call in calls:
            with pytest.raises(SerializationError, match=f"store s: the serde cannot write key {wrong!r}"):
                call(task.store, wrong)
        if good is not None:
            put(task.store, good)
        # Then the rows are below memory, and restored from the changelog where there is no disk.
        task.commit()
        task.reopen()


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_the_store_has_not_is_no_error(make: MakeTask, kind: str) -> None:
    """A read of it finds nothing, as before."""
    spec, _, calls = KINDS[kind]
    store = make(spec()).store
    for call in calls:
        found = call(store, "b")
        assert found is None or isinstance(found, int) or list(found) == []


def test_a_float_finds_the_row_of_a_whole_number(make: MakeTask) -> None:
    """An int in the place of a float is the same key, so put and get agree."""
    store = make(key_value(key=json(float))).store
    store.put(1, 5)
    assert (store.get(1.0), store.get(1)) == (5, 5)
    assert list(store.all()) == [(1.0, 5)]
