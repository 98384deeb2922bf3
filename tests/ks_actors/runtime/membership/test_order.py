"""The order between the member, which gives tasks up, and the poller, which fetches for them."""

from __future__ import annotations

import asyncio
from typing import cast

from actors import Reply
from ks_actors import TaskId
from ks_actors.log import Fetched, TopicPartition
from ks_actors.runtime import messages as m
from ks_actors.runtime.membership._group_view import answered
from ks_actors.testing import AppHarness, TestRecord
from tests.ks_actors.log.helpers import batch
from tests.ks_actors.runtime.helpers import counting, in_app
from tests.ks_actors.runtime.membership.alone import Alone

FIRST, SECOND = (TopicPartition("in", number) for number in range(2))
RECORDS = [TestRecord(f"k{number}", "v", 0) for number in range(20)]


@in_app(counting("in_memory"), topics={"in": 2, "out": 1}, start=False)
async def test_nothing_of_a_forgotten_task_is_handed_on(harness: AppHarness) -> None:
    """A fetch that arrives behind ForgetTasks has records of other tasks alone: the next owner of the task reads the others."""
    here = Alone()
    await here.begin(harness)
    here.membership.gate.set()
    await here.kit.quiesce()
    here.begin_tasks()
    await here.kit.quiesce()
    forgotten = here.poller.ask(m.ForgetTasks, frozenset({TaskId(0, 0)}))
    here.poller.tell(m.FetchSucceeded([Fetched(one, batch(b"v"), 1, 1) for one in (FIRST, SECOND)], 0))
    await forgotten
    await harness.produce_all("in", RECORDS)
    await here.kit.clock.advance(1)
    assert here.fetched(FIRST) == 0
    assert here.fetched(SECOND) > 1
    await here.end()


@in_app(counting("in_memory"), topics={"in": 2, "out": 1}, start=False)
async def test_a_task_that_is_given_up_to_begin_anew_is_not_fetched_meanwhile(harness: AppHarness) -> None:
    """TaskReady of the task before may come late: its offsets are not those of the task that will begin."""
    here = Alone()
    await here.begin(harness)
    here.membership.gate.set()
    await here.kit.quiesce()
    here.begin_tasks()
    await here.kit.quiesce()
    here.ref.tell(m.PartitionsGone(frozenset({TaskId(0, 0)})))
    await here.kit.quiesce()
    (commit,) = here.told(m.Commit)
    assert commit.reply is not None
    commit.reply.tell(None)
    for offsets in here.told(m.AskOffsets):
        offsets.reply.tell({})
    await here.kit.quiesce()
    for offsets in here.told(m.AskOffsets):
        offsets.reply.tell({})
    await here.kit.quiesce()
    assert [sorted(message.tasks or ()) for message in here.told(m.SuspendTasks)] == [[TaskId(0, 0)]]
    here.begin_tasks()
    await harness.produce_all("in", RECORDS)
    await here.kit.clock.advance(1)
    assert here.fetched(FIRST) == 0
    assert here.fetched(SECOND) > 0
    await here.end()


async def test_a_departure_may_be_cancelled_before_it_begins() -> None:
    """Nothing of it is left then, as would be a coroutine that nobody awaits."""
    begun = list[str]()

    async def leave() -> None:
        begun.append("leave")

    leaving = asyncio.create_task(answered(cast("Reply[None]", None), leave))
    leaving.cancel()
    await asyncio.wait([leaving])
    assert begun == []
