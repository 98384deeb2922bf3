"""Transactions of processes that have left the group are ended by one of those that stay."""

from __future__ import annotations

import asyncio
from typing import Any

from ks_actors import LogError
from ks_actors.runtime.membership import end_transactions_of
from tests.ks_actors.runtime.helpers import in_virtual_time

PROCESSES = frozenset(f"p{number:02}" for number in range(40))


class Producer:
    """A producer that notes its end."""

    def __init__(self, name: str, ended: list[str]) -> None:
        self._name = name
        self._ended = ended

    async def close(self) -> None:
        await asyncio.sleep(1)
        self._ended.append(self._name)


@in_virtual_time
async def test_dead_processes_have_one_deadline_together() -> None:
    """The group waits for the tasks that this member gives up afterwards: many dead processes must not cost it its own place."""
    began = asyncio.get_running_loop().time()

    async def hang(_: str) -> Any:
        await asyncio.Event().wait()

    await end_transactions_of(hang, PROCESSES)
    assert asyncio.get_running_loop().time() - began <= 60.1


@in_virtual_time
async def test_dead_processes_are_ended_side_by_side() -> None:
    """An error with one of them leaves the others alone."""
    ended = list[str]()
    began = asyncio.get_running_loop().time()

    async def producer(name: str) -> Any:
        if name == "p07":
            raise LogError("no")
        return Producer(name, ended)

    await end_transactions_of(producer, PROCESSES)
    assert {*ended} == PROCESSES - {"p07"}
    assert asyncio.get_running_loop().time() - began < 5
