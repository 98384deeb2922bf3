"""Both sides as processes, measured from outside in the same way."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]

from benchmarks._kafka_process import cpu_of
from benchmarks.nexmark.events import PARTITIONS
from benchmarks.nexmark.queries import READS
from ks_actors.log import IsolationLevel, NewTopic, TopicPartition
from tests.kafka.broker import VERSION, jars

if TYPE_CHECKING:
    from ks_actors.log import Log

OURS: Final = "ks-actors"
THEIRS: Final = f"Kafka Streams {VERSION}"
SOURCE: Final = Path(__file__).resolve().parent.parent / "kafka_streams" / "Nexmark.java"
COMMIT_MS: Final = 500
_LOOK_S: Final = 0.1


class Measured(NamedTuple):
    """One run: seconds from the first moment of RUNNING until all is committed, and the CPU time of the process until then."""

    seconds: float
    cpu_s: float
    output: str


def commands() -> dict[str, list[str]]:
    """Return the command lines of both sides, without their arguments."""
    classes = Path(tempfile.mkdtemp(prefix="nexmark-classes-"))
    subprocess.run(["javac", "-nowarn", "-d", str(classes), "-cp", f"{jars()}/*", str(SOURCE)], check=True)  # noqa: S603, S607 - our own
    java = ["java", "-Xmx1g", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{classes}:{jars()}/*", "Nexmark"]
    return {OURS: [sys.executable, "-m", "benchmarks.nexmark.app"], THEIRS: java}


async def run(log: Log, bootstrap: str, command: list[str], query: str, *, guarantee: str, threads: int, cache: int, timeout_s: float) -> Measured:
    """Run a query on one side until all that it reads is processed and committed. Raises SystemExit if that takes too long."""
    app_id = f"nexmark-{query}-{time.time_ns()}"
    output = f"out-{app_id}"
    await log.create_topics([NewTopic(output, PARTITIONS)])
    with tempfile.TemporaryDirectory(prefix="nexmark-") as state:
        arguments = ["--query", query, "--bootstrap", bootstrap, "--bids", "bids", "--auctions", "auctions", "--persons", "persons"]
        arguments += ["--output", output, "--app-id", app_id, "--state-dir", state, "--threads", str(threads)]
        arguments += ["--commit-ms", str(COMMIT_MS), "--cache", str(cache), "--guarantee", guarantee]
        process = await asyncio.create_subprocess_exec(*command, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        try:
            stdout, stdin = cast("asyncio.StreamReader", process.stdout), cast("asyncio.StreamWriter", process.stdin)
            if (await stdout.readline()).strip() != b"running":
                raise SystemExit(f"{command[0]}, {query}: ended with {await process.wait()}")
            began = time.monotonic()
            await _until_done(log, bootstrap, app_id, query, began + timeout_s)
            seconds, cpu = time.monotonic() - began, cpu_of(process.pid)
            stdin.close()
            if await process.wait() != 0:
                raise SystemExit(f"{command[0]}, {query}: closed with {process.returncode}")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return Measured(seconds, cpu, output)


async def _until_done(log: Log, bootstrap: str, app_id: str, query: str, deadline: float) -> None:
    """Wait until the group has committed the ends of its inputs and of its repartition topics, twice the same."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    before: dict[TopicPartition, int] = {}
    try:
        while True:
            committed = {
                TopicPartition(each.topic, each.partition): found.offset for each, found in (await admin.list_consumer_group_offsets(app_id)).items()
            }
            ends = await log.end_offsets(await _inputs(log, app_id, query), IsolationLevel.READ_UNCOMMITTED)
            if all(committed.get(partition, -1) >= end for partition, end in ends.items() if end > 0):
                if committed == before:
                    return
                before = committed
            if time.monotonic() > deadline:
                late = {partition: (committed.get(partition), end) for partition, end in ends.items() if committed.get(partition, -1) < end}
                raise SystemExit(f"{app_id} is not done in time: {late}")
            await asyncio.sleep(_LOOK_S)
    finally:
        await admin.close()


async def _inputs(log: Log, app_id: str, query: str) -> list[TopicPartition]:
    described = await log.describe_topics(configs=False)
    internal = [name for name in described if name.startswith(f"{app_id}-") and not name.endswith("-changelog")]
    return [TopicPartition(name, number) for name in (*READS[query], *internal) for number in range(described[name].partitions)]
