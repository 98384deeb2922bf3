"""Brokers that cannot be reached, or never answer, are told of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from ks_actors import App, InstanceState, LogTimeout, StreamsBuilder, StreamsConfig, WaitReason, serdes
from ks_actors.dsl import Consumed, Grouped, Produced
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.log._types import Outage
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.client._outages import Line, Outages, Refusals
from ks_actors.log.kafka.client._unanswered_requests import Unanswered
from ks_actors.records._batch import Batch
from tests.kafka.broker import Broker, free_ports
from tests.waiting import until

ME = 1
REASON = "broker 1 at kafka:9092 cannot be reached"
WHERE = "broker at kafka:9092"

LOGGERS = {"ks_actors.log.kafka.client", "ks_actors.log.kafka.producer"}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level and record.name in LOGGERS]


@contextmanager
def asking(outages: Outages, line: Line) -> Iterator[None]:
    """A client that waits for an answer on a line."""
    client = Unanswered(lambda: outages, 60.0, lambda: None)
    try:
        with client.until_answered(line, "Fetch", 0.0, answers=False):
            yield
    finally:
        client.close()


def test_an_outage_is_told_at_once_and_ever_again_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    """WARNING at the first failure, at 1 s, at 5 s, then each 10 s, however often it fails; INFO when the broker answers."""
    caplog.set_level(logging.INFO)
    clock = Clock()
    outages = Outages(clock)
    told: list[float] = []
    for tenth in range(361):
        clock.now = 1000 + tenth / 10
        before = len(lines(caplog))
        for channel in ("main", "produce"):
            outages.failed(Line(WHERE, ME, channel), REASON)
        told += [tenth / 10] * (len(lines(caplog)) - before)
    assert told == [0.0, 1.0, 5.0, 15.0, 25.0, 35.0]
    assert lines(caplog)[0] == f"{REASON}; the client retries until it answers"
    assert lines(caplog)[3] == f"{REASON}; the client retries until it answers, for 15 s so far"
    assert outages.now() == [Outage(36.0, REASON)]
    outages.answered(Line(WHERE, ME, "main"))
    assert outages.now() == [Outage(36.0, REASON)]
    outages.answered(Line(WHERE, ME, "produce"))
    assert outages.now() == []
    assert lines(caplog, logging.INFO) == [f"{WHERE} answers again, after 36.0 s"]


def test_a_broker_that_comes_and_goes_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A failure each tenth of a second, with an answer in between, is told of each five seconds at most."""
    caplog.set_level(logging.INFO)
    clock = Clock()
    outages = Outages(clock)
    for tenth in range(200):
        clock.now = 1000 + tenth / 10
        outages.failed(Line(WHERE, ME, "main"), REASON)
        outages.answered(Line(WHERE, ME, "main"))
    assert len(lines(caplog)) == len(lines(caplog, logging.INFO)) == 4


