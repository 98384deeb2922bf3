"""A supervised pool: a parent and its workers, each with its own thread for blocking work.

Some jobs fail and are retried. Shows: children, `executor="own"`, a piped `ask`, Restart with backoff.

Run: python examples/worker_pool.py
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, assert_never

from actors import Actor, Failed, Message, Reply, Restart, Restarted, Spec, Started, System

if TYPE_CHECKING:
    from actors import Ref, Signal


def digest(number: int, attempt: int) -> str:
    """Do the blocking work of one job; each fifth job fails at its first attempt."""
    if number % 5 == 0 and attempt == 1:
        raise OSError(f"job {number} lost its disk")
    return hashlib.pbkdf2_hmac("sha256", str(number).encode(), b"salt", 20_000).hex()[:12]


class Job(Message, frozen=True):
    reply: Reply[str]
    number: int
    attempt: int


class Worker(Actor[Job]):
    """Do one job at a time. Its failure fails the pool's ask, and restarts the worker."""

    async def receive(self, message: Job) -> None:
        message.reply.tell(await self.ctx.blocking(digest, message.number, message.attempt))


class RunAll(Message, frozen=True):
    reply: Reply[dict[int, str]]
    jobs: int


class JobDone(Message, frozen=True):
    worker: Ref[Job]
    number: int
    result: str


class JobFailed(Message, frozen=True):
    worker: Ref[Job]
    number: int
    attempt: int


class Pool(Actor[RunAll | JobDone | JobFailed]):
    """Give each worker one job after the other; a worker that exhausts its restarts fails the pool."""

    def __init__(self, workers: int) -> None:
        self._count = workers
        self._workers: list[Ref[Job]] = []
        self._todo: deque[tuple[int, int]] = deque()
        self._results: dict[int, str] = {}
        self._asked: RunAll | None = None

    async def signal(self, signal: Signal) -> None:
        if isinstance(signal, Started):
            spec = Spec(Worker, executor="own", supervise=lambda _: Restart(limit=10, within=60, backoff=(0.01, 1.0)))
            self._workers = [await self.ctx.spawn(spec, f"worker-{number}") for number in range(self._count)]

    def receive(self, message: RunAll | JobDone | JobFailed) -> None:
        match message:
            case RunAll(_, jobs):
                self._asked = message
                self._todo.extend((number, 1) for number in range(1, jobs + 1))
                for worker in self._workers:
                    self._next(worker)
            case JobDone(worker, number, result):
                self._results[number] = result
                self._next(worker)
                if self._asked is not None and len(self._results) == self._asked.jobs:
                    self._asked.reply.tell(self._results)
            case JobFailed(worker, number, attempt):
                self._todo.append((number, attempt + 1))
                self._next(worker)  # waits in the worker's mailbox until it runs again
            case _:
                assert_never(message)

    def _next(self, worker: Ref[Job]) -> None:
        if self._todo:
            number, attempt = self._todo.popleft()
            answer = worker.ask(Job, number, attempt).within(60)
            self.ctx.pipe(answer, partial(JobDone, worker, number), lambda _: JobFailed(worker, number, attempt))


async def work(workers: int, jobs: int) -> tuple[dict[int, str], int, int]:
    """Run all jobs; return the results by number, and the numbers of failures and restarts."""
    events: list[Failed | Restarted] = []
    async with System("demo") as system:
        system.subscribe(Failed, events.append)
        system.subscribe(Restarted, events.append)
        pool = await system.spawn(Spec(lambda: Pool(workers)), "pool")
        results = await pool.ask(RunAll, jobs).within(120)
    failures = sum(isinstance(event, Failed) for event in events)
    return results, failures, len(events) - failures


def main() -> None:
    logging.getLogger("actors").setLevel(logging.CRITICAL)  # the failures are planned: no tracebacks
    results, failures, restarts = asyncio.run(work(workers=4, jobs=20))
    print(f"{len(results)} results of 4 workers, {failures} failed attempts, {restarts} restarts")
    print(f"job 1: {results[1]}, job 20: {results[20]}")


if __name__ == "__main__":
    main()
