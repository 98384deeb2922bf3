"""A log that does not answer: an app repeats each request for as long as `task_timeout_ms` says; then its handler decides."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest

from ks_actors import LogError, LogTimeout, TransactionAborted
from ks_actors.lifecycle._slow_log import LogRetries, NoAnswer, Outage, with_names
from ks_actors.log import IsolationLevel, NewMember, NewTopic, Outgoing, TopicPartition
from ks_actors.log._retrying_log import patient
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.log.embedded._faults import Operation
from ks_actors.records import Batch
from ks_actors.runtime import InstanceState, UncaughtResponse
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.log.helpers import by_turns
from tests.ks_actors.runtime.helpers import ALOS, EOS, Asked, Load, check_counts, counting, feed, in_app, in_virtual_time

if TYPE_CHECKING:
    from ks_actors.log import Log

TOPICS = {"in": 4, "out": 1}
OUTAGE_S = 240
TIMEOUT_S = 300
# The calls that a running app makes, and the words by which the error names each.
ASKED: dict[str, dict[Operation, str]] = {
    EOS: {
        "send": "to write records for", "commit": "to commit a transaction of", "abort": "to abort a transaction of", "fetch": "for records of in-",
        "committed": "for the committed offsets of in-", "begin_offsets": "for the first offsets of ",
        "end_offsets": "for the end offsets of app-counts-changelog-",
    },
    ALOS: {
        "send": "to write records for", "commit_offsets": "to commit offsets of in-", "fetch": "for records of in-",
        "committed": "for the committed offsets of in-", "begin_offsets": "for the first offsets of ",
        "end_offsets": "for the end offsets of app-counts-changelog-",
    },
}  # fmt: skip
RUNNING = [(guarantee, operation) for guarantee, operations in ASKED.items() for operation in operations]
STARTING: tuple[Operation, ...] = ("describe_topics", "create_topics", "producer", "transactional_producer", "join", "committed", "begin_offsets")


def hold(harness: AppHarness, operation: Operation) -> asyncio.Event:
    """Give no answers from now on, and have the app ask."""
    held = harness.log.hold(operation)
    if operation not in {"send", "commit", "commit_offsets", "fetch"}:
        harness.lose_membership()
    return held


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("guarantee", "operation"), RUNNING)
def test_an_app_goes_on_after_four_minutes_without_an_answer(guarantee: str, operation: Operation, seed: int) -> None:
    """Nobody is asked whether to, nothing is lost, and exactly once nothing is there twice."""
    random, asked = Random(seed), list[Exception]()

    def handler(error: Exception) -> UncaughtResponse:
        asked.append(error)
        return UncaughtResponse.SHUTDOWN_CLIENT

    async def test(harness: AppHarness) -> None:
        load = Load(harness, random)
        await load.send(random.randrange(40))
        await asyncio.sleep(random.choice([0, 0.01, 0.1, 1]))
        held = hold(harness, operation)
        await load.send(40)
        await harness.kit.clock.advance(OUTAGE_S)
        held.set()
        await load.send(20)
        await harness.caught_up(10_000)
        assert harness.app.state is InstanceState.RUNNING
        check_counts(await harness.read("out"), load.sent, guarantee)
        assert asked == []

    run_app(test, counting(), seed=seed, topics=TOPICS, processing_guarantee=guarantee, commit_interval_ms=100, uncaught_handler=handler)


@pytest.mark.parametrize(("guarantee", "operation"), RUNNING)
def test_calls_that_time_out_are_made_again(guarantee: str, operation: Operation) -> None:
    """For any request of an app, LogTimeout is no answer: it is repeated, and no handler gets the error."""
    asked = Asked(UncaughtResponse.SHUTDOWN_CLIENT)

    async def test(harness: AppHarness) -> None:
        load = Load(harness, Random(1))
        await load.send(40)
        harness.fail(operation, LogTimeout("no broker has answered within 60000 ms"), times=40)
        if operation in {"abort", "committed", "begin_offsets", "end_offsets"}:
            harness.lose_membership()
        await load.send(40)
        await load.check(guarantee)
        assert asked == []

    run_app(test, counting(), topics=TOPICS, processing_guarantee=guarantee, commit_interval_ms=100, uncaught_handler=asked)


@pytest.mark.parametrize("operation", STARTING)
def test_a_start_waits_for_an_answer(operation: Operation) -> None:
    """An app that is started while the log is away runs when that is back."""

    async def test(harness: AppHarness) -> None:
        held = harness.log.hold(operation)
        starting = asyncio.ensure_future(harness.start())
        await harness.kit.clock.advance(OUTAGE_S)
        assert not starting.done()
        held.set()
        await asyncio.wait_for(starting, 5)
        await feed(harness, "in", "k", "v")

    guarantee = ALOS if operation == "producer" else EOS
    run_app(test, counting(), topics=TOPICS, start=False, processing_guarantee=guarantee)


@pytest.mark.parametrize(("guarantee", "operation"), RUNNING)
@in_app(counting(), topics=TOPICS, commit_interval_ms=100)
async def test_after_task_timeout_ms_the_handler_is_asked(harness: AppHarness, guarantee: str, operation: Operation) -> None:
    """It gets the unanswered request, and for how long."""
    load = Load(harness, Random(1))
    await load.send(40)
    hold(harness, operation)
    await load.send(40)
    began = asyncio.get_running_loop().time()
    error = await harness.ended(2_000_000)
    took = asyncio.get_running_loop().time() - began
    assert isinstance(error, LogTimeout)
    assert ASKED[guarantee][operation] in str(error)
    assert "raise task_timeout_ms" in str(error)
    assert 0.8 * TIMEOUT_S <= took < 1.1 * TIMEOUT_S


# --- one call -----------------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_calls_that_cannot_be_repeated_are_made_once() -> None:
    """LogTimeout of such a call is for its caller, and a call without an end has one."""

    async def fail() -> None:
        calls.append(1)
        raise LogTimeout("nobody knows")

    calls: list[int] = []
    patience = LogRetries(30)
    with pytest.raises(LogTimeout, match="nobody knows"):
        await patience.ask_once("to write", fail)
    assert calls == [1]
    with pytest.raises(LogTimeout, match="within 30 s when it was asked to write a, b: it gave no answer at all"):
        await patience.ask_once("to write", asyncio.Event().wait, ("a", "b"))


@in_virtual_time
async def test_the_last_reason_is_told_and_each_attempt_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The error behind the last attempt says which call was made, and why that attempt failed; the log says so of each attempt."""

    async def fail() -> None:
        await asyncio.sleep(4)
        raise LogTimeout("broker 3 is away")

    with pytest.raises(LogTimeout, match="when it was asked for the end offsets of in-0: broker 3 is away"):
        await LogRetries(10).ask("for the end offsets of", fail, ["in-0"])
    assert "asked for the end offsets of in-0: broker 3 is away" in caplog.text


