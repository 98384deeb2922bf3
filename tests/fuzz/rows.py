"""Packed rows beside the segment of objects that stands for them: any operations, in any order, with any arguments."""

from __future__ import annotations

import struct
from random import Random
from typing import Any
from unittest.mock import patch

from ks_actors.kernel import _kernel
from ks_actors.state.join_window import _segment
from ks_actors.state.join_window._segment import Segment
from tests.fuzz.values import BEYOND, EDGES, LEAST, MOST, clamped, odd_key, outcome

RANGE = (1 << 32) - 1


def is_of(value: Any, *, text: bool) -> bool:
    """Tell whether rows of a kind take a key or value."""
    if text:
        return type(value) is str and outcome(value.encode)[1] is None
    return type(value) is bytes


class Session:
    """Rows and their twin."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.base = random.choice((0, 1000, -5, MOST - (1 << 33), LEAST, 1 << 40))
        self.texts = random.random() < 0.5, random.random() < 0.5
        self.keys = random.choice((None, None, 1, 2))
        self.rows = _kernel.Rows(self.base, *self.texts)
        self.plain = Segment(0)

    def key(self) -> Any:
        key = odd_key(self.random, of_text=self.texts[0])
        if self.keys is None or not is_of(key, text=self.texts[0]):
            return key
        hot = str(self.random.randrange(self.keys))  # few keys have many rows
        return hot if self.texts[0] else hot.encode()

    def value(self) -> Any:
        random = self.random
        if random.random() < 0.1:
            return None
        if random.random() < 0.97:
            return odd_key(random, of_text=self.texts[1])
        size = random.choice((300_000, 262_090, 262_096, 70))
        return "y" * size if self.texts[1] else bytes(size)

    def row(self) -> tuple[Any, int, int, Any, int]:
        random = self.random
        start = self.base + random.choice((0, 1, 5, random.randrange(40), random.randrange(40), RANGE, random.randrange(RANGE)))
        if random.random() < 0.02:
            start = random.choice((self.base - 1, self.base + RANGE + 1, *BEYOND))
        sequence = random.choice((0, 1, 7, (1 << 31) - 1)) if random.random() < 0.97 else random.choice((-1, 1 << 31, 1 << 70))
        return self.key(), start, sequence, self.value(), random.choice((start, start, -1, *EDGES))

    def takes(self, row: tuple[Any, int, int, Any, int]) -> bool:
        key, start, sequence, value, time = row
        fits = self.base <= start <= self.base + RANGE and start <= MOST and 0 <= sequence < 1 << 31 and LEAST <= time <= MOST
        return fits and is_of(key, text=self.texts[0]) and (value is None or is_of(value, text=self.texts[1]))

    def add(self) -> None:
        row = self.row()
        good = self.takes(row)
        assert (outcome(self.rows.add, *row)[1] is None) == good, row
        if good:
            self.plain.add(*row)

    def add_all(self) -> None:
        rows = [self.row() for _ in range(self.random.choice((0, 1, 5, 20, 70)))]
        rows = [(key, start, sequence, value, start) for key, start, sequence, value, _ in rows]
        if self.random.random() < 0.8:
            rows = [row for row in rows if self.takes(row)]
        columns: list[Any] = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], [], []]
        good = all(map(self.takes, rows))
        assert self.rows.take(columns[0], columns[3]) == all(self.takes((row[0], self.base, 0, row[3], 0)) for row in rows)
        assert (outcome(self.rows.add_all, *columns[:4])[1] is None) == good, rows
        if good:
            for row in rows:
                self.plain.add(*row)

    def replace(self) -> None:
        count = len(self.plain)
        place = self.random.choice((count, -1, 1 << 40)) if not count or self.random.random() < 0.1 else self.random.randrange(count)
        value, time = self.value(), self.random.choice(BEYOND)
        good = 0 <= place < count and LEAST <= time <= MOST and (value is None or is_of(value, text=self.texts[1]))
        assert (outcome(self.rows.replace, place, value, time)[1] is None) == good, (place, value, time)
        if good:
            self.plain.replace(place, value, time)

    def cut(self) -> None:
        count = len(self.plain)
        left = self.random.choice((0, count, count - 1, self.random.randrange(count + 1), -3, 1 << 40))
        self.rows.cut(left)
        self.plain.committed = min(max(0, left), count)
        self.plain.roll_back()

    def misuse(self) -> None:
        rows, random = self.rows, self.random
        method = random.choice((rows.add_all, rows.replace, rows.places, rows.entries, rows.meet, rows.column, rows.names, rows.write, rows.take))
        outcome(method, *(random.choice((None, [], [1], "x", b"", 1 << 70, 1.5, object(), {})) for _ in range(random.randrange(7))))

    def check(self) -> None:
        rows, plain, random = self.rows, self.plain, self.random
        assert len(rows) == len(plain)
        low, high = random.choice((0, random.randrange(30), -5)), random.choice((1 << 40, random.randrange(60)))
        part = slice(max(0, low), max(0, high))
        columns: list[list[Any]] = [list(column)[part] for column in plain.columns(len(plain))]
        for which, column in enumerate(columns):
            assert rows.column(which, low, high) == column, which
        contents = [value.encode() if isinstance(value, str) else value for value in columns[3]]
        assert rows.column(5, low, high) == contents
        encoded = [key.encode() if isinstance(key, str) else key for key in columns[0]]
        names = [key + struct.pack(">qi", *where) for key, *where in zip(encoded, *columns[1:3], strict=True)]
        assert rows.names(low, high) == names
        if names:
            limit, header = random.choice((0, 100, 1000, 1 << 20, -1, MOST, LEAST)), random.choice((0, 61, 4096))
            assert rows.write(low, high, limit, header) == _kernel.write_records(names, contents, columns[4], None, 0, limit, header)

    def plain_key(self, key: Any) -> Any:
        """Return the object of a key, None where there can be no rows of it."""
        kind: Any = str if self.texts[0] else bytes
        return kind(key) if isinstance(key, kind) and is_of(kind(key), text=self.texts[0]) else None

    def search(self) -> None:
        rows, plain, random, base = self.rows, self.plain, self.random, self.base
        key = self.key()
        first, last = base + random.choice((-9, 0, 3, 20, 1 << 33, 1 << 70)), base + random.choice((-9, 0, 7, 30, 1 << 33, -1 << 70))
        plain_key = self.plain_key(key)
        places = [] if plain_key is None else list(plain.places(plain_key, first, last))
        assert rows.places(key, first, last) == places, (key, first, last)
        entries = [(plain.starts[place], (plain.values[place], plain.times[place])) for place in places if plain.values[place] is not None]
        assert rows.entries(key, first, last) == entries
        keys = [self.key() for _ in range(6)]
        times = [base + random.randrange(-5, 40) if random.random() < 0.95 else random.choice(BEYOND) for _ in keys]
        before, after = random.choice((0, 5, 20, -3, MOST, 1 << 40)), random.choice((0, 5, 20, -3, MOST, LEAST))
        limits = random.choice((None, [base + random.randrange(40) for _ in keys]))
        met: list[Any] = []
        rows.meet(keys, times, before, after, limits, met)
        expected = []
        for at, (each, time) in enumerate(zip(map(self.plain_key, keys), times, strict=True)):
            for place in () if each is None else plain.places(each, clamped(time - before), clamped(time + after)):
                start, value = plain.starts[place], plain.values[place]
                if value is not None and (limits is None or start > limits[at]):
                    expected.append((at, start, value))
        assert met == expected


def session(random: Random) -> None:
    """Do some sixty steps, and compare after each."""
    with patch.object(_segment, "HAS_KERNEL", new=False):
        both = Session(random)
        steps = [both.add] * 30 + [both.add_all] * 20 + [both.replace] * 10 + [both.cut] * 8 + [both.misuse] * 2
        for _ in range(random.randrange(1, 60)):
            random.choice(steps)()
            both.check()
            both.search()
