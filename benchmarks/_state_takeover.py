"""Takeover by a standby after a kill of the group's active member: time and lag."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks._kafka_inputs import PARTITIONS, Workload
from benchmarks._kafka_process import environment
from benchmarks._peer_apps import Tally, topology
from ks_actors import App, Batch, StreamsConfig
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.records._partitioner import partition as partition_of
from ks_actors.runtime import InstanceState, RestoreListener, StandbyUpdateListener

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ks_actors import TaskId
    from ks_actors.log import Log

SESSION_S = 3.0
_LOOK_S = 0.02
_QUIET_S = 2.0


class Takeover(NamedTuple):
    """The time of a takeover until the first results of all partitions are committed.

    `seconds` counts from the rebalance at the standby's member, `since_kill` from the kill.
    """

    seconds: float
    since_kill: float
    partitions: int
    restored: int
    changelog: int


class _Heard(RestoreListener, StandbyUpdateListener):
    """The lag of the standbys, and the records restored when they become tasks."""

    def __init__(self) -> None:
        self.behind: dict[TopicPartition, int] = {}
        self.restored: dict[TopicPartition, int] = {}
        self.changed: float = time.monotonic()
        self.told: list[float] = []

    def on_state(self, new: InstanceState, old: InstanceState) -> None:
        if new is InstanceState.REBALANCING:
            self.told.append(time.perf_counter())

    def on_update_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        self.behind[partition] = 1
        self.changed = time.monotonic()

    def on_batch_loaded(self, partition: TopicPartition, store: str, task: TaskId, end: int, count: int, current_end: int) -> None:
        self.behind[partition] = current_end - end
        self.changed = time.monotonic()

    def on_update_suspended(self, partition: TopicPartition, store: str, offset: int, current_end: int, reason: object) -> None:
        self.behind.pop(partition, None)
        self.changed = time.monotonic()

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        self.restored[partition] = total


async def takeover(
    log: Log,
    bootstrap: str,
    contender: list[str],
    workload: Workload,
    until_committed: Callable[[str, str, subprocess.Popen[bytes]], Awaitable[None]],
    timeout_s: float,
) -> Takeover:
    """Let one member count, let another follow as standby, kill the first, and await the other.

    `until_committed` waits for the first.
    """
    app_id, topic = f"takeover-{time.time_ns()}", workload.topic("kv")
    output = f"out-{app_id}"
    state = Path(tempfile.mkdtemp(prefix="ks-bench-"))
    await log.create_topics([NewTopic(output, PARTITIONS)])
    settings = {"session.timeout.ms": str(int(SESSION_S * 1000)), "num.standby.replicas": "1", "statestore.cache.max.bytes": "0"}
    command = [
        *contender,
        *("--bootstrap", bootstrap, "--app", "count", "--guarantee", "exactly_once_v2", "--input", topic, "--output", output),
        *("--app-id", app_id, "--state-dir", str(state / "active"), "--expect", str(1 << 60), "--timeout-s", str(timeout_s)),
        *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
    ]
    config = StreamsConfig.of(
        {**settings, "application.id": app_id, "processing.guarantee": "exactly_once_v2", "state.dir": str(state / "standby"), "poll.ms": "50"}
    )
    heard = _Heard()
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment())  # noqa: S603, ASYNC220 - ours
    try:
        await until_committed(app_id, topic, running)
        app = App(
            topology("count", [topic], output, Tally()), config, log=log, on_state=heard.on_state, restore_listener=heard, standby_listener=heard
        )
        async with app:
            async with asyncio.timeout(timeout_s):
                while not (  # noqa: ASYNC110 - it is looked at from outside
                    heard.behind and max(heard.behind.values()) <= 0 and time.monotonic() - heard.changed > _QUIET_S
                ):
                    await asyncio.sleep(_LOOK_S)
            return await _kill(log, app_id, topic, output, running, heard, timeout_s)
    finally:
        running.kill()
        running.wait()
        shutil.rmtree(state, ignore_errors=True)


async def _kill(log: Log, app_id: str, topic: str, output: str, running: subprocess.Popen[bytes], heard: _Heard, timeout_s: float) -> Takeover:
    followed = sorted(heard.behind)
    numbers = {changelog.partition for changelog in followed}
    outputs = [TopicPartition(output, number) for number in sorted(numbers)]
    fetcher = log.fetcher(client_id="takeover", isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign(await log.end_offsets(outputs, IsolationLevel.READ_UNCOMMITTED))
    producer = await log.producer(client_id="takeover")
    heard.restored.clear()
    heard.told.clear()
    running.kill()
    killed = time.perf_counter()
    await producer.send([Outgoing(TopicPartition(topic, number), Batch([_key(number)], [b"{}"], [int(time.time() * 1000)])) for number in numbers])
    missing = set(outputs)
    async with asyncio.timeout(timeout_s):
        while missing:
            missing -= {fetched.partition for fetched in await fetcher.fetch(max_wait_ms=20) if len(fetched.batch)}
    done = time.perf_counter()
    if not heard.told:
        raise SystemExit("the standby's member was never told that the other one is gone")
    await producer.close()
    await fetcher.close()
    ends = await log.end_offsets(followed, IsolationLevel.READ_COMMITTED)
    return Takeover(
        done - heard.told[0], done - killed, len(followed), sum(heard.restored.get(changelog, 0) for changelog in followed), sum(ends.values())
    )


def _key(number: int) -> bytes:
    """Return a key of a partition."""
    return next(key for key in (b"takeover-%d" % each for each in count()) if partition_of(key, PARTITIONS) == number)
