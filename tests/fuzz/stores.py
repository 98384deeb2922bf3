"""The forms of a store's entries, for its engine, its changelog and its readers, beside plain Python."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from ks_actors.kernel import _kernel
from tests.fuzz.values import EDGES, LEAST, MOST, Bits, Word

TABLE, TRACKS, PANES = range(3)
AS_BYTES, AS_TEXT, AS_LONG = range(3)
NOTHING = object()


class NotPlainError(Exception):
    """The kernel leaves this to Python."""


def number_of(value: Any) -> int:
    if type(value) is not int or not LEAST <= value <= MOST:
        raise NotPlainError
    return value


def content_of(value: Any, form: int) -> bytes:
    """Return the bytes of a key or value of a form."""
    if form == AS_LONG:
        return struct.pack(">q", number_of(value))
    if form == AS_TEXT and type(value) is str:
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise NotPlainError from None
    if form == AS_BYTES and type(value) is bytes:
        return value
    raise NotPlainError


class Store:
    """A store of some shape, with handles of which most are good."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.shape, self.keys, self.values = random.randrange(3), random.randrange(3), random.randrange(3)
        count = random.choice((0, 1, 5, 31, 32, 33, 70))
        starts = [0, 10, 20, 60, 1 << 40, MOST, *([-10] if random.random() < 0.1 else [])]
        self.handles: list[Any] = [self.key() if self.shape == TABLE else (self.key(), random.choice(starts)) for _ in range(count)]
        self.entries: dict[Any, Any] = {}
        for handle in self.handles:
            if random.random() < 0.995:
                self.put(handle)
        chances = random.choice(((0, 0), (0.2, 0), (0.2, 0.2)))
        self.noted: list[dict[Any, Any]] = [{each: self.entry() for each in self.handles if random.random() < chance} for chance in chances]
        self.deleted = {handle: random.choice(EDGES) for handle in self.handles if random.random() < 0.9}
        if count and random.random() < 0.05:
            self.handles[random.randrange(count)] = random.choice((None, (1,), (1, 2, 3), 2.5, "zz", ("q", 0), ("q", "r")))

    def key(self) -> Any:
        number = self.random.randrange(9)
        if self.random.random() < 0.03:
            return self.random.choice(("\ud800", Word("k1"), 1 << 70, b"x", "x", 5, True, Bits(b"k1")))
        return (b"k%d" % number, "kü"[: 1 + number % 2] + str(number), number - 5)[self.keys]

    def entry(self) -> Any:
        random = self.random
        if random.random() < 0.03:
            odd = ((1,), ("x", 2.5), (1, "t"), (b"x", 1 << 70), ("\ud800", 1), (Word("x"), 1), (1 << 70, 1), (None, 1), (True, 1), (Bits(b"x"), 1))
            return random.choice((None, b"raw", *odd))
        number = random.randrange(9)
        value = (b"v" * number, "vü"[: number % 3] * number, number * 10 ** random.choice((1, 17)))[self.values]
        return value, random.choice((random.randrange(50), *EDGES))

    def put(self, handle: Any) -> None:
        if self.shape == TABLE:
            self.entries[handle] = self.entry()
        else:
            outer, inner = handle if self.shape == TRACKS else handle[::-1]
            self.entries.setdefault(outer, {})[inner] = self.entry()

    def find(self, handle: Any, noted: list[dict[Any, Any]]) -> Any:
        """Return the noted value of a handle, else the stored one, else NOTHING."""
        if self.shape != TABLE and (type(handle) is not tuple or len(handle) != 2):
            return NOTHING
        for each in noted:
            if handle in each:
                return each[handle]
        if self.shape == TABLE:
            return self.entries.get(handle, NOTHING)
        outer, inner = handle if self.shape == TRACKS else handle[::-1]
        return self.entries.get(outer, {}).get(inner, NOTHING)

    def name_of(self, handle: Any) -> tuple[bytes, int]:
        if self.shape == TABLE:
            return content_of(handle, self.keys), 0
        return content_of(handle[0], self.keys), number_of(handle[1])

    def pair(self, handle: Any, noted: list[dict[Any, Any]]) -> Any:
        """Return an entry that is a pair. Raises NotPlainError."""
        entry = self.find(handle, noted)
        if type(entry) is not tuple or len(entry) != 2:
            raise NotPlainError
        return entry

    def suffix(self, start: int) -> bytes:
        return struct.pack(">qi", start, 0) if self.shape else b""

    def engine_row(self, handle: Any, timed: bool, segment: int, prefix: bytes) -> tuple[bytes, bytes]:
        value, time = self.pair(handle, self.noted)
        name, start = self.name_of(handle)
        if start < 0:
            raise NotPlainError
        behind = content_of(value, self.values)
        front = struct.pack(">q", start // segment) if self.shape else b""
        return prefix + front + name + self.suffix(start), (struct.pack(">q", number_of(time)) if timed else b"") + behind

    def change(self, handle: Any) -> tuple[bytes, bytes | None, int]:
        """Return key, value and time of a record of the changelog."""
        entry = self.find(handle, self.noted[:1])
        if entry is NOTHING:
            raise NotPlainError
        name, start = self.name_of(handle)
        if entry is None:
            return name + self.suffix(start), None, number_of(self.deleted.get(handle))
        value, time = self.pair(handle, self.noted[:1])
        return name + self.suffix(start), content_of(value, self.values), number_of(time)


def check_engine_rows(store: Store) -> None:
    random = store.random
    timed, segment = random.random() < 0.5, random.choice((1, 60, 1 << 40)) if store.shape else 0
    prefix = random.choice((b"", b"pre"))
    forms = (store.shape, store.keys, store.values, timed, segment)
    found = _kernel.engine_rows((store.entries, store.noted[0], store.noted[1]), store.handles, forms, prefix)
    try:
        # A value without a time in its row has to have one all the same.
        expected: list[tuple[bytes, bytes]] | None = [store.engine_row(handle, timed, segment, prefix) for handle in store.handles]
        for handle in store.handles:
            number_of(store.pair(handle, store.noted)[1])
    except NotPlainError:
        expected = None
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:  # those of one key may come in any order
        assert [key for key, _ in found] == sorted(key for key, _ in expected)
        assert sorted(found) == sorted(expected)


def check_changes(store: Store) -> None:
    limit = store.random.choice((1 << 20, 1 << 20, 500, 0, -1, MOST, LEAST))
    forms = (store.shape, store.keys, store.values)
    found = _kernel.write_changes((store.entries, store.noted[0], store.deleted), store.handles, forms, limit)
    expected = None
    try:
        rows = [store.change(handle) for handle in store.handles]
    except NotPlainError:
        rows = []
    else:
        expected = (b"", 0, 0)
    if rows:
        columns: list[Any] = [list(column) for column in zip(*rows, strict=True)]
        written, count, first, latest = _kernel.write_records(columns[0], columns[1], columns[2], None, 0, 1 << 40, 0)
        assert count == len(rows)
        expected = (bytes(written), first, latest) if len(written) <= limit else None
    assert found == expected


def session(random: Random) -> None:
    """Make rows, records and columns of one store."""
    store = Store(random)
    if store.shape:
        found = _kernel.window_values(store.entries, store.noted[0], store.handles, store.shape == PANES)
        values = [store.find(handle, store.noted[:1]) for handle in store.handles]
        assert found == (None if NOTHING in values else values)
    check_engine_rows(store)
    check_changes(store)
