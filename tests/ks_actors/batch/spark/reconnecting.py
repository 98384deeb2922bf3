"""A process that is connected to a Spark Connect server, while that is killed and started again.

`python -m tests.ks_actors.batch.spark.reconnecting <settings as JSON>`: it prints what it has seen, and goes on when it is told to by a line.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from actors import Actor, Ref, Spec, System
from ks_actors import JobCancelled, JobFailed, SparkUnavailable
from ks_actors.batch import BatchBridge, CancelJob, JobProgress, RunJob, SparkSettings
from ks_actors.batch.spark import _connect
from tests.waiting import PATIENCE_S

TASKS = 3
SAID = [
    "4 of 4",
    f"a job is at it: {TASKS} tasks",
    "job long failed: Spark ended meanwhile. The next one gets a new session",
    "4",
    "4",
    f"a job is at it: {TASKS} tasks",
    "job long was cancelled",
    "SparkUnavailable",
    "the process is as it was: True",
]
"""The lines that it prints."""


class Heard(Actor[JobProgress]):
    def __init__(self, told: asyncio.Queue[JobProgress]) -> None:
        self._told = told

    def receive(self, message: JobProgress) -> None:
        self._told.put_nowait(message)


def standing(batches: Iterator[Any]) -> Iterator[Any]:
    import threading  # noqa: PLC0415 - this is sent to the server by value

    for _ in batches:
        threading.Event().wait()
    yield from ()


standing.__module__ = "__main__"  # so that it is


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def told_to_go_on() -> None:
    await asyncio.to_thread(sys.stdin.readline)


def count(spark: Any) -> Any:
    return spark.range(4).count()


def long(spark: Any) -> Any:
    return spark.range(0, TASKS, 1, TASKS).mapInArrow(standing, "id bigint").collect()


async def begun(bridge: Ref[Any], system: System, name: str) -> Any:
    """Begin a job that never ends, and return when Spark has told of its tasks."""
    told: asyncio.Queue[JobProgress] = asyncio.Queue()
    listener = await system.spawn(Spec(lambda: Heard(told)), f"listener-{name}")
    job = bridge.ask(RunJob, "long", long, progress=listener)
    async with asyncio.timeout(PATIENCE_S):
        while (seen := await told.get()).known == 0:
            pass
    say(f"a job is at it: {seen.known} tasks")
    return job


async def main(settings: SparkSettings) -> None:
    """Be connected twice: by an idle client, and by one with a running job when the server is killed."""
    async with System("reconnecting") as system:
        idle = await system.spawn(BatchBridge.spec(settings), "idle")
        busy = await system.spawn(BatchBridge.spec(settings), "busy")
        counts = [await each.ask(RunJob, "count", count).within(PATIENCE_S) for each in (idle, busy)]
        say(" of ".join(map(str, counts)))
        job = await begun(busy, system, "first")
        await told_to_go_on()  # when it has been killed, and is there again
        try:
            await job.within(PATIENCE_S)
        except JobFailed as failed:
            say(failed)
        for each in (idle, busy):
            say(await each.ask(RunJob, "count", count).within(PATIENCE_S))
        job = await begun(busy, system, "second")
        await told_to_go_on()  # when it has been killed for good
        _connect.ANSWER_SECONDS = 1.0
        await busy.ask(CancelJob, "long").within(PATIENCE_S)
        try:
            await job.within(PATIENCE_S)
        except JobCancelled as cancelled:
            say(cancelled)
        try:
            await idle.ask(RunJob, "count", count).within(PATIENCE_S)
        except SparkUnavailable as nobody:
            say(type(nobody).__name__)


if __name__ == "__main__":
    before = set(os.environ)
    asyncio.run(main(SparkSettings(**msgspec.json.decode(sys.argv[1]))))
    say(f"the process is as it was: {set(os.environ) == before}")
