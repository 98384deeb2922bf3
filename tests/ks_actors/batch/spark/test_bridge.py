"""The batch bridge: jobs on a session of Spark's that nobody waits for."""

from __future__ import annotations

import asyncio
import base64
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyspark
import pytest

from actors import Actor, Ref, Spec, System
from ks_actors import BatchError, ConfigError, JobCancelled, JobFailed, JobTimeout, OffsetOutOfRange, ProcessingFailed, SparkUnavailable, TaskId
from ks_actors.batch import BatchBridge, CancelJob, JobProgress, RunJob, SparkSettings, TaskDone
from ks_actors.batch._task_errors import carried, translated
from ks_actors.batch.spark import _bridge, _connect
from ks_actors.batch.spark._messages import BridgeMessage
from ks_actors.batch.spark._session import SparkSession
from ks_actors.log import OffsetAndMetadata, TopicPartition
from tests.ks_actors.batch.conftest import SETTINGS
from tests.waiting import PATIENCE_S


@pytest.fixture
async def bridge(session: SparkSession) -> AsyncIterator[Ref[BridgeMessage]]:
    async with System("test") as system:
        yield await system.spawn(BatchBridge.spec(SETTINGS), "batch")


class Listener(Actor[JobProgress]):
    def __init__(self, told: asyncio.Queue[JobProgress]) -> None:
        self._told = told

    def receive(self, message: JobProgress) -> None:
        self._told.put_nowait(message)


def count(spark: Any, number: int) -> Any:
    return spark.range(number).count()


def failing(batches: Iterator[Any]) -> Iterator[Any]:
    with carried():
        for _ in batches:
            try:
                raise ValueError("no number")
            except ValueError as error:
                raise ProcessingFailed("it failed", task=TaskId(0, 3), node="map", topic="in", partition=3, offset=17) from error
        yield from ()


def forever(batches: Iterator[Any]) -> Iterator[Any]:
    for _ in batches:
        threading.Event().wait()
    yield from ()


async def test_a_job_is_done_and_answered_beside_others(bridge: Ref[BridgeMessage]) -> None:
    """Jobs run in threads, at most so many at a time; each is answered with its result."""
    counts = [bridge.ask(RunJob, f"count-{number}", partial(count, number=number)).within(PATIENCE_S) for number in range(4)]
    assert await asyncio.gather(*counts) == [0, 1, 2, 3]
    with pytest.raises(BatchError, match="job twice already runs"):
        first = bridge.ask(RunJob, "twice", lambda spark: spark.range(1).count()).within(PATIENCE_S)
        await bridge.ask(RunJob, "twice", lambda _: 0).within(PATIENCE_S)
    assert await first == 1


async def test_a_failure_of_a_task_is_told_as_it_was_raised(bridge: Ref[BridgeMessage]) -> None:
    """With its record and its cause, and none of Java's lines."""
    with pytest.raises(JobFailed) as failed:
        await bridge.ask(RunJob, "fails", lambda spark: spark.range(1).mapInArrow(failing, "n int").collect()).within(PATIENCE_S)
    raised = failed.value.__cause__
    assert isinstance(raised, ProcessingFailed)
    assert (raised.task, raised.node, raised.topic, raised.partition, raised.offset) == (TaskId(0, 3), "map", "in", 3, 17)
    assert repr(raised.__cause__) == "ValueError('no number')"
    assert str(failed.value).startswith("job fails failed: ProcessingFailed: it failed")
    assert "\n\tat " not in str(failed.value)


async def test_a_failure_of_a_users_own_kind_is_told_without_java(bridge: Ref[BridgeMessage]) -> None:
    """The task's traceback is passed as text, because such an error cannot be made again here."""

    def odd(batches: Iterator[Any]) -> Iterator[Any]:
        class OddError(Exception):
            pass

        yield from batches
        raise OddError("odd")

    with pytest.raises(JobFailed, match=r"job odd failed: OddError: odd$") as failed:
        await bridge.ask(RunJob, "odd", lambda spark: spark.range(1).mapInArrow(odd, "id long").collect()).within(PATIENCE_S)
    told = str(failed.value.__cause__)
    assert 'raise OddError("odd")' in told
    assert "\tat " not in told


