"""Settings of a mailbox."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Mailbox(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a mailbox. It has three lanes: system (the framework's), then urgent, then user.

    `capacity` limits the user lane, in messages. The other lanes have no limit, so that control
    never waits for room. `overflow` is the policy of `tell` at a full lane: leave the new message
    undelivered, drop the oldest message, or end the system with MailboxFull. Messages of the
    `urgent` types overtake all others and are FIFO among themselves; so do due timers and piped
    results. `watermarks` (low, high) send `Pressure` to watchers when the depth reaches high, and
    again when it has fallen to low. `batch` limits the messages handled before the actor yields to
    others; an actor with slow messages yields earlier, after about 1 ms. Asks that an idle actor
    handles in the asker's step do not count. `stash` limits
    `Context.stash`.
    """

    capacity: int = 1024
    overflow: Literal["undelivered", "drop_oldest", "fail_system", "dead_letter"] = "undelivered"
    """The policy of `tell` at a full lane; `dead_letter` is the former name of `undelivered`."""
    urgent: tuple[type[Any], ...] = ()
    watermarks: tuple[int, int] | None = None
    batch: int = 64
    stash: int = 1024

    def __post_init__(self) -> None:
        for name in ("capacity", "batch", "stash"):
            if type(number := getattr(self, name)) is not int:
                raise TypeError(f"{name} must be an int, is {number!r}")
        if self.capacity < 1 or self.batch < 1 or self.stash < 0:
            raise ValueError(f"{self!r}: capacity and batch must be at least 1, stash at least 0")
        if self.overflow not in {"undelivered", "drop_oldest", "fail_system", "dead_letter"}:
            raise ValueError(
                f"overflow {self.overflow!r} is not one of 'undelivered', 'drop_oldest', "
                "'fail_system'"
            )
        try:
            issubclass(object, self.urgent)
        except TypeError as error:
            raise TypeError(f"urgent must be a tuple of classes, is {self.urgent!r}") from error
        if self.watermarks is not None:
            low, high = self.watermarks
            if not 0 <= low < high <= self.capacity:
                raise ValueError(
                    f"watermarks {self.watermarks} must be 0 <= low < high <= capacity "
                    f"({self.capacity})"
                )
