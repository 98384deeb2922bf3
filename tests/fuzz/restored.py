"""Restored rows in the kernel beside a dict."""

from __future__ import annotations

from random import Random
from struct import Struct
from typing import Any

from ks_actors.kernel import _kernel
from tests.fuzz.values import BEYOND, EDGES, LEAST, MOST, Bits, outcome

TIME = Struct(">q")
Pair = tuple[_kernel.RestoredRows, dict[bytes, bytes | None]]


def key_of(random: Random) -> bytes:
    """Return a key; many begin alike, some with another one."""
    begin = random.choice((b"", b"k", b"same start ", b"k\0"))
    ends = (b"", b"\0", b"\0\0", b"%d" % random.randrange(30), random.randbytes(random.randrange(3)), b"z" * random.choice((7, 8, 9, 63, 64, 65)))
    return begin + random.choice(ends)


def put(random: Random, pair: Pair) -> None:
    """Put rows, one of which may be none: the rows in front of it are put."""
    rows, plain = pair
    count = random.choice((0, 1, 2, 31, 32, 33, 70, 400))
    keys: list[Any] = [key_of(random) for _ in range(count)]
    values: list[Any] = [None if random.random() < 0.2 else random.randbytes(random.choice((0, 1, 8, 30, 100))) for _ in keys]
    times: list[Any] = [random.choice(EDGES) for _ in keys]
    if count and random.random() < 0.15:
        column = random.choice((keys, values, times))
        column[random.randrange(count)] = random.choice(("x", 5.5, bytearray(b"x"), Bits(b"x"), 1 << 64, []))
    _, error = outcome(rows.put, keys, values, times)
    done = 0
    for key, value, time in zip(keys, values, times, strict=True):
        if type(key) is not bytes:
            break
        if value is not None and (type(value) is not bytes or not isinstance(time, int) or not LEAST <= time <= MOST):
            break
        plain[key] = None if value is None else TIME.pack(time) + value
        done += 1
    assert (error is None) == (done == count), (error, done, count)


def write(random: Random, pair: Pair) -> None:
    """Take rows out in the order of their keys."""
    rows, plain = pair
    if random.random() < 0.3:
        rows.arranged(random.choice((1, 3, 50)))
        return
    while not rows.arranged(random.choice((1, 3, 50, 10_000))):
        pass
    for _ in range(random.randrange(1, 4)):
        count, prefix, cut = random.choice((0, 1, 5, 24, 25, 100, 10_000)), random.choice((b"", b"p")), random.choice((0, 8, 3))
        order = sorted(plain.items())
        expected = [(prefix + key, None if raw is None else raw[cut:]) for key, raw in order[:count]]
        assert rows.rows(count, prefix, cut) == expected
        taken = min(len(expected), random.choice((0, 1, len(expected) // 2, len(expected))))
        rows.written(taken)
        for key, _ in order[:taken]:
            del plain[key]
        assert len(rows) == len(plain)


def misuse(random: Random, pair: Pair) -> None:
    """Call something with anything."""
    rows, plain = pair
    method = random.choice((rows.put, rows.take_over, rows.get, rows.discard, rows.arranged, rows.rows, rows.written, rows.__contains__))
    outcome(method, *(random.choice((None, [], [b"x"], "x", b"", -1, 0, 1 << 70, 1.5)) for _ in range(random.randrange(4))))
    plain.clear()
    plain.update(rows.items())


def step(random: Random, pairs: list[Pair]) -> None:
    """Do one thing to one of them."""
    pair = rows, plain = random.choice(pairs)
    what = random.random()
    if what < 0.45:
        put(random, pair)
    elif what < 0.55:
        key = random.choice((key_of(random), Bits(key_of(random))))
        rows.discard(key)
        plain.pop(bytes(key), None)
    elif what < 0.62:
        other, others = random.choice(pairs)
        if other is rows:
            assert outcome(rows.take_over, other)[1] is TypeError
        else:
            rows.take_over(other)
            plain.update(others)
            others.clear()
            assert other.items() == []
    elif what < 0.9:
        write(random, pair)
    else:
        misuse(random, pair)
    assert len(rows) == len(plain)
    key = key_of(random)
    assert rows.get(key, 7) == plain.get(key, 7)
    assert (key in rows) == (key in plain)
    assert outcome(rows.get, random.choice(BEYOND), 7)[1] is TypeError
    if random.random() < 0.1:
        assert sorted(rows.items()) == sorted(plain.items())


def session(random: Random) -> None:
    """Do some fifty steps to three of them."""
    pairs: list[Pair] = [(_kernel.RestoredRows(), {}) for _ in range(3)]
    for _ in range(random.randrange(1, 50)):
        step(random, pairs)
