"""A mailbox against the simplest model of one."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from actors import Mailbox, Message, Spec, System
from actors.mailbox._control import NOTHING
from actors.supervision._supervision import Restart, RestartBudget
from tests.actors.helpers import Silent


class Urgent(Message, frozen=True):
    n: int


class Model:
    """Two lists, and the counts of refused messages."""

    def __init__(self, capacity: int, overflow: str) -> None:
        self.capacity = capacity
        self.overflow = overflow
        self.urgent: list[Urgent] = []
        self.user: list[int] = []
        self.refused = 0

    def tell(self, message: int | Urgent) -> bool:
        if isinstance(message, Urgent):
            self.urgent.append(message)
            return True
        if len(self.user) >= self.capacity:
            self.refused += 1
            if self.overflow == "undelivered":
                return False
            self.user.pop(0)
        self.user.append(message)
        return True

    def take(self) -> int | Urgent | None:
        lane: list[Any] = self.urgent or self.user
        return lane.pop(0) if lane else None


steps = st.lists(st.sampled_from(["tell", "offer", "urgent", "take", "take", "put_back"]), max_size=60)


@given(steps=steps, capacity=st.integers(1, 5), overflow=st.sampled_from(["undelivered", "drop_oldest"]), with_urgent=st.booleans())
def test_a_mailbox_behaves_as_its_model(steps: list[str], capacity: int, overflow: Literal["undelivered", "drop_oldest"], with_urgent: bool) -> None:
    """After any sequence of tells, offers, takes and returns: lanes, order, refusals and counts are those of two plain lists."""

    async def main() -> None:
        async with System("s", stall_after=None) as system:
            settings = Mailbox(capacity=capacity, overflow=overflow, urgent=(Urgent,) if with_urgent else ())
            ref: Any = await system.spawn(Spec(Silent, mailbox=settings), "a")
            inbox = ref._inbox
            model = Model(capacity, overflow)
            for n, step in enumerate(steps):
                if step == "take":
                    assert take(inbox) == model.take()
                elif step == "put_back":
                    inbox.put_back([-n, -n - 1])
                    model.user[:0] = [-n, -n - 1]
                else:
                    message = Urgent(n) if step == "urgent" and with_urgent else n
                    if step == "offer":
                        assert ref.offer(message) is model.tell(message)
                    else:
                        ref.tell(message)
                        model.tell(message)
                assert inbox.depth() == len(model.user) + len(model.urgent)
                assert system.tree()[0].refused == model.refused
            inbox.user.clear()
            while take(inbox) is not None:
                pass

    asyncio.run(main())


def take(inbox: Any) -> Any:
    if inbox.ahead:
        entry = inbox.next_ahead()
        if entry is not NOTHING:
            return entry
    return inbox.user.popleft() if inbox.user else None


@given(gaps=st.lists(st.floats(0, 10), max_size=40), limit=st.integers(0, 5), within=st.floats(0.1, 20))
def test_a_restart_budget_never_allows_more_than_its_limit_within_its_window(gaps: list[float], limit: int, within: float) -> None:
    """Checked against all windows, at each restart."""
    budget = RestartBudget()
    restart = Restart(limit=limit, within=within)
    allowed: list[float] = []
    now = 0.0
    for gap in gaps:
        now += gap
        recent = [time for time in allowed if time > now - within]
        delay = budget.spend(restart, now, random.Random(0))
        assert (delay is not None) == (len(recent) < limit)
        if delay is not None:
            assert 0.1 * 2 ** len(recent) <= delay * (1 + 1e-9) or delay >= 10
            assert delay <= 10 * 1.2
            allowed.append(now)
