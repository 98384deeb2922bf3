"""`ks-actors reset` beside Kafka's own StreamsResetter: the same group, the same options, the same offsets and topics."""

from __future__ import annotations

import asyncio
import re
import subprocess
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from ks_actors import App, Batch, NotAuthorized, ResetPlan, ResetRefused, ShiftBy, StreamsConfig, Topology, reset
from ks_actors.cli._main import ks_actors
from ks_actors.log import NewMember, NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from tests.kafka.broker import PASSWORD, STRANGER, STRANGERS_PASSWORD, USER, Broker
from tests.kafka.programs import SOURCES, java
from tests.ks_actors.log.helpers import by_turns, read_all
from tests.ks_actors.runtime.helpers import counting
from tests.waiting import soon, until

OFFSET = re.compile(r"Topic: (\S+) Partition: (\d+) Offset: (\d+)")
DELETED = re.compile(r"Deleting (?:inferred|specified) internal topics \[(.*)\]")
HOUR = 3_600_000
TIME = datetime(2026, 1, 1, tzinfo=UTC)


class Kafkas(NamedTuple):
    """The output of Kafka's tool: exit code, offsets by partition, and the internal topics that it deletes."""

    code: int
    offsets: dict[TopicPartition, int]
    deleted: set[str]


class Case:
    """An application on the shared broker, with names of its own."""

    def __init__(self, broker: Broker, directory: Path, guarantee: str = "at_least_once") -> None:
        self.id = f"reset-{uuid.uuid4().hex[:12]}"
        self.inputs = [TopicPartition(f"{self.id}.in", number) for number in range(2)]
        self.out = TopicPartition("out", 0)
        self.broker = broker
        settings = {"bootstrap_servers": broker.bootstrap, "state_dir": str(directory), "processing_guarantee": guarantee, "commit_interval_ms": 100}
        self.config = StreamsConfig.of({"application_id": self.id, **settings})

    @property
    def topology(self) -> Topology:
        return counting(repartition=True, topics=[f"{self.id}.in"])

    async def begin(self, log: KafkaLog) -> None:
        """Have six records of one value counted, three in each partition, the first of which goes then; and four more written."""
        if "out" not in await log.describe_topics(["out"]):
            await log.create_topics([NewTopic("out", 1)])
        await log.create_topics([NewTopic(f"{self.id}.in", 2)])
        await self.write(log, 3, 0)
        assert await self.count(log) == [1, 2, 3, 4, 5, 6]
        await log.delete_records(dict.fromkeys(self.inputs, 1))
        await self.write(log, 2, 3)

    async def write(self, log: KafkaLog, count: int, first: int) -> None:
        producer = await log.producer(client_id="test")
        start = int(TIME.timestamp() * 1000)
        for partition in self.inputs:
            times = [start + (first + number) * HOUR for number in range(count)]
            await producer.send([Outgoing(partition, Batch([b"k"] * count, [self.id.encode()] * count, times))])
        await producer.close()

    async def count(self, log: KafkaLog) -> list[int]:
        """Run until caught up; return all counts so far."""
        async with App(self.topology, self.config) as app:
            await soon(app.wait_until_caught_up())
        return [int.from_bytes(value or b"") for _, key, value in await read_all(log, self.out) if key == self.id.encode()]

    def line(self, options: str) -> str:
        """Return the arguments of Kafka's tool."""
        return f"--application-id {self.id} --bootstrap-server {self.broker.bootstrap} {options}\n"


def kafkas(*lines: str) -> list[Kafkas]:
    """Return the output of Kafka's tool for each line of arguments."""
    done = subprocess.run(java(SOURCES / "Resets.java"), input="".join(lines), capture_output=True, text=True, check=True, timeout=120)  # noqa: S603 - our own
    return [_read(*found) for found in re.findall(r"(.*?)exit code (\d)\n", done.stdout, re.DOTALL)]


def _read(said: str, code: str) -> Kafkas:
    offsets = {TopicPartition(topic, int(number)): int(offset) for topic, number, offset in OFFSET.findall(said)}
    return Kafkas(int(code), offsets, {topic for topics in DELETED.findall(said) for topic in topics.split(", ") if topic})


