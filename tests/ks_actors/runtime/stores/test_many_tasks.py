"""The start of many tasks."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest

from ks_actors.runtime import messages as m
from ks_actors.runtime.fetching._poller import Poller
from ks_actors.runtime.stores._restorer import Restorer
from ks_actors.task._compiler import NodeGraph
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import Load, check_counts, counting, in_virtual_time

TASKS = 60


@in_virtual_time
async def test_tasks_that_begin_together_share_their_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts about their nodes, the requests for the ends of their changelogs, and the assignments of the fetcher."""
    calls: Counter[str] = Counter()
    facts, offsets, assign = NodeGraph._facts, Restorer._offsets_of, Poller._assign

    def counted_facts(graph: NodeGraph, node: Any) -> Any:
        calls["facts"] += 1
        return facts(graph, node)

    async def counted_offsets(restorer: Restorer, orders: Any) -> m.ChangelogEnds:
        calls["offsets"] += 1
        await asyncio.sleep(0.01)  # the time of a request
        return await offsets(restorer, orders)

    def counted_assign(poller: Poller, added: Any) -> None:
        calls["assign"] += 1
        assign(poller, added)

    monkeypatch.setattr(NodeGraph, "_facts", counted_facts)
    monkeypatch.setattr(Restorer, "_offsets_of", counted_offsets)
    monkeypatch.setattr(Poller, "_assign", counted_assign)
    async with AppHarness(counting("in_memory"), topics={"in": TASKS, "out": 1}) as harness:
        load = Load(harness, Random(1), keys=100)
        await load.through(300)
        assert calls["facts"] == len(harness.app.topology.nodes)
        assert calls["offsets"] <= 3
        assert calls["assign"] <= 3
        check_counts(await harness.read("out"), load.sent, "at_least_once")
