"""Settings of a mailbox."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Mailbox(msgspec.Struct, frozen=True, kw_only=True):
    """How an actor queues what it is told. There are three lanes: system (the framework's own) before urgent before user.

    `capacity` bounds the user lane, in messages; the other lanes take what comes, so that control never waits for room. `overflow` says what
    `tell` does at a full lane: leave the new message undelivered, drop the oldest one, or end the system with MailboxFull. Messages of
    the `urgent` types overtake all others and are FIFO among themselves; so do due timers and piped results. `watermarks` (low, high)
    send `Pressure` to watchers when the depth reaches high, and again when it has fallen to low. `batch` bounds the messages handled before the
    actor yields to others; an actor whose messages take long yields earlier, after about 1 ms. `stash` bounds `Context.stash`.
    """

    capacity: int = 1024
    overflow: Literal["undelivered", "drop_oldest", "fail_system", "dead_letter"] = "undelivered"
    """What `tell` does at a full lane; `dead_letter` is the former name of `undelivered`."""
    urgent: tuple[type[Any], ...] = ()
    watermarks: tuple[int, int] | None = None
    batch: int = 64
    stash: int = 1024

    def __post_init__(self) -> None:
        if self.capacity < 1 or self.batch < 1 or self.stash < 0:
            raise ValueError(f"{self!r}: capacity and batch must be at least 1, stash at least 0")
        if self.overflow not in {"undelivered", "drop_oldest", "fail_system", "dead_letter"}:
            raise ValueError(f"overflow {self.overflow!r} is none of 'undelivered', 'drop_oldest', 'fail_system'")
        if self.watermarks is not None:
            low, high = self.watermarks
            if not 0 <= low < high <= self.capacity:
                raise ValueError(f"watermarks {self.watermarks} must be 0 <= low < high <= capacity ({self.capacity})")
