"""A member looks after its owner's event loop, and gives its place up when that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from actors.testing import VirtualLoop
from ks_actors import LogClosed
from ks_actors.log import GroupMetadata, NewMember
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.group._group_member import HEARTBEAT_MS, GroupMember, MemberRemoved
from tests.ks_actors.log.helpers import by_turns

GROUP = GroupMetadata("g", 1, "m")
ANSWER_S = 0.002


class Answering:
    """A coordinator that knows the member."""

    async def send_to_coordinator(self, *_: object, **__: object) -> Any:
        await asyncio.sleep(ANSWER_S)
        return SimpleNamespace(error_code=0)


def removed_after(limit_ms: int, blocked_at: float, stuck: Callable[[float], float] = lambda _: 0.0) -> tuple[float, int]:
    """Return the seconds from a standstill of the owner's loop until the removal, and the number of questions before."""
    asked = 0

    async def main() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()

        def answer() -> None:
            nonlocal asked
            asked += 1
            if loop.time() - began < blocked_at:
                member.owner_is_well(stuck(loop.time() - began))

        new = NewMember(
            client_id="c", topics=["t"], user_data=b"", assignor=by_turns, session_timeout_ms=45_000,
            rebalance_timeout_ms=limit_ms, instance_id="static",
        )  # fmt: skip
        client: Any = Answering()
        owner: Any = SimpleNamespace(on_check=answer)

        def post(call: Callable[[], None]) -> None:
            loop.call_later(ANSWER_S, call)

        member = GroupMember(client, owner, post, lambda: True, group_id="g", new=new)
        with pytest.raises(MemberRemoved, match="has not returned for"):
            await member._beat(GROUP)
        assert not member._lease.holds()  # the group may give the partitions to others
        return loop.time() - began - blocked_at

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main()), asked


@pytest.mark.parametrize("limit_ms", [1_000, 2_000, 10_000, 300_000])
def test_a_member_is_removed_when_its_owner_stands_still_for_the_limit(limit_ms: int) -> None:
    """No earlier than by a heartbeat's answer, and at most a second and two heartbeats later."""
    for step in range(20):
        seconds, _ = removed_after(limit_ms, 5 + step * 0.0531)
        assert limit_ms / 1_000 - 2 * ANSWER_S <= seconds <= limit_ms / 1_000 + 1 + 2 * HEARTBEAT_MS / 1_000


def test_an_owner_that_is_well_is_asked_once_a_second() -> None:
    """Each question wakes its loop, which may have nothing else to do."""
    _, asked = removed_after(300_000, 100)
    assert 70 <= asked <= 101


class Refusing:
    """A coordinator that has removed the member."""

    options = KafkaOptions()
    closed = False

    async def start(self) -> None: ...

    async def send_to_coordinator(self, *_: object, **__: object) -> Any:
        await asyncio.sleep(ANSWER_S)
        return SimpleNamespace(error_code=25)

    async def close(self) -> None:
        self.closed = True


def test_a_member_whose_owner_is_gone_when_it_is_removed_ends() -> None:
    """There is nobody to tell of the removal: it closes its sockets, and no error is left behind."""

    async def main() -> None:
        new = NewMember(client_id="c", topics=["t"], user_data=b"", assignor=by_turns, session_timeout_ms=45_000, rebalance_timeout_ms=10_000)
        client: Any = Refusing()

        def post(*_: object) -> None:
            raise LogClosed("gone")

        owner: Any = SimpleNamespace(on_lost=print)
        member = GroupMember(client, owner, post, lambda: False, group_id="g", new=new)
        await member.start()
        assert member._main is not None
        await member._main
        assert client.closed

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def test_time_in_a_function_that_has_not_returned_counts() -> None:
    """The owner answers, but a function that is marked as blocking stands still: the limit counts from its beginning."""
    seconds, _ = removed_after(10_000, 1_000, lambda now: max(0.0, now - 5.0))
    assert 10 - 2 * ANSWER_S <= 1_000 + seconds - 5 <= 10 + 2 * HEARTBEAT_MS / 1_000
