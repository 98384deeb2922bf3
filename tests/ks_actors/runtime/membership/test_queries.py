"""Instances of one group that run different queries, and queries that share an instance."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from ks_actors import App, ConfigError, StreamsBuilder, TaskTimeout, TopologyError, UncaughtResponse, WaitReason, log_and_continue
from ks_actors.assignment import decode_list, encode_tasks
from ks_actors.dsl import Consumed, Grouped, Materialized, Produced
from ks_actors.log import MemberAssignment
from ks_actors.runtime.membership import GroupView
from ks_actors.runtime.watch._uncovered_queries import UncoveredQueries
from ks_actors.serdes import LONG, STRING
from ks_actors.testing import AppHarness, TestRecord
from ks_actors.topology import Topology
from ks_actors.web._view import health_view, task_view
from tests.ks_actors.runtime.helpers import ALOS, EOS, STRINGS, STRINGS_OUT, in_virtual_time

TOPICS = {"payments": 4, "alerts": 1, "clicks": 4, "pages": 1}


def shop(bomb: Any = lambda _: None) -> Topology:
    """Return query fraud, which calls `bomb`, and query stats, which counts by a new key."""
    builder = StreamsBuilder()
    with builder.query("fraud"):

        def check(value: str) -> Any:
            return bomb(value) or value

        builder.stream("payments", STRINGS).map_values(check).to("alerts", STRINGS_OUT)
    with builder.query("stats"):
        clicks = builder.stream("clicks", Consumed(STRING, STRING)).select_key(lambda _, page: page)
        clicks.group_by_key(Grouped(STRING, STRING)).count(Materialized("pages", STRING, LONG)).to_stream().to("pages", Produced(STRING, LONG))
    return builder.build()


def tasks(harness: AppHarness) -> set[int]:
    """Return the subtopologies of the instance's tasks."""
    return {each.task.subtopology for each in harness.app.tasks()}


@in_virtual_time
async def test_members_of_one_group_run_different_queries(guarantee: str) -> None:
    """Each part is processed by the instances that run its query, through crashes, whichever instance leads the group."""
    async with (
        AppHarness(shop(), topics=TOPICS, processing_guarantee=guarantee, queries="fraud") as fraud,
        fraud.another(queries="stats") as stats,
        fraud.another(queries=("stats", "fraud")) as both,
    ):
        sent = 0
        for crashed in (None, fraud, stats, both):
            if crashed is not None:
                await crashed.crash()
            for number in range(4):
                await fraud.produce("payments", f"k{number}", f"p{sent}", partition=number)
                await fraud.produce("clicks", f"k{number}", f"page{number}", partition=number)
            sent += 1
            if crashed is not None:
                await crashed.restart()
            for each in (fraud, stats, both):
                await each.caught_up()
            assert (tasks(fraud), tasks(stats)) == ({0}, {1, 2})
        alerts = [(record.key, record.value) for record in await fraud.read("alerts")]
        assert set(alerts) == {(f"k{number}", f"p{turn}") for number in range(4) for turn in range(sent)}
        counts = await fraud.read("pages")
        assert {record.key: record.value for record in counts} == {f"page{number}": sent for number in range(4)}


@in_virtual_time
async def test_a_query_that_fails_on_each_record_leaves_other_instances_alone(guarantee: str) -> None:
    """The instances of the other query process, commit and stay ready; no failure starts a rebalance, and the pauses grow."""
    failures = 0

    def bomb(_: str) -> None:
        nonlocal failures
        failures += 1
        raise ValueError("no payment is good")

    async with (
        AppHarness(
            shop(bomb), topics=TOPICS, processing_guarantee=guarantee, queries="fraud",
            uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER,
        ) as fraud,
        fraud.another(queries="stats") as stats,
    ):  # fmt: skip
        await fraud.produce("payments", "a", "1")
        generation = stats.app.metrics().find("generation")[0].value
        for turn in range(5):
            await stats.produce("clicks", "a", "home")
            await asyncio.sleep(10)
            assert [record.value for record in await stats.read("pages")][-1] == turn + 1
        assert stats.app.health().ready
        assert stats.app.metrics().find("generation")[0].value == generation
        assert 10 <= failures <= 20
        assert await fraud.read("alerts") == []


