"""The history of an app over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ks_actors import App, Processor, Record, Retry, StreamsBuilder, StreamsConfig, UncaughtResponse
from ks_actors.config import HandlerResponse
from ks_actors.dsl import Consumed, JoinWindows, Produced, StreamJoined
from ks_actors.log import Log, NewTopic, Outgoing, TopicPartition, open_log
from ks_actors.records import Batch
from ks_actors.serdes import STRING
from tests.ks_actors.web.helpers import AUTHORIZED, TOKEN, Visits, client_of, fresh_log, visit, visiting
from tests.waiting import until


class Site:
    """A running app with a client of its page."""

    def __init__(self, app: App, log: Log, client: httpx.AsyncClient) -> None:
        self.app = app
        self.log = log
        self.client = client

    async def get(self, path: str, headers: dict[str, str] | None = None, status: int = 200) -> Any:
        response = await self.client.get(f"/api/history/{path}", headers=headers or {})
        assert response.status_code == status, response.text
        return response.json()

    async def sample(self, seconds: Any, headers: dict[str, str] = AUTHORIZED, status: int = 200) -> Any:
        response = await self.client.post("/api/history/samples", json={"seconds": seconds}, headers=headers)
        assert response.status_code == status, response.text
        return response.json()

    async def visit(self, *pages: str) -> None:
        await visit(self.log, *pages)
        await self.app.wait_until_caught_up()


@asynccontextmanager
async def site(tmp_path: Path, *, token: str | None = TOKEN, **settings: Any) -> AsyncIterator[Site]:
    log = await fresh_log()
    async with visiting(log, tmp_path, Visits(), **settings) as app, client_of(app, token=token) as client:
        yield Site(app, log, client)
    await log.close()


async def test_equal_exceptions_are_counted_with_their_last_place_and_the_decision(tmp_path: Path) -> None:
    """A text of users' code is shown only for dead letters, which everybody may read: it may have values of records."""
    async with site(tmp_path) as here:
        assert await here.get("exceptions") == []
        await here.visit("bad 1", "/", "bad 2", "bad 3")
        (found,) = await here.get("exceptions")
        assert found.pop("first_ms") <= found.pop("last_ms")
        assert found == {
            "count": 3,
            "kind": "processing",
            "error": "ValueError",
            "text": "no page bad 3",
            "done": "dead-lettered",
            "node": "looks-up",
            "task": "0_0",
            "topic": "visits",
            "partition": 0,
            "offset": 3,
        }
        # A page that hides the letters hides their texts, too.
        async with client_of(here.app, dead_letter_topics=()) as client:
            assert [one["text"] for one in (await client.get("/api/history/exceptions")).json()] == [None]
            assert (await client.get("/api/dead-letters")).json()["letters"] == []
    async with site(tmp_path / "untold", processing_exception_handler=lambda *_: HandlerResponse.RESUME) as here:
        await here.visit("bad secret")
        assert [(one["done"], one["text"]) for one in await here.get("exceptions")] == [("skipped", None)]


async def test_an_error_that_ends_work_says_whether_it_was_retried_or_ended_the_app(tmp_path: Path) -> None:
    """A failed record fails its task; the handler of uncaught errors replaces the worker, or the app ends."""
    log, visits, answers = await fresh_log(), Visits(), [UncaughtResponse.REPLACE_WORKER, UncaughtResponse.SHUTDOWN_CLIENT]
    app = visiting(log, tmp_path, visits, processing_exception_handler="fail")
    app._uncaught = lambda _: answers.pop(0)
    await app.start()
    async with client_of(app) as client:
        await visit(log, "bad secret")
        await until(lambda: app.error is not None)
        found = (await client.get("/api/history/exceptions")).json()
        assert "secret" not in str(found)
        assert {(one["kind"], one["error"], one["done"], one["count"], one["offset"]) for one in found} == {
            ("processing", "ValueError", "failed", 2, 0),
            ("app", "ProcessingFailed (ValueError)", "retried", 1, 0),
            ("app", "ProcessingFailed (ValueError)", "app ended", 1, 0),
        }
    await log.close()