def test_many_names_are_counted() -> None:
    """An error about many partitions names the first five."""
    assert with_names("for", [f"t-{number}" for number in range(7)]) == "for t-0, t-1, t-2, t-3, t-4 and 2 more"


def test_an_outage_is_borne_from_the_first_failure_on() -> None:
    """Failures in a row are one outage, a success ends it, and other errors are none."""
    outage = Outage(300)
    late = LogTimeout("late")
    assert outage.bears(late, asked=0, now=60)
    assert not outage.bears(RuntimeError(), asked=60, now=61)
    assert outage.bears(late, asked=100, now=299)
    assert not outage.bears(late, asked=240, now=300)
    assert not outage.bears(NoAnswer("late"), asked=0, now=60)
    outage.over()
    assert outage.bears(late, asked=240, now=539)
    assert outage.too_long(539, 400, idle=True) is None
    assert outage.too_long(540, 400, idle=True) is late
    assert outage.too_long(1_000, 400, idle=True) is None
    outage.over()
    assert outage.bears(TransactionAborted("void"), asked=0, now=299)
    assert outage.too_long(500, 500, idle=True) is None
    assert not outage.bears(TransactionAborted("void"), asked=290, now=300)


@pytest.mark.parametrize("error", [LogTimeout("late"), TransactionAborted("void")])
def test_an_outage_is_over_when_the_log_answers_and_no_work_is_left(error: Exception) -> None:
    """Failures hours apart are two outages; with work to repeat in between they are one, however rare the retries are."""
    rare, ended = Outage(300), Outage(300)
    for outage in (rare, ended):
        assert outage.bears(error, asked=0, now=60)
    assert rare.too_long(7_000, 0, idle=False) is None
    assert not rare.bears(error, asked=7_200, now=7_201)
    # A broker that is away now, but was not when the work failed, is another outage.
    assert ended.too_long(7_000, 5, idle=True) is None
    assert ended.bears(error, asked=7_200, now=7_201)


