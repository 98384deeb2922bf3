"""The queries of benchmarks/queries.py on a Kafka, in one process or in one each."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped]

from benchmarks._kafka_process import environment
from benchmarks._queries_app import BAD, GOOD, INPUTS, LOST, OUTPUTS, Rate, make_topics
from benchmarks._runtime_load import PARTITIONS
from benchmarks.latency import App as Contender
from benchmarks.latency import line_of, tell
from ks_actors.log import open_log
from tests.kafka.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
TOGETHER, APART = (f"{GOOD},{BAD}",), (GOOD, BAD)
"""The queries of each process."""
_PATIENCE_S = 60
_LOOK_S = 0.05


class Latency(NamedTuple):
    """Time (ms) from the sending of a record to the sight of its result."""

    p50: float
    p99: float


@contextmanager
def have_kafka() -> Iterator[str]:
    """Provide the address of a Kafka with a topic whose partitions have no leader.

    The only replica of that topic is on a second broker, which is killed before anything is measured.
    """
    directory = Path(tempfile.mkdtemp(prefix="ks-bench-kafka-"))
    first = Broker(directory / "first", quick=False)
    second = Broker(directory / "second", node=2)
    second.settings = {
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://{second.bootstrap}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.quorum.voters": f"{first.number}@{first.address('CONTROLLER')}",
    }
    try:
        first.start()
        second.start()
        _until_known(first, 2)
        asyncio.run(_create_at(second, LOST))
        second.kill()
        # The controller takes the leaders from a broker that it does not hear.
        _until_known(first, 1)
        yield first.bootstrap
    finally:
        second.kill()
        first.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _until_known(broker: Broker, count: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while (found := broker.knows()) != count:
        if time.monotonic() > deadline:
            raise SystemExit(f"the broker knows {found} brokers instead of {count}:\n{broker.log()[-2000:]}")
        time.sleep(_LOOK_S)


async def _create_at(broker: Broker, topic: str) -> None:
    """Create a topic with its only replica on this broker."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        places = {number: [broker.number] for number in range(PARTITIONS)}
        answer = await admin.create_topics([NewTopic(topic, -1, -1, replica_assignments=places)])
    finally:
        await admin.close()
    if any(code for _, code, *_ in answer.topic_errors):
        raise SystemExit(f"topic {topic} could not be created: {answer.topic_errors}")


def rate(mode: str, bootstrap: str, placed: tuple[str, ...], count: int) -> Rate:
    """Return the rate of the good query over `count` records that are there at the start."""
    asyncio.run(_make_topics(bootstrap, count))
    with _members(mode, bootstrap, placed, count) as members:
        return Rate(*json.loads(_said(members[0])))


def latency(mode: str, bootstrap: str, placed: tuple[str, ...], per_s: int, seconds: float, warm_seconds: float) -> Latency:
    """Return the latency of the good query while both get `per_s` records a second.

    The first `warm_seconds` do not count.
    """
    asyncio.run(_make_topics(bootstrap, 0))
    with _members(mode, bootstrap, placed, 0) as members:
        for member in members:
            _said(member)
        good = Contender(members[0].pid, bootstrap, INPUTS, OUTPUTS[0], PARTITIONS, "read_uncommitted")
        seen = good.under(per_s, seconds, warm_seconds)
    if seen.lost:
        raise SystemExit(f"{mode}: {seen.lost} results of the good query did not come")
    return Latency(seen.p50, seen.p99)


async def _make_topics(bootstrap: str, count: int) -> None:
    log = open_log(f"kafka://{bootstrap}")
    await log.start()
    try:
        await make_topics(log, count)
    finally:
        await log.close()


@contextmanager
def _members(mode: str, bootstrap: str, placed: tuple[str, ...], count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Run a process for each item of `placed`, and have all begin; the first one has the good query."""
    group = f"queries-{time.time_ns()}"
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        members: list[subprocess.Popen[str]] = []
        for number, queries in enumerate(placed):
            about = {"bootstrap": bootstrap, "group": group, "state-dir": str(directory / str(number)), "mode": mode, "queries": queries}
            arguments = [word for option, value in about.items() for word in (f"--{option}", value)]
            command = [sys.executable, str(HERE / "_queries_app.py"), *arguments, "--records", str(count)]
            member = stack.enter_context(
                subprocess.Popen(  # noqa: S603 - ours
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE.parent, env=environment()
                )
            )
            # Calls in flight, and records for a topic without a leader, would hold up an orderly end.
            stack.callback(member.kill)
            members.append(member)
        for member in members:
            _said(member)
        for member in members:
            tell(member, "go\n")
        yield members


def _said(member: subprocess.Popen[str]) -> str:
    if not (line := line_of(member)):
        raise SystemExit(f"a process of the queries has ended: exit code {member.wait()}")
    return line