def by_query(harness: AppHarness) -> dict[str | None, set[WaitReason]]:
    """Return the reasons why tasks wait, by query."""
    found: dict[str | None, set[WaitReason]] = {}
    for task in harness.app.tasks():
        found.setdefault(task.query, set()).update(wait.reason for wait in task.waits)
    return found


@in_virtual_time
async def test_a_paused_query_stands_still_and_fetches_nothing_while_others_go_on(guarantee: str) -> None:
    """Through rebalances, in tasks that come later, too; health and waits name the query, and no warning comes."""
    options: dict[str, Any] = {"processing_guarantee": guarantee}
    async with AppHarness(shop(), topics=TOPICS, **options) as harness:
        async with harness.another():
            await harness.app.pause(query="fraud")
            for number in range(4):
                await harness.produce("clicks", "k", "home", partition=number)
        await asyncio.sleep(30)  # the tasks of the other instance have come
        for number in range(4):
            await harness.produce("payments", "k", "first", partition=number)
        await asyncio.sleep(1)
        for number in range(4):
            await harness.produce_all("payments", [TestRecord("k", "v" * 100, 0)] * 2_000, partition=number)
            await harness.produce("clicks", "k", "home", partition=number)
        await asyncio.sleep(60)
        app = harness.app
        assert [record.value for record in await harness.read("pages")][-1] == 8
        assert str(app.health()) == "not ready, RUNNING (paused: the query fraud is paused; App.resume(query='fraud') resumes it)"
        assert [problem.query for problem in health_view(app.health()).problems] == ["fraud"]
        assert {task_view(task, 0).query for task in app.tasks()} == {"fraud", "stats"}
        assert by_query(harness) == {"fraud": {WaitReason.PAUSED}, "stats": {WaitReason.RECORDS}}
        metrics = app.metrics()
        assert metrics["longest-wait-ms"] == 0
        assert metrics["active-buffer-count"] <= 2  # the first fetches of the tasks that came later
        lags = [each.lag for task in app.tasks() if task.query == "fraud" for each in task.progress]
        assert lags == [2_001] * 4
        with pytest.raises(TaskTimeout, match="the query fraud is paused: call resume"):
            await app.wait_until_caught_up(1_000)
        await app.resume(query="fraud")
        await harness.caught_up()
        assert app.health().ready
        assert len(await harness.read("alerts")) == 8_004


@pytest.mark.parametrize("fault", ["raises", "waits", "paused"])
@in_virtual_time
async def test_a_query_that_misbehaves_leaves_the_rate_of_another_in_its_instance_alone(guarantee: str, fault: str) -> None:
    """It raises on each record, which a handler skips, or waits for a minute in each call, or is paused: 95 % of the other's records come out."""

    def fail(_: str) -> str:
        raise ValueError("no payment is good")

    async def wait(value: str) -> str:
        await asyncio.sleep(60)
        return value

    builder, work = StreamsBuilder(), cast("Any", wait if fault == "waits" else fail)
    with builder.query("fraud"):
        builder.stream("payments", STRINGS).map_values(work).to("alerts", STRINGS_OUT)
    with builder.query("stats"):
        builder.stream("clicks", STRINGS).to("pages", STRINGS_OUT)
    async with AppHarness(
        builder.build(), topics=TOPICS, processing_guarantee=guarantee, commit_interval_ms=100,
        input_buffer_max_bytes=100_000, processing_exception_handler=log_and_continue,
    ) as harness:  # fmt: skip
        if fault == "paused":
            await harness.app.pause(query="fraud")
        sent = 0
        for turn in range(20):
            for partition in range(4):
                await harness.produce_all("payments", [TestRecord("k", "v" * 500, turn)] * 25, partition=partition)
                await harness.produce_all("clicks", [TestRecord("k", "v", turn)] * 10, partition=partition)
                sent += 10
            await asyncio.sleep(0.5)
        assert len(await harness.read("pages")) >= 0.95 * sent
        assert await harness.read("alerts") == []