async def test_a_call_that_is_made_again_is_retried(tmp_path: Path) -> None:
    """The history has the failed attempts, without their texts, and the decision after the last one."""
    builder, calls = StreamsBuilder(), Visits()
    again = Retry(attempts=3, backoff_ms=1)
    builder.stream("visits", Consumed(STRING, STRING)).map_values(calls.look_up, name="tries", retry=again).to("seen", Produced(STRING, STRING))
    config = StreamsConfig.of({"application_id": "tries", "state_dir": str(tmp_path), "processing_exception_handler": "continue"})
    async with App(builder.build(), config, log="memory://", topics={"visits": 1, "seen": 1}) as app, client_of(app) as client:
        await visit(app.log, "bad")
        await app.wait_until_caught_up()
        found = (await client.get("/api/history/exceptions")).json()
        told = [(one["done"], one["count"], one["text"], one["node"], one["topic"], one["offset"]) for one in found]
        assert told == [("skipped", 1, None, "tries", "visits", 0), ("retried", 2, None, "tries", "visits", 0)]


async def test_a_commit_has_its_phases_its_records_and_its_bytes(tmp_path: Path) -> None:
    """The phases add up to its time, output and changelogs count, and the slowest is among those of the last hour."""
    for guarantee, writes in (("exactly_once_v2", "transaction"), ("at_least_once", "offsets")):
        async with site(tmp_path / guarantee, processing_guarantee=guarantee) as here:
            await here.visit(*["/"] * 100)
            found = await here.get("commits?limit=100")
            newest, commits = found["commits"][0], found["commits"]
            assert list(newest["phases"]) == ["drain", "pause", "freeze", "changelogs", "flush", writes, "stores"]
            assert all(sum(one["phases"].values()) == pytest.approx(one["took_ms"]) for one in commits)
            # The visits, and those counted by page.
            assert sum(one["processed"] for one in commits) == 200
            # Those that were seen, those by page, and rows of both stores.
            assert sum(one["records"] for one in commits) > 200
            assert sum(one["bytes"] for one in commits) > 200
            assert max(one["took_ms"] for one in commits) == found["slowest"][0]["took_ms"]
            assert {one["error"] for one in commits} == {None}


async def test_a_rebalance_has_its_cause_its_tasks_and_its_restores(tmp_path: Path) -> None:
    """The first instance starts, another joins and takes tasks, and leaves again: its tasks are restored."""
    async with site(tmp_path) as here:
        await here.visit(*["/"] * 100)
        (first,) = await here.get("rebalances")
        assert (first["causes"], first["gained"], first["lost"]) == (["this instance started"], ["0_0", "0_1", "1_0", "1_1"], [])
        assert 0 <= first["assigned_after_ms"] <= first["running_after_ms"]
        async with visiting(here.log, tmp_path, Visits(), "site-b") as other:
            await until(lambda: len(other.tasks()) == 2)
            moved = {str(task.task) for task in other.tasks()}
            await here.visit(*map(str, range(100)))
        await until(lambda: len(here.app.tasks()) == 4 and here.app.health().ready)
        found = await here.get("rebalances")
        assert "join: 1 member joined" in [cause for one in found for cause in one["causes"]]
        assert {task for one in found for task in one["lost"]} == moved
        newest = found[0]
        assert (newest["causes"], set(newest["gained"])) == (["leave: 1 member left"], moved)
        assert newest["running_after_ms"] >= newest["assigned_after_ms"]
        assert sum(one["restored_records"] for one in found) > 0
        assert sum(one["restored_bytes"] for one in found) > 0


class Passes(Processor[str, str, str, str]):
    """Forwards each record."""

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


async def looked_up(value: str) -> str:
    return value


def both_sides(*, one_by_one: bool = False) -> StreamsBuilder:
    """Join two streams, in batches; or with nodes of several parents, users' and asynchronous ones, record by record."""
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, Consumed(STRING, STRING)) for topic in ("left", "right"))
    joined = left.join(right, str.__add__, JoinWindows.of_time_difference_with_no_grace(60_000), StreamJoined(STRING, STRING, STRING))
    upper = joined.map_values(str.upper, name="upper")
    if one_by_one:
        upper = upper.filter(lambda *_: True).merge(upper.process(Passes)).map_values(looked_up)
    upper.to("joined", Produced(STRING, STRING))
    return builder


