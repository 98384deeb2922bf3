"""The order of a store's keys, which its scans make."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ks_actors.state import KeyValueReader
from ks_actors.state.key_value import _sorted_keys
from tests.ks_actors.state.helpers import PLACES, Task, key_value


def test_keys_lie_in_order_however_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """An order of keys is the sorted one, for any way and any order of puts."""
    monkeypatch.setattr(_sorted_keys, "CHUNK", 2)
    random = Random(5)
    for _ in range(50):
        order = _sorted_keys.Order(str.encode, bytes.decode, (str(random.randrange(40)) for _ in range(random.randrange(30))))
        known = set(order.pending)
        empty = _sorted_keys.Order(str.encode, bytes.decode)
        empty.place_all()
        assert (list(empty.walk(b"", b"", reverse=False)), empty.within(b"", b""), len(empty)) == ([], [], 0)
        for _ in range(20):
            fresh = [random.choice(("", str(random.randrange(99)))) for _ in range(random.randrange(6))]
            restored = [str(random.randrange(99)).encode() for _ in range(random.randrange(3))]
            order.pending += fresh
            order.pending_bytes += restored
            known |= {*fresh, *map(bytes.decode, restored)}
            if random.random() < 0.5:
                order.place_all()
                assert order.missing == len(order.pending_bytes)
            else:
                order.place(order.missing)
                low, high = random.choice(("", str(random.randrange(99)))), random.choice(("", str(random.randrange(99))))
                expected = sorted(key for key in known if key >= low and (not high or key < high))
                assert [key for _, key in order.within(low.encode(), high.encode())] == expected
                for reverse in (False, True):
                    walked = list(order.walk(low.encode(), high.encode(), reverse=reverse))
                    assert [key for _, key in walked] == (expected[::-1] if reverse else expected)
                assert not expected or order.about(low.encode(), high.encode()) >= len(expected)
                assert [key for _, key in order.walk(b"", b"", reverse=True)] == sorted(known, reverse=True)
                assert len(order) == len(known)


@pytest.mark.parametrize("place", PLACES)
def test_an_order_that_nobody_needs_is_forgotten(place: str, tmp_path: Path) -> None:
    """The order of keys that a scan has made is let go of when many keys come and go and nobody scans; the next scan makes it anew."""
    task = Task([key_value()], tmp_path, place)
    store, reader = task.store, KeyValueReader(task.store)
    store.put("a", 1)
    assert [row[1] for row in reader.scan(b"", b"", committed=False, reverse=False)] == ["a"]
    for start in range(0, 20_000, 100):
        for number in range(start, start + 100):
            store.put(f"k{number:05}", number)
        task.commit()
        for number in range(start, start + 100):
            store.delete(f"k{number:05}")
        task.commit()
        task.flush()
    assert store._order is None or store._order.missing < 5_000
    store.put("b", 2)
    assert [row[1] for row in reader.scan(b"", b"", committed=False, reverse=False)] == ["a", "b"]
    assert [row[1] for row in reader.scan(b"", b"", committed=True, reverse=False)] == ["a"]
    task.close()