async def test_a_failure_of_the_job_itself_is_told(bridge: Ref[BridgeMessage]) -> None:
    """Errors outside of Spark, and Spark's errors about a query, in one line."""
    with pytest.raises(JobFailed, match=r"job divides failed: ZeroDivisionError: ") as failed:
        await bridge.ask(RunJob, "divides", lambda _: 1 // 0).within(PATIENCE_S)
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    with pytest.raises(JobFailed, match=r"TABLE_OR_VIEW_NOT_FOUND") as failed:
        await bridge.ask(RunJob, "asks", lambda spark: spark.table("nowhere").count()).within(PATIENCE_S)
    assert "\n" not in str(failed.value)


async def test_a_job_is_cancelled_and_the_bridge_goes_on(bridge: Ref[BridgeMessage]) -> None:
    """Cancelling ends a running job, and one that waits for its turn; a deadline cancels a late one."""
    late = bridge.ask(RunJob, "late", lambda spark: spark.range(1).mapInArrow(forever, "n int").collect(), deadline_ms=1).within(PATIENCE_S)
    stuck = bridge.ask(RunJob, "stuck", lambda spark: spark.range(1).mapInArrow(forever, "n int").collect()).within(PATIENCE_S)
    waits = bridge.ask(RunJob, "waits", lambda _: 0).within(PATIENCE_S)
    with pytest.raises(JobTimeout, match="job late was not done within 1 ms"):
        await late
    assert await waits == 0
    assert await bridge.ask(CancelJob, "stuck").within(PATIENCE_S)
    with pytest.raises(JobCancelled, match="job stuck was cancelled"):
        await stuck
    assert not await bridge.ask(CancelJob, "stuck").within(PATIENCE_S)
    assert await bridge.ask(RunJob, "after", lambda spark: spark.range(7).count()).within(PATIENCE_S) == 7


async def test_nobody_waits_for_a_job_that_nothing_can_interrupt(bridge: Ref[BridgeMessage], monkeypatch: pytest.MonkeyPatch) -> None:
    """It has some time to end; then the caller is answered, though its thread goes on."""
    monkeypatch.setattr(_bridge, "_GIVE_UP_SECONDS", 0.1)
    begun, over = threading.Event(), threading.Event()

    def standing(_: Any) -> None:
        begun.set()
        over.wait(PATIENCE_S)

    stuck = bridge.ask(RunJob, "stuck", standing).within(PATIENCE_S)
    assert await asyncio.to_thread(begun.wait, PATIENCE_S)
    assert await bridge.ask(CancelJob, "stuck").within(PATIENCE_S)
    with pytest.raises(JobCancelled, match="job stuck was cancelled"):
        await stuck
    assert not over.is_set()
    with pytest.raises(BatchError, match="job stuck already runs"):
        await bridge.ask(RunJob, "stuck", lambda _: 0).within(PATIENCE_S)
    over.set()
    assert await bridge.ask(RunJob, "after", lambda spark: spark.range(7).count()).within(PATIENCE_S) == 7


def test_a_server_that_nobody_reaches_is_told_soon_and_without_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes long before the ten minutes that pyspark would try, and hides the part behind the address."""
    monkeypatch.setattr(_connect, "ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listening:  # which accepts, and says nothing
        settings = SparkSettings(master=f"sc://127.0.0.1:{listening.getsockname()[1]}/;token=secret", conf={"spark.authenticate.secret": "secret"})
        session = SparkSession(settings)
        with pytest.raises(SparkUnavailable, match=r"could not open a Spark session at sc://127.0.0.1:\d+: no answer for 0.1 s") as told:
            session.open()
        session.close()
    assert "secret'" not in f"{told.value} {settings!r}".replace("spark.authenticate.secret", "")
    assert "token" not in f"{told.value} {settings!r}"


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host:6443", "spark://one:7077,two:7077", "local[3,2]"])
def test_sparks_own_options_are_handed_on(master: str) -> None:
    """Any master of Spark, and any of its settings, which override the bridge's own; settings for one machine are only for that."""
    conf = {"spark.kubernetes.container.image": "image:1", "spark.driver.host": "host", "spark.speculation": "true"}
    chosen = SparkSession(SparkSettings(master=master, conf=conf, driver_memory="3g"))._conf()
    assert conf.items() <= chosen.items()
    assert chosen["spark.driver.memory"] == "3g"
    assert ("spark.driver.bindAddress" in chosen) is ("spark.executorEnv.PYTHONPATH" in chosen) is master.startswith("local")


@pytest.mark.spark
def test_a_java_that_ends_at_once_is_an_error_with_a_hint() -> None:
    """Its output goes to stderr only; YARN is known to need the environment."""
    code = """
from ks_actors import SparkUnavailable
from ks_actors.batch import SparkSettings
from ks_actors.batch.spark._session import SparkSession
for settings in SparkSettings(master="yarn"), SparkSettings(driver_memory="much"):
    try:
        SparkSession(settings).open()
    except SparkUnavailable as error:
        print(error)
"""
    environment = {name: value for name, value in os.environ.items() if name not in {"HADOOP_CONF_DIR", "YARN_CONF_DIR"}}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=200, env=environment)  # noqa: S603 - our own
    ended = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
    assert done.stdout.splitlines() == [
        f"could not open a Spark session at yarn: {ended} YARN needs HADOOP_CONF_DIR or YARN_CONF_DIR, and neither is set",
        f"could not open a Spark session at local[*]: {ended} Its stderr has the reason",
    ], done.stderr