@asynccontextmanager
async def joining(tmp_path: Path, *, one_by_one: bool = False, **settings: Any) -> AsyncIterator[Site]:
    log = open_log("memory://")
    await log.start()
    await log.create_topics([NewTopic(topic, 1) for topic in ("left", "right", "joined")])
    config = StreamsConfig.of({"application_id": "joins", "state_dir": str(tmp_path), "commit_interval_ms": 50, **settings})
    async with App(both_sides(one_by_one=one_by_one), config, log=log) as app, client_of(app, token=TOKEN) as client:
        yield Site(app, log, client)
    await log.close()


async def write(log: Log, topic: str, *times: int) -> None:
    producer = await log.producer(client_id="writer")
    batch = Batch([b"k"] * len(times), [topic[:1].encode()] * len(times), list(times))
    await producer.send([Outgoing(TopicPartition(topic, 0), batch)])
    await producer.close()


async def test_the_stream_time_of_a_task_names_the_partition_that_holds_it_back(tmp_path: Path) -> None:
    """An empty partition that the others wait for does, with its state; nothing does once all is processed."""
    async with joining(tmp_path, max_task_idle_ms=3_600_000) as here:
        await write(here.log, "left", 1_000, 2_000)
        await write(here.log, "right", 1_500)
        await until(lambda: here.app.metrics()["process-total"] == 2)
        (found,) = await here.get("stream-time")
        assert (found["time"], found["held_by"], found["waits"]) == (1_500, "right-0", True)
        left, right = found["partitions"]
        assert (left["time"], left["next_time"], left["buffered"], left["state"]) == (1_000, 2_000, 1, "buffered")
        assert (right["time"], right["next_time"], right["buffered"], right["state"]) == (1_500, None, 0, "idle")
        await write(here.log, "right", 1_900, 2_100)
        await until(lambda: here.app.metrics()["process-total"] == 4)
        (found,) = await here.get("stream-time")
        assert (found["time"], found["held_by"]) == (2_000, "left-0")


@pytest.mark.parametrize("one_by_one", [False, True])
async def test_records_are_sampled_on_each_edge_for_a_while_by_callers_with_the_token_alone(tmp_path: Path, *, one_by_one: bool) -> None:
    """Off by default; on, each edge has a record a second, as the serdes read it; it ends by itself, and by order."""
    async with joining(tmp_path, one_by_one=one_by_one) as here:
        await here.get("samples", status=401)
        await here.sample(60, headers={}, status=401)
        assert (await here.client.get("/api/history/samples", headers={"authorization": "Bearer wrong"})).status_code == 401
        assert await here.get("samples", AUTHORIZED) == {"left_ms": 0, "edges": []}
        for wrong in (-1, 601, "all"):
            await here.sample(wrong, status=400)
        assert 0 < (await here.sample(60))["left_ms"] <= 60_000
        graph = (await here.client.get("/api/topology?format=graph")).json()
        sinks = {node["id"] for node in graph["nodes"] if node["kind"] == "sink"}
        flows = {(source, target) for source, target in graph["edges"] if not target.startswith("store:") and target not in sinks}
        found: dict[tuple[str, str], list[Any]] = {}
        begin = 1_000
        while found.keys() < flows:  # a task that begins meanwhile may see later records only
            await write(here.log, "left", *range(begin, begin + 100))
            await write(here.log, "right", *range(begin, begin + 100))
            await here.app.wait_until_caught_up()
            begin += 100
            found = {(one["from"], one["to"]): one["records"] for one in (await here.get("samples", AUTHORIZED))["edges"]}
        assert found.keys() == flows
        (joined,) = [records for (_, target), records in found.items() if target == "topic:joined"]
        assert [(one["key"], one["value"]) for one in joined] == [("'k'", "'LR'")] * len(joined)
        assert all(len(records) <= 5 for records in found.values())
        assert await here.sample(0) == {"left_ms": 0, "edges": []}
        await here.sample(1)
        await until(lambda: here.app._metrics.history.samples.left_ms == 0)


async def test_a_page_without_a_token_has_no_samples(tmp_path: Path) -> None:
    """Nobody can begin them, nor read them."""
    async with site(tmp_path, token=None) as here:
        await here.get("samples", AUTHORIZED, 401)
        assert (await here.client.post("/api/history/samples", json={"seconds": 5}, headers=AUTHORIZED)).status_code == 405