def test_refusals_in_a_row_are_one_outage() -> None:
    """From 1 s on, until none has come for 2 s, or one is served; the partition that has been refused for the longest time stands for all."""
    clock = Clock()
    outages = Outages(clock)
    seen: list[Outage] = []
    for second in range(4):
        for what in ("a-0", "a-1")[: 1 + second // 2]:
            outages.refused(what, f"{what} has no leader")
        seen += outages.now()
        clock.now += 1
    assert seen == [
        Outage(1.0, "a-0 has no leader", refused=True),
        Outage(2.0, "a-0 has no leader", refused=True),
        Outage(3.0, "a-0 has no leader (and 1 more)", refused=True),
    ]
    assert str(seen[2]) == "the log has refused fetches for 3 s: a-0 has no leader (and 1 more)"
    clock.now += 2
    assert outages.now() == []
    for _ in range(3):
        outages.refused("a-0", "a-0 has no leader")
        outages.refused("a-1", "a-1 has no leader")
        assert outages.now() == []
        outages.served("a-0")
        clock.now += 1
        outages.refused("a-1", "a-1 has no leader")
        assert outages.now() == [Outage(1.0, "a-1 has no leader", refused=True)]
        outages.served("a-1")


async def test_a_broker_that_nobody_asks_any_more_is_forgotten() -> None:
    """It may have left the cluster; a client that is closed asks for nothing either."""
    clock = Clock()
    outages = Outages(clock)
    outages.failed(Line(WHERE, ME, "main"), REASON)
    outages.failed(Line("broker at other:1", 2, "main"), "broker 2 at other:1 cannot be reached")
    outages.forget(2)
    clock.now += 9
    assert [outage.reason for outage in outages.now()] == [REASON]
    with asking(outages, Line(WHERE, ME, "main")):
        clock.now += 2
        assert [outage.reason for outage in outages.now()] == [REASON]
    assert outages.now() == []


@pytest.mark.parametrize("retried", [False, True])
@pytest.mark.parametrize(
    ("failed", "answers"),
    [
        (Line(WHERE, ME, "main"), Line(WHERE, ME, "produce")),
        (Line(WHERE, ME, "main"), Line(WHERE, 2, "main")),
        (Line("broker at bootstrap:9092", ME, "main"), Line(WHERE, ME, "produce")),
    ],
)
async def test_an_answer_ends_what_failed_and_is_not_tried_again(failed: Line, answers: Line, retried: bool) -> None:
    """An answer on any line ends the outage of one that has not been tried for 2 s, unless a request still waits there."""
    clock = Clock()
    outages = Outages(clock)
    outages.failed(failed, REASON)
    clock.now += 1
    outages.answered(answers)
    assert len(outages.now()) == 1
    clock.now += 2
    with asking(outages, failed) if retried else nullcontext():
        outages.answered(answers)
        assert len(outages.now()) == retried
    outages.answered(failed)
    assert outages.now() == []


@pytest.mark.parametrize("pause_ms", [200, 5_000])
def test_a_broker_that_is_tried_stays_away_while_others_answer(pause_ms: int) -> None:
    """Its partitions may have no other leader. The pause between two attempts ends no outage, however long it is set."""
    clock = Clock()
    outages = Outages(clock, pause_ms=pause_ms)
    for attempt in range(4):
        outages.failed(Line(WHERE, ME, "main"), REASON)
        clock.now += pause_ms / 1000
        outages.answered(Line("broker at other:1", ME, "main"))
        assert [outage.seconds for outage in outages.now()] == [pytest.approx((attempt + 1) * pause_ms / 1000)]


def test_a_broker_whose_partitions_have_moved_is_away_no_longer(caplog: pytest.LogCaptureFixture) -> None:
    """Other brokers answer, and nobody tries it: the outage ends 2 s after the last attempt, and the log says why."""
    caplog.set_level(logging.INFO)
    clock = Clock()
    outages = Outages(clock)
    outages.failed(Line(WHERE, ME, "main"), REASON)
    clock.now += 2.5
    outages.answered(Line("broker at other:1", ME, "main"))
    assert outages.now() == []
    assert lines(caplog, logging.INFO) == [f"{WHERE} is no longer asked, as other brokers answer, after 2.5 s"]


async def test_failures_of_other_connections_do_not_count_for_a_broker_that_works() -> None:
    """A dead connection makes its own requests wait; without a sign that the broker works it counts for all of them."""
    clock = Clock()
    outages = Outages(clock)
    client = Unanswered(lambda: outages, 3.0, lambda: None)
    dead, well = Line(WHERE, ME, "fetch"), Line(WHERE, ME, "main")
    with client.until_answered(dead, "Fetch", 0.0):
        assert not client.silent(well, alone=False)
        clock.now += 1.5
        for _ in range(2):
            assert [client.silent(line, alone=False) for line in (dead, well)] == [True, True]
            assert [client.silent(line, alone=True) for line in (dead, well)] == [True, False]
            outages.failed(dead, REASON)
    client.close()


def test_calls_refused_for_long_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A call that brokers refuse for a while is logged after 5 s, then each 10 s, with its purpose."""
    refusals = Refusals("to create orders")
    for tenth in range(360):
        refusals.note(Unavailable("the controller answered NOT_CONTROLLER"), tenth / 10)
    assert len(lines(caplog)) == 4
    assert lines(caplog)[0] == "the client has failed to create orders for 5 s, and retries: the controller answered NOT_CONTROLLER"


@asynccontextmanager
async def frozen() -> AsyncIterator[int]:
    """A server that takes connections, reads, and never answers; the port that it has."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while await reader.read(4096):
                pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await server.wait_closed()


async def test_a_port_that_nobody_listens_on_is_told_of_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """The first attempt that fails has a WARNING with host, port and reason; the log says since when, also before it has started."""
    (port,) = free_ports(1)
    log = KafkaLog(f"127.0.0.1:{port}", options=KafkaOptions(api_timeout_ms=2_500))
    starting = asyncio.ensure_future(log.start())
    await until(lambda: lines(caplog))
    assert not starting.done()
    assert f"127.0.0.1:{port} cannot be reached" in lines(caplog)[0]
    assert f"127.0.0.1:{port}" in log.outages()[0].reason
    with pytest.raises(LogTimeout):
        await starting
    assert len(lines(caplog)) == 2
    await log.close()
    assert log.outages() == []


async def test_a_broker_that_never_answers_is_told_of_before_the_request_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """It takes connections, so nothing fails: the wait itself is told, in half of the request's time at most, and so is the figure."""
    async with frozen() as port:
        log = KafkaLog(f"127.0.0.1:{port}", options=KafkaOptions(request_timeout_ms=2_000, connect_timeout_ms=20_000, api_timeout_ms=60_000))
        starting = asyncio.ensure_future(log.start())
        await until(lambda: lines(caplog))
        assert f"broker at 127.0.0.1:{port} has not answered" in lines(caplog)[0]
        assert log.outages()[0].seconds >= 1
        starting.cancel()
        await asyncio.wait([starting])
        await log.close()


async def test_an_app_reports_its_wait_before_its_log_is_there(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Its one line is about the log, with host and port, and its figure says for how long that has not answered."""
    (port,) = free_ports(1)
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    serde = "ks_actors.serdes.STRING"
    config = StreamsConfig(
        application_id="away", bootstrap_servers=f"127.0.0.1:{port}", state_dir=tmp_path, default_key_serde=serde, default_value_serde=serde
    )
    app = App(builder.build(), config)
    starting = asyncio.ensure_future(app.start())
    await until(lambda: app.metrics()["log-unreachable-ms"] > 0)
    (wait,) = app.waiting()
    assert (wait.task, wait.reason) == (None, WaitReason.LOG)
    assert f"127.0.0.1:{port}" in wait.text
    assert f"127.0.0.1:{port}" in lines(caplog)[0]
    starting.cancel()
    await asyncio.wait([starting])


@pytest.mark.everyday
async def test_a_broker_that_freezes_under_a_running_app_is_told_of(own_broker: Broker, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Long before a request is given up there are a WARNING and a figure; when the broker goes on that is told, and the figure is 0."""
    caplog.set_level(logging.INFO, "ks_actors.log.kafka")
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    serde = "ks_actors.serdes.STRING"
    config = StreamsConfig(
        application_id="froze", bootstrap_servers=own_broker.bootstrap, state_dir=tmp_path, default_key_serde=serde, default_value_serde=serde
    )
    async with App(builder.build(), config, topics={"in": 2, "out": 1}) as app:
        assert app.metrics()["log-unreachable-ms"] == 0
        assert lines(caplog) == []
        own_broker.pause()
        try:
            await until(lambda: app.metrics()["log-unreachable-ms"] > 0)
        finally:
            own_broker.resume()
        assert "has not answered" in lines(caplog)[0]
        assert app.state is InstanceState.RUNNING
        assert app.metrics()["log-unreachable-ms"] < config.request_timeout_ms
        await until(lambda: any("answers again" in line for line in lines(caplog, logging.INFO)))
        await until(lambda: app.metrics()["log-unreachable-ms"] == 0)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
async def test_markers_of_transactions_are_no_waiting_records(
    kafka_broker: Broker, caplog: pytest.LogCaptureFixture, tmp_path: Path, guarantee: str
) -> None:
    """Markers behind the last record are offsets that no fetch brings records for: an app that has done all waits for records, and tells nothing."""
    builder = StreamsBuilder()
    strings = Consumed(serdes.STRING, serdes.STRING)
    counts = builder.stream(f"in-{guarantee}", strings).group_by(lambda _, value: value, Grouped(serdes.STRING, serdes.STRING)).count()
    counts.to_stream().to(f"out-{guarantee}", Produced(serdes.STRING, serdes.LONG))
    config = StreamsConfig(
        application_id=f"marked-{guarantee}", bootstrap_servers=kafka_broker.bootstrap, state_dir=tmp_path,
        processing_guarantee=guarantee, commit_interval_ms=100, stall_warning_ms=400,
    )  # fmt: skip
    async with App(builder.build(), config, topics={f"in-{guarantee}": 2, f"out-{guarantee}": 2}) as app:
        producer = await app.log.producer(client_id="test")
        await producer.send([Outgoing(TopicPartition(f"in-{guarantee}", 0), Batch([b"k"] * 50, [b"a", b"b"] * 25, [0] * 50))])
        await producer.close()
        await app.wait_until_caught_up()
        caplog.clear()  # until now records may have waited, on a slow machine
        assert app._instance is not None
        watch = app._instance.watch
        assert watch is not None
        asked = watch._ask_at
        # The log was asked several times how far it goes.
        await until(lambda: watch._ask_at > asked + 3 and not watch._asking)
        assert {wait.reason for wait in app.waiting()} == {WaitReason.RECORDS}
        assert app.metrics()["stalled-partitions"] == 0
    assert "has waited for" not in caplog.text
