"""Counting, in tables and in windows, beside Python code that does one record after the other."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from ks_actors.kernel import _kernel
from tests.fuzz.values import LEAST, MOST, PLAIN, Number, Word, any_key, outcome


def entry_of(random: Random) -> Any:
    """Return an entry, sometimes one that is not plain."""
    if random.random() < 0.85:
        return random.randrange(5), random.randrange(20)
    large = (MOST, 1), (MOST - 1, 1), (-1, 0), (1 << 70, 0), (1, 1 << 70), (1, -1 << 70), (1, LEAST)
    return random.choice((*large, None, (1,), (1, 2, 3), [1, 2], (True, 1), (1, Number(3)), ("a", 1), 7, (1.0, 2)))


def is_number(value: Any) -> bool:
    """Tell whether it is an int, and none of another class, that fits into int64."""
    return type(value) is int and LEAST <= value <= MOST


def length_of(key: Any) -> int:
    return len(key) if isinstance(key, str | bytes) else 0


class Counted(NamedTuple):
    """The changes and results of counting."""

    view: dict[Any, Any]
    dirty: dict[Any, Any]
    changes: list[Any]
    times: list[Any]


def count(to: Counted, keys: list[Any], values: list[Any], times: list[Any], start: int, *, with_old: bool) -> tuple[int, int]:
    """Do the same as `count_up`."""
    size = 0
    for at in range(start, len(keys)):
        key, time = keys[at], times[at]
        if values[at] is None or type(key) not in PLAIN or key not in to.view:
            return at, size
        entry = to.view[key]
        if type(entry) is not tuple or len(entry) != 2 or not all(map(is_number, (*entry, time))) or entry[0] == MOST:
            return at, size
        number, seen = entry
        to.changes.append((number + 1, number if with_old and seen != LEAST else None))
        to.times.append(max(seen, time))
        if key not in to.dirty:
            to.dirty[key] = entry
            size += length_of(key)
        to.view[key] = (number + 1, max(seen, time))
    return max(start, len(keys)), size


def table_session(random: Random) -> None:
    """Count, find absent keys, and take entries apart."""
    view = {any_key(random): entry_of(random) for _ in range(random.choice((0, 1, 5, 12, 40)))}
    if random.random() < 0.3:
        view.update({f"x{number}": (number, number) for number in range(random.choice((5, 200)))})
    if random.random() < 0.3:
        for key in list(view)[:: random.choice((2, 3))]:
            del view[key]
    dirty = {key: view[key] for key in random.sample(list(view), min(len(view), random.randrange(4)))}
    total = random.choice((0, 1, 5, 40, 100))
    keys = [any_key(random) if not view or random.random() < 0.3 else random.choice(list(view)) for _ in range(total)]
    values = [None if random.random() < 0.01 else b"" for _ in keys]
    odd = (1 << 70, -1 << 70, Number(4), None, "t", True, MOST, LEAST)
    times: list[Any] = [random.randrange(30) if random.random() < 0.98 else random.choice(odd) for _ in keys]
    start, with_old = random.choice((0, 0, min(3, total), total)), random.random() < 0.5
    one, other = (Counted(dict(view), dict(dirty), [], []) for _ in range(2))
    found = _kernel.count_up(one.view, one.dirty, keys, values, times, start, one.changes, one.times, with_old)
    assert found == count(other, keys, values, times, start, with_old=with_old)
    assert one == other
    assert list(one.dirty) == list(other.dirty)
    absent = [key for key in keys[start:] if type(key) in PLAIN and key not in view]
    assert _kernel.absent(view, keys, start) == list(dict.fromkeys(absent))
    entries: list[Any] = [dirty.get(key, view.get(key)) for key in keys]
    plain = all(type(entry) is tuple and len(entry) == 2 for entry in entries)
    assert _kernel.entry_columns(view, dirty, keys) == (tuple([entry[part] for entry in entries] for part in range(2)) if plain else None)


class Clock(NamedTuple):
    """The numbers of windows that lie side by side."""

    now: int
    grace: int
    size: int
    observed: int
    retention: int
    low: int


def count_windows(store: Any, keys: list[Any], times: list[Any], start: int, out: Any, clock: Clock) -> tuple[int, int, int, int, int]:
    """Do the same as the function of the kernel."""
    panes, dirty, windows, missing = store
    found, changes, stamps, with_old = out
    now, observed, added, length, at = clock.now, clock.observed, 0, 0, start
    for at in range(start, len(keys)):
        key, time = keys[at], times[at]
        here = at, now, observed, added, length
        if not all(map(is_number, clock)) or type(key) not in PLAIN or not is_number(time) or not 0 <= time <= MOST - clock.size:
            return here
        first = time - time % clock.size
        later, latest = max(now, time), max(observed, first)
        if first + clock.size <= later - clock.grace or first <= latest - clock.retention or first not in windows or first not in panes:
            return here
        pane = panes[first]
        entry = pane.get(key)
        number, seen = 0, -1
        if key in pane:
            if type(entry) is not tuple or len(entry) != 2 or not all(map(is_number, entry)):
                return here
            number, seen = entry
            if not 0 <= number < MOST or seen == LEAST:
                return here
        elif first < clock.low:
            return here
        now, observed, new = later, latest, key not in pane
        if (key, first) not in dirty:
            dirty[key, first] = entry if key in pane else missing
            length += length_of(key)
            added += key not in pane
        pane[key] = (number + 1, max(seen, time))
        changes.append((number + 1, number if with_old and not new else None))
        stamps.append(max(seen, time))
        found.append(windows[first])
    return max(start, len(keys)), now, observed, added, length


def window_session(random: Random) -> None:
    """Count in windows of some stores, up to the first record that is not plain."""
    size = random.choice((1, 10, 7))
    panes = {number * size: {any_key(random): entry_of(random) for _ in range(random.randrange(4))} for number in range(6) if random.random() < 0.9}
    windows = {number * size: ("w", number) for number in range(7) if random.random() < 0.95}
    missing = object()
    dirty = {(any_key(random), random.randrange(6) * size): "noted" for _ in range(random.randrange(5))}
    total = random.choice((0, 1, 5, 70))
    keys = [any_key(random) if random.random() < 0.2 else f"k{random.randrange(9)}" for _ in range(total)]
    odd = (1 << 70, -1, Number(4), None, MOST, MOST - 5, Word("5"))
    times: list[Any] = [random.randrange(size * 6) if random.random() < 0.98 else random.choice(odd) for _ in keys]
    beyond = (MOST, LEAST, 1 << 70, -1 << 70)
    now, observed = random.choice((-1, 0, 30)), random.choice((-1, 0, 20))
    clock = Clock(now, random.choice((0, 5, 1000)), size, observed, random.choice((10, 50, 1000)), random.choice((0, 0, 20)))
    if random.random() < 0.05:
        clock = clock._replace(**{random.choice(("now", "grace", "observed", "retention", "low")): random.choice(beyond)})
    with_old, start = random.random() < 0.5, random.choice((0, 0, min(2, total), total))
    stores, outs = [], []
    for _ in range(2):
        stores.append(({first: dict(pane) for first, pane in panes.items()}, dict(dirty), dict(windows), missing))
        out: tuple[list[Any], list[Any], list[int], bool] = ([], [], [], with_old)
        outs.append(out)
    found = _kernel.count_windows(stores[0], keys, times, start, outs[0], clock[:])
    expected = count_windows(stores[1], keys, times, start, outs[1], clock)
    assert found == (expected if all(map(is_number, clock)) else (start, clock.now, clock.observed, 0, 0))
    assert stores[0] == stores[1]
    assert outs[0] == outs[1]
    assert outcome(_kernel.count_windows, stores[0], keys, times, -1, outs[0], clock[:])[1] is ValueError


def session(random: Random) -> None:
    """Do one of them."""
    random.choice((table_session, window_session))(random)