async def test_progress_is_told(session: SparkSession) -> None:
    """Every second: how many of Spark's tasks are done, and how many there are."""
    async with System("test") as system:
        bridge = await system.spawn(BatchBridge.spec(SETTINGS), "batch")
        told: asyncio.Queue[JobProgress] = asyncio.Queue()
        listener = await system.spawn(Spec(lambda: Listener(told)), "listener")
        job = bridge.ask(RunJob, "slow", lambda spark: spark.range(0, 3, 1, 3).mapInArrow(forever, "n int").collect(), progress=listener)
        async with asyncio.timeout(PATIENCE_S):
            while (seen := await told.get()).known == 0:
                pass
        assert (seen.job, seen.done, seen.known) == ("slow", 0, 3)
        await bridge.ask(CancelJob, "slow").within(PATIENCE_S)
        with pytest.raises(JobCancelled):
            await job.within(PATIENCE_S)


async def test_jobs_running_at_the_end_of_the_bridge_are_cancelled(session: SparkSession) -> None:
    """The caller of a job gets an error; the session that the bridge did not start stays."""
    async with System("test") as system:
        bridge = await system.spawn(BatchBridge.spec(SETTINGS), "batch")
        jobs = [bridge.ask(RunJob, f"job-{number}", _block).within(PATIENCE_S) for number in range(3)]
        assert await bridge.ask(CancelJob, "job-2").within(PATIENCE_S)
        with pytest.raises(JobCancelled):
            await jobs[2]
        jobs.append(bridge.ask(RunJob, "job-3", _block).within(PATIENCE_S))
        await bridge.ask(CancelJob, "nobody").within(PATIENCE_S)
        await system.stop(bridge)
        ended = await asyncio.gather(jobs[0], jobs[1], jobs[3], return_exceptions=True)
        assert [str(each) for each in ended] == ["the batch bridge has ended"] * 3
    assert session.spark.range(3).count() == 3


def _block(spark: Any) -> Any:
    return spark.range(1).mapInArrow(forever, "n int").collect()