@in_virtual_time
async def test_each_query_has_its_own_figures() -> None:
    """Records of closed tasks count on, and a topology without named queries has no figures by query."""
    async with AppHarness(shop(), topics=TOPICS, processing_guarantee=ALOS) as harness:

        def figures(name: str) -> dict[str, float]:
            found = harness.app.metrics().find(name, group="ks-actors-query-metrics")
            return {metric.tags["query"]: metric.value for metric in found}  # type: ignore[misc]

        # No end is known yet.
        assert str(figures("lag")) == "{'fraud': nan, 'stats': nan}"
        for number in range(4):
            await harness.produce("payments", "k", "v", partition=number)
        await harness.produce("clicks", "k", "home")
        await harness.caught_up()
        assert figures("process-total") == {"fraud": 4, "stats": 2}
        async with harness.another():
            await asyncio.sleep(30)
            assert len(harness.app.tasks()) < 12
            assert figures("process-total") == {"fraud": 4, "stats": 2}
        await harness.app.pause(query="stats")
        await harness.produce("clicks", "k", "home")
        await asyncio.sleep(60)
        assert figures("paused") == {"fraud": 0, "stats": 1}
        assert figures("lag") == {"fraud": 0, "stats": 1}
        assert figures("lag-seconds-max")["fraud"] == 0
    plain = StreamsBuilder()
    plain.stream("payments", STRINGS).to("alerts", STRINGS_OUT)
    async with AppHarness(plain.build(), topics=TOPICS) as harness:
        assert figures("process-total") == {}


@in_virtual_time
async def test_a_pause_of_the_app_is_one_of_all_its_queries() -> None:
    """One query can go on before the others, `resume` ends all pauses, and a query that is not here is refused."""
    async with AppHarness(shop(), topics=TOPICS, processing_guarantee=ALOS) as harness:
        app = harness.app
        await app.pause()
        await app.resume(query="stats")
        await asyncio.sleep(1)
        assert [problem.query for problem in app.health().problems] == ["fraud"]
        await harness.produce("payments", "k", "v")
        await harness.produce("clicks", "k", "home")
        await asyncio.sleep(60)
        assert (len(await harness.read("alerts")), len(await harness.read("pages"))) == (0, 1)
        await app.pause(query="stats")
        await asyncio.sleep(1)
        assert str(app.health()) == "not ready, RUNNING (paused: the app is paused; App.resume resumes it)"
        await app.resume()
        await harness.caught_up()
        assert app.health().ready
        assert len(await harness.read("alerts")) == 1
        for order in (app.pause, app.resume):
            with pytest.raises(TopologyError, match="no query 'fruad': choose among fraud, stats"):
                await order(query="fruad")


@in_virtual_time
async def test_an_instance_commits_at_the_least_interval_of_its_queries(guarantee: str) -> None:
    """A query without an interval has that of the config, and the interval of a query comes before the config's."""
    builder = StreamsBuilder()
    for query, interval in (("quick", 50), ("slow", 5_000), ("plain", None)):
        with builder.query(query, commit_interval_ms=interval):
            builder.stream(f"in-{query}", STRINGS).to("out", STRINGS_OUT)
    topics = {"in-quick": 1, "in-slow": 1, "in-plain": 1, "out": 1}
    options: dict[str, Any] = {"processing_guarantee": guarantee, "commit_interval_ms": 1_000}
    for queries, expected in (("quick", 50), ("slow", 5_000), ("plain", 1_000), (("slow", "plain"), 1_000), ((), 50)):
        async with AppHarness(builder.build(), topics=topics, queries=queries, **options) as harness:
            assert harness.app.config.commit_interval_ms == expected
            if queries == "slow":
                for number in range(20):
                    await harness.produce("in-slow", "k", f"{number}")
                    await asyncio.sleep(1)
                assert 3 <= harness.app.metrics()["commit-total"] <= 5


@in_virtual_time
async def test_an_interval_that_the_config_does_not_allow_is_refused() -> None:
    """The error names the query."""
    builder = StreamsBuilder()
    with builder.query("slow", commit_interval_ms=60_000):
        builder.stream("payments", STRINGS).to("alerts", STRINGS_OUT)
    with pytest.raises(ConfigError, match=r"query slow: a setting is wrong:\s+commit_interval_ms: 60000 is more than transaction_timeout_ms"):
        App(builder.build(), "shop", log="memory://", processing_guarantee=EOS)


