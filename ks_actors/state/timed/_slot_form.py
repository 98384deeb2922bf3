"""The form of a window's or session's slot on disk and in the changelog."""

from __future__ import annotations

import struct
from operator import index
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors.records import Window

if TYPE_CHECKING:
    from collections.abc import Callable

SUFFIX: Final = struct.Struct(">qi")
"""The suffix of a window's key: its start and its sequence number.

The format is that of Kafka Streams' WindowKeySchema.
"""

ENDS: Final = struct.Struct(">qq")
"""The suffix of a session's key: its end and its start.

The format is that of Kafka Streams' SessionKeySchema.
"""

SEGMENT: Final = struct.Struct(">q")
"""The prefix of a row on disk: the number of its segment."""

SHIFT: Final = 63
LATEST: Final = (1 << SHIFT) - 1
_BEYOND: Final = 1 << 53
_LOW: Final = (1 << 32) - 1
SEQUENCE_BITS: Final = 31
SEQUENCE_MASK: Final = (1 << SEQUENCE_BITS) - 1


@final
class SlotForm:
    """The two numbers behind a row's key bytes, and the slot that they make.

    The first number is the time (ms) by which the row expires. The second one is part of the slot
    when the slot has `bits` for it; otherwise the slot is the time. So slots sort as rows on disk
    do.

    `window` returns the start of a slot's window, or the Window of its session. `in_memory` takes
    key bytes and slot. It returns the sort key of a row in Kafka Streams' stores in memory: time,
    key bytes and the second number (sessions: largest first).
    """

    __slots__ = ("bits", "in_memory", "mask", "of_sessions", "size", "struct", "window")

    def __init__(
        self,
        suffix: struct.Struct,
        bits: int,
        window: Callable[[int], Any],
        in_memory: Callable[[bytes, int], tuple[int, bytes, int]],
        *,
        of_sessions: bool = False,
    ) -> None:
        self.struct: struct.Struct = suffix
        self.size: int = suffix.size
        self.bits: int = bits
        self.mask: int = (1 << bits) - 1
        self.window: Callable[[int], Any] = window
        self.in_memory: Callable[[bytes, int], tuple[int, bytes, int]] = in_memory
        self.of_sessions: bool = of_sessions

    def slot(self, time: int, other: int) -> int:
        """Return the slot of two numbers."""
        return time << self.bits | other & self.mask

    def slots(self, numbers: list[tuple[int, int]]) -> list[int]:
        """Return the slots of many pairs of numbers."""
        bits = self.bits
        return (
            [time << bits | other for time, other in numbers]
            if bits
            else [time for time, _ in numbers]
        )

    def check(self, numbers: list[tuple[int, int]]) -> None:
        """Raise ValueError for numbers of a changelog that no put has written.

        Such numbers come from a store of another kind, whose bytes give times beyond all clocks.
        The last 4 bytes of a window's key are 0, or a count if the store has kept duplicates. If
        the bytes are read as a session's key, they are the low half of its start.
        """
        if not self.bits:
            for time, sequence in numbers:
                if sequence and (sequence < 0 or not 0 <= time < _BEYOND):
                    raise ValueError(
                        "a key of a window store ends with a start and a sequence number, and this "
                        f"one with {time} and {sequence}"
                    )
            return
        for end, start in numbers:
            if not 0 <= start <= end or (end - start >= _BEYOND and not start & _LOW):
                raise ValueError(
                    "a key of a session store ends with an end and a start that is not after it, "
                    f"and this one with {end} and {start}"
                )

    def suffix(self, slot: int) -> bytes:
        """Return the bytes behind the key's."""
        return self.struct.pack(slot >> self.bits, slot & self.mask)


WINDOWS: Final = SlotForm(SUFFIX, 0, index, lambda encoded, slot: (slot, encoded, 0))
DUPLICATES: Final = SlotForm(
    SUFFIX,
    SEQUENCE_BITS,
    lambda slot: slot >> SEQUENCE_BITS,
    lambda encoded, slot: (slot >> SEQUENCE_BITS, encoded, slot & SEQUENCE_MASK),
)
SESSIONS: Final = SlotForm(
    ENDS,
    SHIFT,
    lambda slot: Window(slot & LATEST, slot >> SHIFT),
    lambda encoded, slot: (slot >> SHIFT, encoded, -(slot & LATEST)),
    of_sessions=True,
)
