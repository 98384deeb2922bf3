"""Column functions beside Python: partitions, texts and numbers, joining, keys of windows, and dicts."""

from __future__ import annotations

import struct
from random import Random
from typing import Any
from unittest.mock import patch

from ks_actors import Window, Windowed
from ks_actors.kernel import _kernel
from ks_actors.records._partitioner import partition
from ks_actors.state.join_window import _segment
from ks_actors.state.join_window._segment import Segment
from ks_actors.state.timed._expiry import take_out
from tests.fuzz.values import BEYOND, EDGES, LEAST, MOST, clamped, outcome, text


def partitions(random: Random) -> None:
    """Find partitions."""
    keys = [random.randbytes(random.choice((0, 1, 2, 3, 4, 5, 7, 8, 50))) for _ in range(random.randrange(30))]
    count = random.choice((1, 2, 7, 100, (1 << 31) - 1, 1 << 31, 1 << 40))
    assert _kernel.partitions(keys, count) == [partition(key, count) for key in keys]


def serdes(random: Random) -> None:
    """Encode and decode, and refuse other types."""
    texts = [random.choice((None, text(random), text(random))) for _ in range(random.randrange(20))]
    encoded = [None if each is None else each.encode() for each in texts]
    assert _kernel.encode_texts(texts) == encoded
    assert _kernel.decode_texts(encoded) == texts
    numbers = [random.choice((None, *EDGES)) for _ in range(random.randrange(20))]
    packed = [None if each is None else struct.pack(">q", each) for each in numbers]
    assert _kernel.encode_longs(numbers) == packed
    assert _kernel.decode_longs(packed) == numbers
    odd: list[Any] = [random.choice((b"\xff", "\ud800", 1 << 70, b"1234567", 1.5, None, [], "x", b"x", 5)) for _ in range(random.randrange(5))]
    for function in (_kernel.encode_texts, _kernel.decode_texts, _kernel.encode_longs, _kernel.decode_longs, _kernel.check_bytes):
        found, error = outcome(function, odd)
        assert error in (None, TypeError, ValueError, OverflowError, UnicodeDecodeError, UnicodeEncodeError), error
        assert error is not None or len(found) == len(odd)


def windows(random: Random) -> None:
    """Write keys of windows, and let windows expire."""
    count = random.randrange(40)
    keys = [random.choice((text(random), text(random).encode())) for _ in range(count)]
    starts = [random.choice(EDGES) for _ in keys]
    sequences = [random.choice((0, 1, (1 << 31) - 1, -(1 << 31))) for _ in keys]
    encoded = [key.encode() if isinstance(key, str) else key for key in keys]
    expected = [key + struct.pack(">qi", *rest) for key, *rest in zip(encoded, starts, sequences, strict=True)]
    assert _kernel.window_keys(keys, starts, sequences) == expected
    panes = [Window(start, start + 1) for start in starts]
    made = _kernel.windowed(Windowed, [*keys, *starts], panes * 2)
    assert made == [Windowed(*pair) for pair in zip([*keys, *starts], panes * 2, strict=True)]
    assert list(map(hash, made)) == [hash(Windowed(*pair)) for pair in zip([*keys, *starts], panes * 2, strict=True)]
    assert _kernel.convert(len, [*keys, None]) == [*map(len, keys), None]
    lengths = (0, 1, 5, 15, 16, 17, 30, 300)
    tracks: list[dict[Any, dict[int, Any]]] = [{key: {random.randrange(400): key for _ in range(random.choice(lengths))} for key in "abcd"}]
    if random.random() < 0.1:
        tracks[0]["a"] = dict.fromkeys(BEYOND, "x")
    tracks.append({key: dict(track) for key, track in tracks[0].items()})
    indexes, limit = random.choices("abcde", k=5), random.choice((-1, 10, 200, 400, *BEYOND))
    assert _kernel.expire_windows(tracks[0], indexes, limit) == take_out(tracks[1], indexes, limit)
    assert tracks[0] == tracks[1]


def meeting(random: Random) -> None:
    """Index rows of objects with the kernel and without it, and meet them."""
    script = [([(random.choice("abcde"), random.randrange(12)) for _ in range(random.randrange(20))], random.random() < 0.3) for _ in range(4)]
    made = []
    for with_kernel in (True, False):
        with patch.object(_segment, "HAS_KERNEL", with_kernel):
            segment = Segment(0)
            for rows, back in script:
                count = len(segment)
                columns = [row[0] for row in rows], [row[1] for row in rows], range(count, count + len(rows)), [str(row) for row in rows]
                segment.add_all(*columns)
                if back:
                    segment.roll_back()
                else:
                    segment.committed = segment.frozen = len(segment)
            made.append(segment)
    assert made[0].index == made[1].index
    assert made[0].keys == made[1].keys
    keys = random.choices("abcdef", k=8)
    times = [random.choice((random.randrange(14), random.randrange(14), *BEYOND)) for _ in keys]
    before, after = random.choice((0, 2, -2, MOST, -MOST)), random.choice((0, 2, -2, MOST, LEAST))
    met: list[Any] = []
    _kernel.meet(made[0].index, made[0].starts, made[0].values, keys, times, before, after, met)
    twin = made[1]
    assert met == [
        (at, twin.starts[place], twin.values[place])
        for at, (key, time) in enumerate(zip(keys, times, strict=True))
        for place in twin.places(key, clamped(time - before), clamped(time + after))
    ]


class Attributes:
    """Its dict shares keys with those of others of its class."""


def dicts(random: Random) -> None:
    """Look ahead in dicts of all kinds: shared keys, with holes, of any keys, large ones."""
    holder = Attributes()
    for number in range(random.randrange(8)):
        setattr(holder, f"k{number}", (number, number))
    large = 70_000 if random.random() < 0.01 else 3
    view: dict[Any, Any] = random.choice(
        (
            holder.__dict__,
            dict.fromkeys(range(random.choice((0, 3, 9, 100, 700))), (1, 1)),
            {f"k{number}": (number, number) for number in range(random.choice((0, 5, 6, 100, large)))},
        )
    )
    for key in random.sample(list(view), random.randrange(len(view) + 1)) if random.random() < 0.4 else ():
        del view[key]
    if random.random() < 0.3:
        view[random.choice((None, 1.5, b"x", (1, 2)))] = (1, 1)
    keys = [random.choice((f"k{random.randrange(12)}", random.randrange(12), random.randrange(12) << 61, b"x")) for _ in range(70)]
    assert _kernel.absent(view, keys, 0) == list(dict.fromkeys(key for key in keys if key not in view))
    there = [key for key in keys if key in view]
    assert _kernel.entry_columns(view, {}, there) == ([view[key][0] for key in there], [view[key][1] for key in there])
    assert _kernel.count_up(dict(view), {}, there, there, [0] * len(there), 0, [], [], False)[0] == len(there)


def session(random: Random) -> None:
    """Do one of them."""
    random.choice((partitions, serdes, windows, meeting, dicts))(random)