def test_importing_ks_actors_imports_nothing_of_spark() -> None:
    """Programs that do not use it do not pay for it."""
    code = "import sys, ks_actors, ks_actors.batch; print([name for name in ('pyspark', 'pyarrow', 'pandas', 'py4j') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - our own
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"JAVA_HOME": "/nowhere"}, "Spark needs Java 17 or later, and found none in JAVA_HOME, /nowhere"),
        ({"PATH": "/nowhere"}, "Spark needs Java 17 or later, and found none on the PATH"),
        ({"JAVA_HOME": "", "PATH": "/nowhere"}, "Spark needs Java 17 or later, and found none on the PATH"),
    ],
)
def test_without_java_the_error_says_so(environment: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, before anything is started."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pyspark.sql.SparkSession._instantiatedSession", None)
    with pytest.raises(SparkUnavailable, match=said):
        assert SparkSession(SparkSettings()).spark


def test_without_pyspark_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is missing, and the extra that has it."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SparkUnavailable, match=r"Spark needs pyspark, pyarrow, which are not installed: pip install 'ks-actors\[spark\]'"):
        assert SparkSession(SparkSettings()).spark
    monkeypatch.setitem(sys.modules, "pyspark", pyspark)
    monkeypatch.setitem(sys.modules, "pyarrow", pa)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(SparkUnavailable, match=r"Spark Connect needs grpc, which is not installed: pip install 'ks-actors\[spark-connect\]'"):
        assert SparkSession(SparkSettings(master="sc://127.0.0.1:1")).spark


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"master": "mesos://host"}, "is not a Spark master"),
        ({"max_jobs": 0}, "give 1 or more"),
        ({"max_jobs": True}, "max_jobs: is True: give 1 or more, an int"),
        ({"max_jobs": float("nan")}, "max_jobs: is nan"),
        ({"master": 1}, "1 is not a Spark master"),
        ({"master": "sc://host", "driver_memory": "4g"}, "driver_memory: has no effect at sc://host"),
        ({"master": "sc://host", "python": "/usr/bin/python3.9"}, "python: has no effect at sc://host"),
        ({"conf": {"kafka.transactional.id": "x"}}, "Spark begins no transactions"),
    ],
)
def test_settings_that_are_wrong_are_told(settings: dict[str, Any], said: str) -> None:
    """At once, not when a job runs."""
    with pytest.raises(ConfigError, match=said):
        SparkSettings(**settings)


def test_an_error_that_cannot_travel_is_told_as_text() -> None:
    """If its class cannot be made again, its text is left."""
    with pytest.raises(Exception, match="OffsetOutOfRange: in-0 has") as raised, carried():
        raise OffsetOutOfRange(TopicPartition("in", 0), 9, 0, 3)
    failed = translated(RuntimeError(f"Job aborted\nTraceback (most recent call last):\n  File\nTaskError: {raised.value}\n\n\tat java"), "x")
    assert str(failed) == "job x failed: TaskError: OffsetOutOfRange: in-0 has offsets 0 to 3, position 9 is outside"


def test_the_result_of_a_task_is_data(tmp_path: Path) -> None:
    """A record may hold anything, and get into an error's text: nothing in it is ever called."""

    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "called",)

    harmful = [pickle.dumps((Harmful(), None)), *(f'{{"kind":"{kind}","arguments":["x"]}}'.encode() for kind in ("eval", "TaskId", "SystemExit"))]
    for packed in (base64.b64encode(each).decode() for each in harmful):
        failed = translated(RuntimeError(f"Job aborted <<ks-actors:{packed}>>"), "x")
        assert isinstance(failed.__cause__, RuntimeError)
    assert not (tmp_path / "called").exists()


def test_the_report_of_an_ended_task_is_data(tmp_path: Path) -> None:
    """It comes back over the network, too: only the fields of a task's error are read, and anything else is refused."""
    from ks_actors.batch.spark._spark_task import done_of  # noqa: PLC0415 - it needs pyspark

    done = TaskDone(TaskId(0, 1), {TopicPartition("in", 1): OffsetAndMetadata(17, "at")}, 16, 1)
    assert done_of(msgspec.msgpack.encode(done)) == done

    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "called",)

    for data in (pickle.dumps(done), pickle.dumps(Harmful()), b"", msgspec.msgpack.encode({"task": 1})):
        with pytest.raises(BatchError, match="a Spark task returned an invalid result"):
            done_of(data)
    assert not (tmp_path / "called").exists()