@in_virtual_time
async def test_a_query_that_waits_does_not_use_up_the_buffers_of_another() -> None:
    """In one instance: a query without progress stops its own partitions, and the other goes on with its share."""
    gate = asyncio.Event()

    async def slow(value: str) -> str:
        await gate.wait()
        return value

    builder = StreamsBuilder()
    with builder.query("fraud"):
        builder.stream("payments", STRINGS).map_values(slow, max_in_flight=1).to("alerts", STRINGS_OUT)
    with builder.query("stats"):
        builder.stream("clicks", STRINGS).to("pages", STRINGS_OUT)
    async with AppHarness(
        builder.build(), topics=TOPICS, processing_guarantee=ALOS, input_buffer_max_bytes=20_000
    ) as harness:  # fmt: skip
        payments = [TestRecord(f"k{number}", "v" * 100, number) for number in range(400)]
        for partition in range(4):
            await harness.produce_all("payments", payments, partition=partition)
        await asyncio.sleep(5)
        for turn in range(5):
            await harness.produce_all("clicks", [TestRecord("k", f"{turn}", turn)] * 20, partition=turn % 4)
            await asyncio.sleep(2)
            assert len(await harness.read("pages")) == 20 * (turn + 1)
        gate.set()
        await harness.caught_up()
        assert len(await harness.read("alerts")) == 1_600


@in_virtual_time
async def test_a_query_that_no_member_runs_is_told_by_each_member(caplog: pytest.LogCaptureFixture) -> None:
    """Each member warns once and says so in its health, but is ready, until a member with that query joins."""
    text = "no member of the group has run the query stats for 10 s"
    async with AppHarness(shop(), topics=TOPICS, queries="fraud") as leader, leader.another(queries="fraud") as second:

        def told() -> list[tuple[str, bool, object]]:
            return [
                (str(each.app.health()), each.app.health().ready, each.app.metrics().find("uncovered-queries")[0].value)
                for each in (leader, second)
            ]  # fmt: skip

        assert told() == [("ready, RUNNING", True, 1)] * 2
        await asyncio.sleep(61)
        assert told() == [("ready, RUNNING (uncovered: no member of the group has run the query stats for 60 s)", True, 1)] * 2
        assert caplog.text.count(f"{text}: its records wait. Start an instance with queries='stats'") == 2
        async with leader.another(queries="stats"):
            await asyncio.sleep(5)
            assert told() == [("ready, RUNNING", True, 0)] * 2
        await asyncio.sleep(61)
        assert caplog.text.count(text) == 4


def test_uncovered_queries_are_not_known_under_an_earlier_leader_and_outside_of_the_group(caplog: pytest.LogCaptureFixture) -> None:
    """Then nothing is logged and nothing counts, least of all that a member runs the query again."""
    caplog.set_level("INFO")
    lacking = encode_tasks({}, uncovered=[1])
    earlier = MemberAssignment((), msgspec.msgpack.encode(msgspec.structs.replace(decode_list(lacking), version=3, uncovered=())))
    view, watch = GroupView("p", 1_000, left_out={1: "stats"}), UncoveredQueries(10)
    assert view.uncovered is None
    for lose in (lambda: view.tasks(earlier), view.forget):
        view.tasks(lacking)
        for now in (0, 10):
            watch.note(view.uncovered, now)
        assert watch.found(10) == {"stats": 10}
        caplog.clear()
        lose()
        watch.note(view.uncovered, 20)
        assert (view.uncovered, watch.found(20), caplog.messages) == (None, {}, [])
    view = GroupView("p", 1_000)
    view.tasks(earlier)
    assert view.uncovered == ()


@in_virtual_time
async def test_an_unknown_query_is_refused_before_anything_runs() -> None:
    """The error lists the queries of the topology."""
    with pytest.raises(TopologyError, match="no query 'fruad': choose among fraud, stats"):
        async with AppHarness(shop(), topics=TOPICS, queries="fruad"):
            pass