def ours(plan: ResetPlan) -> Kafkas:
    return Kafkas(0, {each.partition: each.after for each in plan.offsets}, set(plan.internal_topics))


@pytest.mark.extended
@pytest.mark.heavy("Kafka's own tool, in Java")
async def test_each_option_gives_the_offsets_and_topics_of_kafkas_own_tool(kafka_broker: Broker, tmp_path: Path) -> None:
    """For the same group: every option, inside and outside of the log's range, with and without committed offsets."""
    case = Case(kafka_broker, tmp_path)
    one, two = case.inputs
    file = tmp_path / "offsets.csv"
    file.write_text(f"{one.topic},0,2\n{two.topic},1,99\n")
    # Back to between two records, however long the tool takes.
    seconds = (datetime.now(UTC) - TIME) // timedelta(seconds=1) - 5_400
    options: list[tuple[str, Any]] = [
        ("", "earliest"),
        ("--to-earliest", "earliest"),
        ("--to-latest", "latest"),
        *((f"--to-offset {offset}", offset) for offset in (0, 1, 3, 5, 9)),
        *((f"--shift-by {offset}", ShiftBy(offset)) for offset in (-9, -1, 0, 1, 9)),
        ("--to-datetime 2026-01-01T02:00:00.000", TIME + timedelta(hours=2)),
        ("--to-datetime 2026-01-01T02:00:00.001Z", TIME + timedelta(hours=2, milliseconds=1)),
        ("--to-datetime 2026-01-01T03:00:00.000+01:00", TIME + timedelta(hours=2)),
        ("--to-datetime 2130-01-01T00:00:00.000", datetime(2130, 1, 1, tzinfo=UTC)),
        (f"--by-duration PT{seconds}S", timedelta(seconds=seconds)),
        ("--by-duration PT0S", timedelta()),
        (f"--from-file {file}", {one: 2, two: 99}),
    ]
    async with KafkaLog(kafka_broker.bootstrap) as log:
        await case.begin(log)
        changelog = f"{case.id}-counts-changelog"
        lines = [case.line(f"--dry-run --input-topics {one.topic} {option}".strip()) for option, _ in options]
        lines.append(case.line(f"--dry-run --input-topics {one.topic} --internal-topics {changelog}"))
        # A group that has committed nothing: where to shift from is the end.
        case.id = f"{case.id}-new"
        lines.append(case.line(f"--dry-run --input-topics {one.topic} --shift-by -1"))
        *theirs, with_changelog, new = await asyncio.to_thread(kafkas, *lines)
        for (option, to), expected in zip(options, theirs, strict=True):
            plan = await reset(case.config, input_topics=[one.topic], to=to, log=log)
            assert ours(plan) == expected, option
        assert ours(await reset(case.config, input_topics=[one.topic], internal_topics=[changelog], log=log)) == with_changelog
        config = StreamsConfig.of({"application_id": case.id, "bootstrap_servers": kafka_broker.bootstrap, "state_dir": str(tmp_path)})
        assert ours(await reset(config, input_topics=[one.topic], to=ShiftBy(-1), log=log)) == new


@pytest.mark.extended
@pytest.mark.heavy("processes in Java")
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
async def test_a_reset_leaves_the_same_as_kafkas_own_tool_and_the_app_counts_from_the_start(
    kafka_broker: Broker, tmp_path: Path, guarantee: str
) -> None:
    """Of two equal apps each is reset by one of both: the same offsets and topics are left, and each app counts 1, 2, 3 once more."""
    case, other = (Case(kafka_broker, tmp_path, guarantee) for _ in range(2))
    async with KafkaLog(kafka_broker.bootstrap) as log:
        for each in (case, other):
            await each.begin(log)
        plan = await App(case.topology, case.config).reset()
        command = ["--application-id", case.id, "--bootstrap-servers", kafka_broker.bootstrap, "--state-dir", str(tmp_path), "--execute"]
        done = await asyncio.to_thread(CliRunner().invoke, ks_actors, ["reset", *command])
        assert done.exit_code == 0, done.output
        (theirs,) = await asyncio.to_thread(kafkas, other.line(f"--input-topics {other.inputs[0].topic}"))
        assert theirs.code == 0
        assert {each.replace(other.id, case.id) for each in theirs.deleted} == set(plan.internal_topics)
        left = [await _left(log, each) for each in (case, other)]
        assert left[0] == left[1] == ({"in": 2}, {("in", 0): (1, ""), ("in", 1): (1, "")})
        assert not (tmp_path / case.id).exists()
        assert await case.count(log) == [*range(1, 7), *range(1, 9)]


