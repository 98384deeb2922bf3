"""The statuses by which actors answer for themselves."""

from __future__ import annotations

from ks_actors import TaskId
from ks_actors.log import TopicPartition
from ks_actors.testing import AppHarness, TestRecord
from tests.ks_actors.runtime.helpers import counting, feed_all, in_app


@in_app(counting(), topics={"in": 2, "out": 1})
async def test_a_status_stays_as_it_was_while_its_actor_goes_on(harness: AppHarness) -> None:
    """Each status tells of one moment: another thread may read it meanwhile, and the next one tells of the next moment."""
    await feed_all(harness, "in", [TestRecord("a", "v", 0)])
    parts = harness.app._parts
    assert parts is not None
    membership, stores = parts.member.status(), parts.state_manager.status()
    statuses = membership, parts.manager.status(), stores, parts.restorer.reads()
    before = repr(statuses)
    tasks = {TaskId(0, number): (TopicPartition("in", number),) for number in range(2)}
    assert membership.tasks == tasks
    assert membership.member_id == harness.app.member_id
    assert {task: status.is_open for task, status in stores.items()} == dict.fromkeys(tasks, True)
    await harness.app.pause()
    await harness.turns(10)
    assert parts.manager.pauses.everything
    await harness.close()
    assert repr(statuses) == before
    assert parts.state_manager.status() == {}