def test_work_that_waits_to_be_fetched_again_is_no_end_of_an_outage() -> None:
    """With a short time limit the pause before the retry may be longer than the limit."""
    outage = Outage(2)
    assert outage.bears(TransactionAborted("void"), asked=0, now=1)
    assert outage.too_long(8, 0, idle=True) is None
    assert not outage.bears(TransactionAborted("void"), asked=9, now=10)


@in_virtual_time
async def test_all_of_a_log_is_passed_on() -> None:
    """A patient log also answers the calls that an app does not make by itself."""
    async with EmbeddedLog() as log:
        asked = patient(log, 1_000)
        await asked.start()
        await asked.create_topics([])
        where = TopicPartition("t", 0)
        await asked.create_topics([NewTopic("t", 1)])
        assert await asked.offsets_for_times({where: 5}) == {where: 0}
        assert await asked.end_offsets([where], IsolationLevel.READ_COMMITTED) == {where: 0}
        await asked.delete_topics(["t"])
        assert await asked.describe_topics() == {}
        await asked.close()


class OwnLog:
    """A log of a user's own, with the methods of `Log` alone."""

    def __init__(self, log: EmbeddedLog) -> None:
        for name in ("start", "close", "producer", "join", "create_topics", "delete_records", "begin_offsets"):
            setattr(self, name, getattr(log, name))


@in_virtual_time
async def test_a_log_of_a_users_own_has_defaults_for_the_rest() -> None:
    """It need not come from the base of this package's logs: it has no cluster, and groups are those of the last event."""
    async with EmbeddedLog() as log:
        asked = patient(cast("Log", OwnLog(log)), 1_000)
        assert (asked.cluster_id, asked.bytes_per_write) == ("", 0)
        asked.take_client_id("app-admin")
        await asked.check_new_topics([NewTopic("not a name", 1)])
        await asked.create_topics([NewTopic("t", 1)])
        where = TopicPartition("t", 0)
        producer = await asked.producer(client_id="p")
        await producer.send([Outgoing(where, Batch([b"k"], [b"v"], [5]))])
        await asked.delete_read({where: 1})
        assert await asked.begin_offsets([where]) == {where: 1}
        new = NewMember(client_id="m", topics=["t"], user_data=b"", assignor=by_turns, session_timeout_ms=1, rebalance_timeout_ms=1)
        member = await asked.join("g", new)
        await member.event()
        assert member.committing == member.group


@in_virtual_time
async def test_an_app_without_retries_makes_each_call_once() -> None:
    """With `task_timeout_ms` 0 a call has its own time, and is not repeated; a call that may wait by itself has that time besides."""

    async def slow(seconds: float, error: Exception | None = None) -> str:
        calls.append(seconds)
        await asyncio.sleep(seconds)
        if error is not None:
            raise error
        return "done"

    calls: list[float] = []
    none = LogRetries(0)
    assert await none.ask("for records", lambda: slow(20)) == "done"
    with pytest.raises(LogTimeout, match="within 30 s when it was asked for records: late"):
        await none.ask("for records", lambda: slow(30, LogTimeout("late")))
    assert calls == [20, 30]
    assert await LogRetries(10).ask("for records", lambda: slow(11), waits=5) == "done"


def test_an_abort_that_is_refused_for_long_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """A failed call is repeated each second, with ever fewer log lines; when it succeeds, the app continues."""

    async def test(harness: AppHarness) -> None:
        load = Load(harness, Random(1))
        await load.through(10)
        harness.fail("commit", ValueError("refused"))
        harness.fail("abort", LogError("the coordinator refuses"), 200)
        await load.send(10)
        await harness.kit.clock.advance(250)
        assert 5 <= caplog.text.count("could not abort a transaction") <= 12
        await load.check(EOS)

    settings: dict[str, Any] = {"processing_guarantee": EOS, "commit_interval_ms": 100}
    run_app(test, counting(), topics=TOPICS, uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER, **settings)