async def _left(log: KafkaLog, case: Case) -> tuple[dict[str, int], dict[tuple[str, int], tuple[int, str]]]:
    """Return the topics and offsets of an application, without its id."""
    topics = {name: topic.partitions for name, topic in (await log.describe_topics(configs=False)).items() if name.startswith(case.id)}

    # Kafka's tool does not wait for the coordinator, which hears of deleted topics a moment later.
    async def heard() -> bool:
        return {partition.topic for partition in await log.group_offsets(case.id)} <= topics.keys()

    await until(heard)
    offsets = await log.group_offsets(case.id)
    plain = len(case.id) + 1
    return {name[plain:]: count for name, count in topics.items()}, {
        (partition.topic[plain:], partition.partition): (offset.offset, offset.metadata) for partition, offset in offsets.items()
    }


async def test_members_are_refused_and_removed_by_force(log: KafkaLog, kafka_broker: Broker, tmp_path: Path) -> None:
    """A place that is kept for a member keeps the application from being reset; with force it goes, and the offsets are set."""
    case = Case(kafka_broker, tmp_path)
    await log.create_topics([NewTopic(case.inputs[0].topic, 2)])
    member = NewMember(
        client_id="frozen", topics=[case.inputs[0].topic], user_data=b"", assignor=by_turns, session_timeout_ms=60_000, rebalance_timeout_ms=60_000,
        instance_id="one",
    )  # fmt: skip
    membership = await log.join(case.id, member)
    await soon(membership.event())
    await membership.close()
    for execute in (False, True):
        with pytest.raises(ResetRefused, match=rf"the group {case.id} has members: frozen at 127\.0\.0\.1; nothing has changed"):
            await reset(case.config, log=log, input_topics=[case.inputs[0].topic], execute=execute)
    plan = await reset(case.config, log=log, input_topics=[case.inputs[0].topic], to="latest", execute=True, force=True)
    assert plan.members == ("frozen at 127.0.0.1",)
    assert {partition: offset.offset for partition, offset in (await log.group_offsets(case.id)).items()} == dict.fromkeys(case.inputs, 0)
    assert case.id in await log.group_ids()
    assert await log.group_members(case.id) == []


async def test_a_reset_logs_in_as_an_app_does(secure_broker: Broker, tmp_path: Path) -> None:
    """The settings are the app's; a user without rights is refused, nothing has changed, and no password is told."""
    name = f"reset-{uuid.uuid4().hex[:12]}"

    def config(user: str, password: str) -> StreamsConfig:
        settings = {"bootstrap_servers": secure_broker.address("SASL_SSL"), "state_dir": str(tmp_path), "security_protocol": "SASL_SSL"}
        login = {"sasl_mechanism": "PLAIN", "sasl_username": user, "sasl_password": password}
        return StreamsConfig.of({"application_id": name, **settings, **login, "ssl_ca_location": str(secure_broker.certificate)})

    async with KafkaLog(secure_broker.bootstrap) as log:
        await log.create_topics([NewTopic(f"{name}-in", 1)])
        plan = await soon(reset(config(USER, PASSWORD), input_topics=[f"{name}-in"], execute=True))
        assert [each.after for each in plan.offsets] == [0]
        with pytest.raises(NotAuthorized) as refused:
            await soon(reset(config(STRANGER, STRANGERS_PASSWORD), input_topics=[f"{name}-in"], to="latest", execute=True))
        assert STRANGERS_PASSWORD not in str(refused.value)
