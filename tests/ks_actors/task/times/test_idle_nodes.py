"""Looks for records that are on their way to idle nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from ks_actors.processors.api import AsyncOptions, Record
from ks_actors.processors.stateless import Batched
from ks_actors.records import TopicPartition
from ks_actors.task._node import NodeWork
from ks_actors.task._record_context import RecordContextHolder
from ks_actors.task._record_queue import RecordQueue
from ks_actors.task.calls import Emptied, Holder, Turnover, in_flight_node
from ks_actors.task.times import IdleNodes
from tests.waiting import soon

PARTITION = TopicPartition("in", 0)


class Node:
    """A node with something to close at its stream time, and at all times later by `each`."""

    def __init__(self, *, each: int = 1_000_000) -> None:
        self.touched: bool = False
        self.stream_time: int = 0
        self.closes: list[int] = []
        self._each = each

    def next_close(self) -> int:
        return self.stream_time + self._each if self.closes else self.stream_time

    def close_until(self, time: int) -> None:
        self.closes.append(time)
        self.stream_time = time


class Queue:
    def __init__(self) -> None:
        self.position: int = 0


class World:
    """Idle nodes of a task, whose log answers at once."""

    def __init__(self, nodes: Mapping[str, Node], *holders: tuple[Holder, set[str]]) -> None:
        self.now: float = 0.0
        self.queue: Queue = Queue()
        self.end: int = 0
        self.idle: IdleNodes = IdleNodes({PARTITION: cast("RecordQueue", self.queue)})
        self.idle.holders = [(holder, frozenset(leads)) for holder, leads in holders]
        for name, node in nodes.items():
            self.idle.add(name, 1_000, node, 0.0)

    def step(self, now: float) -> None:
        """Do all that there is to do at a time."""
        self.now = now
        self.idle.note(now)
        while self.idle.ready(now):
            self.idle.act(now)
            if self.idle.asks:
                self.idle.asked(now)
                self.idle.answer(PARTITION, self.end)


def test_records_of_one_moment_are_waited_for_and_no_later_ones() -> None:
    """A close waits for those that a holder had when the task had taken all before the ends."""
    node, holder = Node(), Turnover()
    world = World({"n": node}, (holder, {"n"}))
    first, second = holder.enter(), holder.enter()
    world.step(1_000)
    third = holder.enter()
    holder.leave(first)
    world.step(2_000)
    assert not node.closes
    holder.leave(second)
    world.step(2_001)
    assert node.closes == [1_000]
    holder.leave(third)


def test_no_close_goes_beyond_the_time_of_the_question() -> None:
    """However long calls take: a record that was written meanwhile may be in time."""
    node, holder = Node(each=1_000), Turnover()
    world = World({"n": node}, (holder, {"n"}))
    world.step(1_000)
    turn = holder.enter()
    world.step(2_000)
    world.step(9_000)
    holder.leave(turn)
    world.step(9_000)
    assert node.closes[:2] == [1_000, 2_000]


def test_records_that_are_not_taken_yet_are_waited_for_first() -> None:
    """Those before the ends may go into a holder when they are taken, so it is looked at after that."""
    node, holder = Node(), Turnover()
    world = World({"n": node}, (holder, {"n"}))
    world.end = 1
    world.step(1_000)
    world.queue.position, turn = 1, holder.enter()
    world.step(2_000)
    assert not node.closes
    holder.leave(turn)
    world.step(3_000)
    assert node.closes == [1_000]


def test_a_record_that_goes_from_one_holder_to_the_next_is_waited_for() -> None:
    """Holders are asked one after the other, upstream first."""
    node, first, second = Node(), Turnover(), Turnover()
    world = World({"n": node}, (first, {"n"}), (second, {"n"}))
    turn = first.enter()
    world.step(1_000)
    first.leave(turn)
    turn = second.enter()
    world.step(2_000)
    assert not node.closes
    second.leave(turn)
    world.step(3_000)
    assert node.closes == [1_000]


def test_holders_of_other_branches_are_not_waited_for() -> None:
    """A holder that does not lead to a node may keep its records."""
    node, other, holder = Node(), Node(), Turnover()
    world = World({"n": node, "other": other}, (holder, {"other"}))
    holder.enter()
    world.step(1_000)
    assert node.closes == [1_000]
    assert not other.closes


def test_a_node_that_closes_often_delays_no_other() -> None:
    """Each node keeps the time of its own question, while others ask again."""
    often, slow, holder = Node(), Node(), Turnover()
    often._each = 100
    world = World({"often": often, "slow": slow}, (holder, {"slow"}))
    turn = holder.enter()
    for now in range(1_000, 5_000, 100):
        world.step(now)
        holder.enter()
    assert len(often.closes) > 10
    holder.leave(turn)
    world.step(5_000)
    assert slow.closes == [1_000]


def test_a_record_that_comes_ends_the_look() -> None:
    """The wait begins anew, and the next look asks anew."""
    node, holder = Node(), Turnover()
    world = World({"n": node}, (holder, {"n"}))
    turn = holder.enter()
    world.step(1_000)
    holder.leave(turn)
    node.touched = True
    world.step(1_500)
    world.step(2_499)
    assert not node.closes
    world.step(2_500)
    assert node.closes == [1_000]


def test_a_position_that_is_moved_ends_the_look() -> None:
    """The records taken before it say nothing about the records from the new position on."""
    node, holder = Node(), Turnover()
    world = World({"n": node}, (holder, {"n"}))
    turn = holder.enter()
    world.step(1_000)
    world.idle.forget_ends()
    world.end = 1
    holder.leave(turn)
    world.step(2_000)
    assert not node.closes
    world.queue.position = 1
    world.step(2_000)
    assert node.closes == [2_000]


def test_a_cache_has_let_its_updates_go_when_it_is_seen_empty() -> None:
    """New updates may come at once: one empty moment, as at a commit, is enough."""
    node, cache = Node(), [1]
    world = World({"n": node}, (Emptied(cache), {"n"}))
    world.step(1_000)
    assert not node.closes
    cache.clear()
    world.idle.note(1_500)
    cache.append(2)
    world.step(1_500)
    assert node.closes == [1_000]


@pytest.mark.parametrize("fails", [False, True])
async def test_batches_are_waited_for_by_the_moment_of_their_first_record(fails: bool) -> None:
    """A node of a function of many records always has some, and those of one moment leave it, by results or by failures."""
    woken = asyncio.Event()
    failures: list[Any] = []

    async def call(records: list[Record[Any, Any]]) -> list[Record[Any, Any]]:
        if fails:
            raise ValueError("not at all")
        return records

    class Work:
        node = "n"

        def forward(self, *record: Any) -> None:
            """Drop it."""

        def failed(self, error: BaseException, *record: Any) -> None:
            failures.append(error)

    operator = Batched(call, 2, 60_000, AsyncOptions(order="partition"))
    node = in_flight_node(operator, cast("NodeWork", Work()), current=RecordContextHolder(), wake=woken.set, replayable=False)
    for _ in range(3):
        node.process("k", "v", 0, ())
    mark = node.turnover.mark()
    for _ in range(2):
        node.process("k", "v", 0, ())
    for _ in range(3):
        assert not node.turnover.passed(mark)
        await soon(woken.wait())
        woken.clear()
        node.emit()
        if node.in_flight == 1:
            break
    assert (node.in_flight, len(failures)) == (1, 4 if fails else 0)
    assert node.turnover.passed(mark)
    node.close()
