"""Faults that there were, each to be put back in for a run: the liveness test has to find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ks_actors.log import TopicPartition
from ks_actors.log.kafka.consumer._fetch_broker import LONG_MS, BrokerTurn, FetchBroker
from ks_actors.log.kafka.consumer._fetch_loop import FetchLoop
from ks_actors.log.kafka.consumer._partition_reader import PartitionReader
from ks_actors.runtime import messages as m
from ks_actors.runtime.commit import _drains
from ks_actors.runtime.fetching._poller import Poller
from ks_actors.runtime.membership._member import Member
from ks_actors.runtime.processing._input_budget import InputBudget
from ks_actors.runtime.processing._inputs import Inputs
from ks_actors.runtime.processing._scheduler import Schedule
from ks_actors.task._task import Task

_SHORT_MS = 50


class OldFault(NamedTuple):
    """A fault: the layer that is to find it, its description, and the function that puts it back in."""

    layer: str
    what: str
    put_in: Callable[[pytest.MonkeyPatch], None]


def leave_idle_partitions_out(patch: pytest.MonkeyPatch) -> None:
    """Have two requests take turns, and leave idle partitions out of each that goes out while the other one is short."""
    idle: set[TopicPartition] = set()
    take = FetchLoop._take

    def free_line(broker: FetchBroker) -> BrokerTurn | None:
        out = [line for line in broker.lines if line.out]
        if len(out) == len(broker.lines) or not _to_ask(broker, out):
            return None
        return next(line for line in broker.lines if not line.out)

    def _to_ask(broker: FetchBroker, out: list[BrokerTurn]) -> dict[TopicPartition, PartitionReader]:
        asked = out[0].session.sent_offsets if out else {}
        short = bool(out) and not out[0].long
        return {name: source for name, source in broker.wanted.items() if name not in asked and not (short and name in idle)}

    def begin(broker: FetchBroker, line: BrokerTurn, now: float) -> int:
        out = [line for line in broker.lines if line.out]
        line.session.lose()
        line.session.turn_to(_to_ask(broker, out))
        line.out, line.long = True, not out
        return _SHORT_MS if out else LONG_MS

    def note_idle(fetching: FetchLoop, broker: FetchBroker, line: BrokerTurn, response: Any) -> None:
        brought = {(topic, number) for topic, partitions in response.topics for number, *_, raw in partitions if raw}
        for name in line.session.sent_offsets:
            (idle.discard if name in brought else idle.add)(name)
        take(fetching, broker, line, response)

    patch.setattr(FetchBroker, "free_line", free_line)
    patch.setattr(FetchBroker, "begin", begin)
    patch.setattr(FetchBroker, "due", lambda broker, _: broker.not_before)
    patch.setattr(FetchLoop, "_take", note_idle)


def ask_for_nothing_without_room(patch: pytest.MonkeyPatch) -> None:
    """Have buffered records of paused partitions keep all others from being asked for."""
    wanted = vars(PartitionReader)["wanted"].fget
    patch.setattr(PartitionReader, "wanted", property(lambda source: wanted(source) and source._budget.room))


def keep_resets_from_tasks(patch: pytest.MonkeyPatch) -> None:
    """Have a task not be told that one of its partitions goes on from elsewhere."""
    patch.setattr(Inputs, "move", lambda inputs, reset: inputs._owner(reset.partition, reset.epoch))


def stop_empty_partitions(patch: pytest.MonkeyPatch) -> None:
    """Have a partition without waiting records stand still because of the buffers of others."""

    def consumed(budget: InputBudget, counts: Any) -> tuple[TopicPartition, ...]:
        for partition, count in counts:
            budget._note(partition, count)
            if partition in budget._full and count <= budget._records // 2:
                budget._full.discard(partition)
                budget._squeezed.add(partition)
        if budget.estimate > budget._size:
            return ()
        low = tuple(budget._squeezed)
        budget._squeezed.clear()
        return low

    patch.setattr(InputBudget, "consumed", consumed)


def let_priorities_not_age(patch: pytest.MonkeyPatch) -> None:
    """Have tasks of a high priority come first, for however long others wait."""

    def pick(schedule: Schedule, now: float, fits: Callable[[Task], bool] | None = None) -> tuple[Task, float] | None:
        if not schedule.waiting:
            return None
        task, since = schedule._levels[max(schedule._levels)].best(now)
        if fits is not None and not fits(task):
            return None
        schedule.leave(task.id)
        return task, since

    patch.setattr(Schedule, "pick", pick)


def wait_for_commits(patch: pytest.MonkeyPatch) -> None:
    """Have fetching wait while an offset commit is under way."""
    receive, fetch = Member.receive, Poller._fetch
    waits: set[object] = set()

    async def waiting(member: Member, message: Any) -> None:
        if isinstance(message, m.CommitOffsets):
            waits.add(member._poller)
            await member._commits.commit(message)
            waits.discard(member._poller)
            member._poller.tell(m.BufferLow(()))  # it fetches again
        else:
            receive(member, message)

    patch.setattr(Member, "receive", waiting)
    patch.setattr(Poller, "_fetch", lambda poller: None if poller.ctx.self_ref in waits else fetch(poller))


def drain_all(patch: pytest.MonkeyPatch) -> None:
    """Have a commit wait for the calls of all tasks, which take no new records meanwhile."""
    begin = _drains.Drains.begin

    def begin_with_all(drains: _drains.Drains, *arguments: Any) -> None:
        for task in drains._touched.values():
            task.draining.slow = False
        begin(drains, *arguments)

    patch.setattr(_drains, "_GRACE_S", 1e6)
    patch.setattr(_drains.Drains, "begin", begin_with_all)


OLD_FAULTS: dict[str, OldFault] = {
    "idle": OldFault("fetch", "idle partitions are left out of requests again and again", leave_idle_partitions_out),
    "room": OldFault("fetch", "what paused partitions have buffered keeps others from being asked for", ask_for_nothing_without_room),
    "reset": OldFault("app", "a task is not told that a partition was reset", keep_resets_from_tasks),
    "bytes": OldFault("app", "an empty partition stands still for the bytes of others", stop_empty_partitions),
    "priority": OldFault("app", "priorities do not age", let_priorities_not_age),
    "drain": OldFault("app", "a commit waits for the calls of all tasks", drain_all),
    "commit": OldFault("app", "fetching waits for offset commits", wait_for_commits),
}
