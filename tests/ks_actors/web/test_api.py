"""The HTTP API of an app."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from ks_actors import App, Batch, HealthBounds, InstanceState, LogTimeout, StreamsBuilder, StreamsConfig
from ks_actors.dsl import Consumed, Grouped, Materialized, SessionWindows
from ks_actors.log import Log, NewTopic, Outgoing, TopicPartition, open_log
from ks_actors.serdes import BYTES, LONG, STRING, Serde
from ks_actors.serdes import json as json_of
from ks_actors.system import MemberProcess
from ks_actors.topology import Topology
from ks_actors.web import _trends, create_app
from ks_actors.web._graph import Layout
from ks_actors.web._sampler import Sampler
from ks_actors.web._trends import Trends
from tests.ks_actors.web.helpers import AUTHORIZED, TOKEN, Visits, client_of, fresh_log, visit, visiting
from tests.waiting import until


class Site:
    """A running app with a client of its page."""

    def __init__(self, app: App, log: Log, visits: Visits, client: httpx.AsyncClient) -> None:
        self.app = app
        self.log = log
        self.visits = visits
        self.client = client

    async def get(self, path: str, status: int = 200) -> Any:
        response = await self.client.get(path)
        assert response.status_code == status, response.text
        return response.json()

    async def post(self, path: str, body: Any = None, status: int = 200, headers: dict[str, str] = AUTHORIZED) -> Any:
        response = await self.client.post(path, json=body, headers=headers)
        assert response.status_code == status, response.text
        return response.json() if response.headers["content-type"] == "application/json" else response.text

    async def visit(self, *pages: str) -> None:
        await visit(self.log, *pages)
        await self.app.wait_until_caught_up()


@asynccontextmanager
async def site(tmp_path: Path, *, token: str | None = TOKEN, **settings: Any) -> AsyncIterator[Site]:
    log, visits = await fresh_log(), Visits()
    async with visiting(log, tmp_path, visits, **settings) as app, client_of(app, token=token) as client:
        try:
            yield Site(app, log, visits, client)
        finally:
            visits.gate.set()
    await log.close()


async def test_health_and_readiness_have_a_status_and_reasons(tmp_path: Path) -> None:
    """200 when all is well; a paused app is live but not ready, 503; one that has ended is neither."""
    async with site(tmp_path) as here:
        assert (await here.get("/health"))["live"]
        assert await here.get("/ready") == {"state": "RUNNING", "live": True, "ready": True, "problems": []}
        await here.app.pause()
        await until(lambda: not here.app.health().ready)
        found = await here.get("/ready", 503)
        assert [(problem["reason"], problem["runbook"]) for problem in found["problems"]] == [("paused", "docs/runbooks/health.md#paused")]
        assert (await here.get("/health"))["live"]
        await here.app.close()
        assert not (await here.get("/health", 503))["live"]
        await here.get("/ready", 503)


async def test_the_bounds_of_readiness_are_the_callers(tmp_path: Path) -> None:
    """`bounds` of `create_app` hold for /ready and for the page."""
    log, visits = await fresh_log(), Visits()
    async with visiting(log, tmp_path, visits) as app, client_of(app, bounds=HealthBounds(max_lag=0)) as client:
        await app.pause()
        await visit(log, "/", "/about")
        await until(lambda: any(problem.reason.value == "lag" for problem in app.health(HealthBounds(max_lag=0)).problems))
        found = (await client.get("/ready")).json()
        assert "lag" in [problem["reason"] for problem in found["problems"]]
        await app.resume()
    await log.close()


async def test_metrics_come_in_the_format_of_prometheus(tmp_path: Path) -> None:
    """The values are those of the exporter."""
    async with site(tmp_path) as here:
        await here.visit("/", "/about")
        response = await here.client.get("/metrics")
        assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert response.text.splitlines()[0].startswith("# HELP ")
        assert 'client_id="site-a' in response.text


async def test_metrics_need_no_package_of_prometheus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is written without it."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    async with site(tmp_path) as here:
        assert "# TYPE " in (await here.client.get("/metrics")).text


async def test_the_topology_comes_in_four_forms(tmp_path: Path) -> None:
    """Text and JSON as `describe` gives them, Mermaid, and a graph with the topics' names in the log."""
    async with site(tmp_path) as here:
        described = here.app.topology.describe()
        assert (await here.client.get("/api/topology?format=text")).text == str(described)
        assert await here.get("/api/topology") == json.loads(described.to_json())
        assert (await here.client.get("/api/topology?format=mermaid")).text == described.mermaid()
        graph = await here.get("/api/topology?format=graph")
        topics = {node["name"] for node in graph["nodes"] if node["kind"] == "topic"}
        assert topics == {"visits", "seen", "site-by-page-repartition"}
        assert {node["name"] for node in graph["nodes"] if node["kind"] == "store"} == {"per-page", "per-minute"}
        ids = {node["id"] for node in graph["nodes"]}
        assert all(one in ids for edge in graph["edges"] for one in edge)
        assert "give json, text, mermaid or graph" in (await here.get("/api/topology?format=dot", 400))["error"]


async def test_tasks_members_and_lag_are_those_of_the_app(tmp_path: Path) -> None:
    """Tasks of this instance with their positions; members of the group with theirs; committed lag by partition."""
    async with site(tmp_path) as here:
        await here.visit("/", "/about")
        tasks = await here.get("/api/tasks")
        assert [(task["task"], task["state"], task["standby"]) for task in tasks] == [
            (name, "RUNNING", False) for name in ("0_0", "0_1", "1_0", "1_1")
        ]
        assert tasks[0]["partitions"][0] | {"end": 2} == {
            "partition": "visits-0",
            "topic": "visits",
            "position": 2,
            "buffered": 0,
            "end": 2,
            "lag": 0,
        }
        (member,) = await here.get("/api/members")
        assert (member["here"], member["tasks"]) == (True, ["0_0", "0_1", "1_0", "1_1"])
        assert member["client_id"].startswith("site-a")
        found = await here.get("/api/lag")
        assert found["lag"] == 0
        assert {one["topic"] for one in found["partitions"]} == {"visits", "site-by-page-repartition"}
        await here.app.pause()
        await visit(here.log, "/", "/", "/")
        found = await here.get("/api/lag")
        assert found["lag"] == 3
        assert [(one["committed"], one["end"], one["lag"]) for one in found["partitions"] if one["lag"]] == [(2, 5, 3)]
        await here.app.resume()


async def test_members_have_names_queries_and_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a member that runs another query, and of one whose tag tells its page; those of one supervisor lie beside each other."""
    builder = StreamsBuilder()
    for query in ("fraud", "stats"):
        with builder.query(query):
            builder.stream(query, Consumed(STRING, STRING)).to("out")
    channel, other = socket.socketpair()
    member = MemberProcess(2, 2, "", channel, tmp_path)
    for module in ("ks_actors.web._group", "ks_actors.assignment._info"):
        monkeypatch.setattr(f"{module}.current_member", lambda: member)
    log = open_log("memory://")
    await log.start()
    await log.create_topics([NewTopic(name, 1) for name in ("fraud", "stats", "out")])

    def instance(name: str, query: str, **tags: str) -> App:
        return App(
            builder.build(), StreamsConfig(application_id="shop", client_id=name, state_dir=tmp_path / name, queries=query, client_tags=tags), log=log
        )

    async with (
        instance("shop", "fraud") as first,
        instance("shop-2", "stats") as second,
        client_of(second) as client,
        instance("other", "fraud", page="http://10.0.0.5:8080/"),
        instance("bad", "fraud", page="javascript:1"),
    ):
        await until(lambda: {"1_0"} <= {str(one.task) for one in second.tasks()} and first.state is InstanceState.RUNNING)
        found = {one["name"]: one for one in (await client.get("/api/members")).json()}
    assert {name: one["page"] for name, one in found.items()} == {"shop": "../1/", "shop-2": "../2/", "other": "http://10.0.0.5:8080/", "bad": None}
    assert [name for name, one in found.items() if one["here"]] == ["shop-2"]
    assert (found["shop-2"]["tasks"], found["shop-2"]["queries"]) == (["1_0"], ["stats"])
    assert sorted((one["tasks"], one["queries"]) for one in found.values() if one["tasks"] != ["1_0"]) == [([], []), ([], []), (["0_0"], ["fraud"])]
    await log.close()
    channel.close()
    other.close()


async def test_stores_are_asked_by_keys_that_a_person_types(tmp_path: Path) -> None:
    """By one key, a range, or all; windows with their starts; never more rows than the limit."""
    async with site(tmp_path) as here:
        await here.visit("/", "/about", "/", "/shop")
        stores = await here.get("/api/stores")
        assert [(one["name"], one["kind"], one["queryable"]) for one in stores] == [
            ("per-minute", "timestamped_window", True),
            ("per-page", "timestamped_key_value", True),
        ]
        assert await here.get("/api/stores/per-page?key=/") == {"store": "per-page", "rows": [{"key": "/", "value": 2, "at": None}], "more": False}
        assert (await here.get("/api/stores/per-page?key=/nowhere"))["rows"] == []
        found = await here.get("/api/stores/per-page?from=/a&to=/b")
        assert [(row["key"], row["value"]) for row in found["rows"]] == [("/about", 1)]
        found = await here.get("/api/stores/per-page?limit=2")
        assert (len(found["rows"]), found["more"]) == (2, True)
        found = await here.get("/api/stores/per-minute?key=/")
        assert found["rows"] == [{"key": "/", "value": 2, "at": 0}]
        assert len((await here.get("/api/stores/per-minute"))["rows"]) == 3
        assert (await here.get("/api/stores/per-minute?time_from=60000"))["rows"] == []


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/api/stores/none", 404, "the topology has no store 'none'"),
        ("/api/stores/per-page?limit=0", 400, "limit is '0': give a whole number from 1 to 1000"),
        ("/api/stores/per-page?limit=x", 400, "limit is 'x'"),
        ("/api/stores/per-page?as=xml&key=1", 400, "parameter 'as' is 'xml': give auto, text, json, hex or base64"),
        ("/api/stores/per-page?as=json&key=[", 400, "the store's keys are not made of '[', read as json"),
        ("/api/stores/per-minute?time_from=yesterday", 400, "time_from is 'yesterday'"),
        ("/api/dead-letters?limit=1001", 400, "limit is '1001'"),
        (f"/api/dead-letters?limit={'1' * 5_000}", 400, "limit is '1111"),
        (f"/api/stores/per-minute?time_from={'1' * 5_000}", 400, "time_from is '1111"),
        (f"/api/stores/per-page?as=json&key={'[' * 50_000}", 400, "the store's keys are not made of '[[[["),
    ],
)
async def test_a_question_that_makes_no_sense_is_answered_with_the_reason(tmp_path: Path, path: str, status: int, text: str) -> None:
    """The status tells whose fault it is, and the text what to ask instead."""
    async with site(tmp_path) as here:
        assert text in (await here.get(path, status))["error"]


async def test_nothing_can_be_changed_without_the_token(tmp_path: Path) -> None:
    """401 for callers without it or with another one; and where the page has none, no such path."""
    async with site(tmp_path) as here:
        for path in ("/api/pause", "/api/resume", "/api/snapshots", "/api/dead-letters/redrive", "/api/dead-letters/redrive-group"):
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"authorization": f"Basic {TOKEN}"}):
                found = await here.post(path, None, 401, headers)
                assert "needs the token" in found["error"]
        assert here.app.health().ready
        assert (await here.get("/api"))["writable"]
    async with site(tmp_path / "other", token=None) as here:
        assert not (await here.get("/api"))["writable"]
        for path, status in (("/api/pause", 404), ("/api/resume", 404), ("/api/snapshots", 405), ("/api/dead-letters/redrive", 404)):
            await here.post(path, None, status)
        with pytest.raises(ValueError, match="token is empty"):
            create_app(here.app, token=" ")  # noqa: S106 - it is refused
        with pytest.raises(ValueError, match="characters that no header can have"):
            create_app(here.app, token="geheim\u20ac")  # noqa: S106 - likewise


async def test_a_line_end_behind_the_token_does_not_count(tmp_path: Path) -> None:
    """Files and variables often end with one, which no header can have."""
    async with site(tmp_path, token=f"{TOKEN}\n") as here:
        assert await here.post("/api/resume") == {"paused": False}


async def test_the_app_is_paused_and_resumed(tmp_path: Path) -> None:
    """The answer comes when the app has taken the order; a closed app refuses it."""
    async with site(tmp_path) as here:
        assert await here.post("/api/pause") == {"paused": True}
        await until(lambda: not here.app.health().ready)
        assert await here.post("/api/resume") == {"paused": False}
        await until(lambda: here.app.health().ready)
        assert await here.post("/api/pause?query=rest") == {"paused": True, "query": "rest"}
        assert await here.post("/api/resume?query=rest") == {"paused": False, "query": "rest"}
        assert "choose among rest" in (await here.post("/api/pause?query=fraud", None, 400))["error"]
        await here.app.close()
        assert "NOT_RUNNING" in (await here.post("/api/pause", None, 503))["error"]


async def test_snapshots_are_taken_and_listed(tmp_path: Path) -> None:
    """One that is taken is in the list; an app without a place takes none, and says so."""
    async with site(tmp_path) as here:
        assert await here.get("/api/snapshots") == {"uri": None, "snapshots": [], "refused": []}
        assert "set snapshot_uri" in (await here.post("/api/snapshots", None, 409))["error"]
    async with site(tmp_path / "other", snapshot_uri=f"file://{tmp_path}/snapshots") as here:
        await here.visit("/", "/about")
        taken = await here.post("/api/snapshots")
        assert (taken["tasks"], taken["rows"]) == (4, 4)
        assert (await here.get("/api/snapshots"))["snapshots"] == [taken]


async def test_callers_at_once_are_all_answered_with_the_snapshots(tmp_path: Path) -> None:
    """Each is answered by its own look, also when another one has begun since."""
    async with site(tmp_path, snapshot_uri=f"file://{tmp_path}/snapshots") as here:

        async def caller() -> None:
            for _ in range(20):
                assert (await here.get("/api/snapshots"))["snapshots"] == []

        await asyncio.gather(*(caller() for _ in range(20)))


async def test_a_place_of_snapshots_that_does_not_answer_takes_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The callers are told after a while, and those that ask again share the look that goes on; an error of the place is told, without its login."""
    uri, looks, gate = "file://ann:s3cret@host/snapshots", [], threading.Event()

    def find(given: str, _: str) -> tuple[list[Any], list[Any]]:
        looks.append(given)
        gate.wait()
        if len(looks) == 2:
            raise PermissionError("no credentials")
        return [], []

    monkeypatch.setattr("ks_actors.web._order_routes._LOOK_S", 0.05)
    monkeypatch.setattr("ks_actors.web._order_routes.find_snapshots", find)
    log = await fresh_log()
    app = visiting(log, tmp_path, Visits(), snapshot_uri=uri)
    async with client_of(app) as client:
        for _ in range(3):
            late = await client.get("/api/snapshots")
            assert (late.status_code, late.json()["error"]) == (504, "the place of snapshots did not answer within 0.05 s")
        assert looks == [uri]
        monkeypatch.setattr("ks_actors.web._order_routes._LOOK_S", 10)
        gate.set()
        assert (await client.get("/api/snapshots")).json()["uri"] == "file://***@host/snapshots"
        failed = await client.get("/api/snapshots")
        assert (failed.status_code, failed.json()["error"]) == (502, "the snapshots cannot be listed: no credentials")
    await log.close()


async def test_each_answer_has_the_headers_that_browsers_ask_for(tmp_path: Path) -> None:
    """No script but the page's own, no frame, no guessing of types; errors and files have them, too."""
    async with site(tmp_path) as here:
        for path in ("/", "/static/page.js", "/static/none.js", "/api/tasks", "/health", "/nowhere"):
            headers = (await here.client.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"


async def test_a_page_on_loopback_answers_no_foreign_name(tmp_path: Path) -> None:
    """A site whose name is made to point to 127.0.0.1 learns nothing."""
    log = await fresh_log()
    async with visiting(log, tmp_path, Visits()) as app, client_of(app, allowed_hosts=("127.0.0.1", "localhost")) as client:
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/health", headers={"host": "evil.example"})).status_code == 400
    await log.close()


async def test_it_can_be_mounted_under_a_prefix(tmp_path: Path) -> None:
    """In another application, with its own paths beside it; the page's links are relative."""
    log = await fresh_log()
    async with visiting(log, tmp_path, Visits()) as app:
        outer = Starlette(routes=[Mount("/ops", create_app(app))])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url="http://127.0.0.1") as client:
            assert (await client.get("/ops/ready")).json()["ready"]
            assert (await client.get("/ops")).headers["location"] == "http://127.0.0.1/ops/"
            page = (await client.get("/ops/")).text
            assert 'src="static/page.js"' in page
            assert (await client.get("/ops/static/page.js")).status_code == 200
            assert '="/' not in page
    await log.close()


async def test_the_view_has_rates_and_stuck_tasks(tmp_path: Path) -> None:
    """Rates are those between two looks; a task whose call does not return is stuck, with the node's reason."""
    async with site(tmp_path, stall_warning_ms=100) as here:
        here.visits.gate.clear()
        sampler = Sampler(here.app, Layout(here.app), HealthBounds())
        assert sampler.look().processed_rate is None
        await visit(here.log, "/", "stuck", "/")
        view = sampler.look()

        def stuck() -> bool:
            nonlocal view
            view = sampler.look()
            # For a moment it may wait for a commit as well, and on a slow machine others may wait.
            return [(task.task, "looks-up" in task.waits[0].text) for task in view.tasks if task.stuck] == [("0_0", True)]

        await until(stuck)
        (node,) = view.nodes
        assert (node.node, node.in_flight) == ("looks-up", 1)
        assert node.stuck is not None
        here.visits.gate.set()
        await here.app.wait_until_caught_up()
        assert not any(task.stuck for task in sampler.look().tasks)
        assert view.processed > 0


async def test_the_figures_of_five_minutes_are_kept_without_readers(tmp_path: Path) -> None:
    """Rate, lag, dropped records and latency by samples of two seconds, from the first request on until the app ends."""
    log = await fresh_log()
    async with visiting(log, tmp_path, Visits()) as app:
        trends = Trends(app, Layout(app))
        for second in range(0, 320, 2):
            if second == 318:
                await visit(log, "/", "bad")
                await app.wait_until_caught_up()
            trends.sample(second)
        found = trends.view()
        assert found.rate == (*[0.0] * 149, 1.5)  # with the record of the repartition topic
        assert found.dropped == (*[0.0] * 149, 0.5)
        assert (len(found.lag), found.lag[-1]) == (150, 0)
        assert found.latency[:-1] == (None,) * 149
        assert (found.latency[-1] or 0) > 1_000_000_000_000  # the records are of 1970
        made = create_app(app)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(made), base_url="http://127.0.0.1") as client:
            await client.get("/ready")
        await until(lambda: len(made.state.events.trends.view().lag) == 1)
    await log.close()


async def test_samples_that_fail_are_logged_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The first failure has its traceback in the log; those right after it add no lines."""
    tries: list[float] = []

    def fails(_: Trends, now: float) -> None:
        tries.append(now)
        raise ValueError("no figures")

    monkeypatch.setattr(Trends, "sample", fails)
    monkeypatch.setattr(_trends, "_EACH_S", 0.001)
    async with site(tmp_path) as here:
        await here.get("/ready")
        await until(lambda: len(tries) > 3)
    assert [record.exc_info is not None for record in caplog.records if "could not sample" in record.getMessage()] == [True]


async def test_events_stream_a_view_to_all_readers_from_one_look(tmp_path: Path) -> None:
    """The look goes on only while somebody reads, and readers get the same bytes."""
    async with site(tmp_path) as here:
        sampler = Sampler(here.app, Layout(here.app), HealthBounds())
        async with sampler.reader() as first:
            seen = json.loads(await first.get())
            assert seen["application_id"] == "site"
            async with sampler.reader() as second:
                one, other = await asyncio.gather(first.get(), second.get())
                assert one is other
                assert sampler.readers == 2
        assert sampler.readers == 0
        assert sampler._tasks == ()


async def test_a_log_that_does_not_describe_the_group_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lists of members and lag answer 502 with the reason; the page keeps those last known."""
    async with site(tmp_path) as here:

        async def late(_: App) -> Any:
            raise LogTimeout("the coordinator does not answer")

        monkeypatch.setattr(App, "members", late)
        assert "the coordinator does not answer" in (await here.get("/api/members", 502))["error"]
        assert "the coordinator does not answer" in (await here.get("/api/lag", 502))["error"]
        assert here.app.state is InstanceState.RUNNING


async def test_a_look_at_the_group_that_fails_is_told_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any error the page says why its members are old, until they are known again."""
    monkeypatch.setattr("ks_actors.web._sampler._GROUP_EACH_S", 0.01)
    async with site(tmp_path) as here:
        sampler = Sampler(here.app, Layout(here.app), HealthBounds())

        async def broken(_: App) -> Any:
            raise ZeroDivisionError

        async with sampler.reader():
            with monkeypatch.context() as patch:
                patch.setattr(App, "members", broken)
                await until(lambda: sampler.look().group.error == "could not look up the group: ZeroDivisionError()")
            await until(lambda: sampler.look().group.error is None and bool(sampler.look().group.members))


# --- the query box, by kinds of stores --------------------------------------------------------------------------------------------


HALF = '{"half": "\\ud800", "other": NaN}'
BIG = str(1 << 70)
LOOSE: Serde[Any] = Serde.of(lambda value: json.dumps(value).encode(), json.loads)


def stores_of_all_kinds() -> Topology:
    """Return a topology with sessions, versions, bytes, a global table and a store of the user's own."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed(LONG, STRING)).group_by_key(Grouped(LONG, STRING))
    grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(1_000)).count(Materialized("sessions", LONG, LONG, retention_ms=60_000))
    builder.table("rows", Consumed(json_of(), STRING), Materialized("versions", history_retention_ms=10_000))
    builder.global_table("strange", Consumed(STRING, LOOSE), Materialized("strange"))
    builder.global_table("everywhere", Consumed(BYTES, json_of()), Materialized("everywhere"))
    return builder.build()


@asynccontextmanager
async def asked(tmp_path: Path) -> AsyncIterator[Site]:
    log = open_log("memory://")
    await log.start()
    await log.create_topics([NewTopic(name, 1) for name in ("in", "rows", "everywhere", "strange")])
    producer = await log.producer(client_id="test")
    await producer.send(
        [
            Outgoing(TopicPartition("in", 0), Batch([LONG.serializer("")(7)] * 2, [b"a", b"b"], [100, 5_000])),
            Outgoing(TopicPartition("rows", 0), Batch([b'{"id":1}'] * 2, [b"old", b"new"], [100, 200])),
            Outgoing(TopicPartition("everywhere", 0), Batch([b"\xff\x00"], [b'{"text":"' + b"x" * 3_000 + b'"}'], [1])),
            Outgoing(TopicPartition("strange", 0), Batch([b"text", b"number"], [HALF.encode(), BIG.encode()], [1, 1])),
        ]
    )
    await producer.close()
    config = StreamsConfig(application_id="kinds", state_dir=tmp_path)
    async with App(stores_of_all_kinds(), config, log=log) as app, client_of(app) as client:
        await app.wait_until_caught_up()
        yield Site(app, log, Visits(), client)
    await log.close()


async def test_sessions_are_asked_by_key_and_by_time(tmp_path: Path) -> None:
    """Each has its start and end; a number is a key where the serde takes numbers."""
    async with asked(tmp_path) as here:
        found = await here.get("/api/stores/sessions?key=7")
        assert found["rows"] == [{"key": 7, "value": 1, "at": [100, 100]}, {"key": 7, "value": 1, "at": [5000, 5000]}]
        assert len((await here.get("/api/stores/sessions?from=0&to=9"))["rows"]) == 2
        assert [row["at"] for row in (await here.get("/api/stores/sessions?key=7&time_from=1000"))["rows"]] == [[5000, 5000]]


def fits(row: dict[str, Any], bounds: dict[str, Any]) -> bool:
    """Return whether a row of keys, windows or sessions is within the bounds."""
    at = row["at"]
    begin, end = at if isinstance(at, list) else (at, at)
    return (
        ("key" not in bounds or row["key"] == bounds["key"])
        and ("from" not in bounds or row["key"] >= bounds["from"])
        and ("to" not in bounds or row["key"] <= bounds["to"])
        and ("time_from" not in bounds or (end is not None and end >= bounds["time_from"]))
        and ("time_to" not in bounds or (begin is not None and begin <= bounds["time_to"]))
    )


NAMES = ("key", "from", "to", "time_from", "time_to")
OTHERS = [("stale", "true"), ("begin", "1"), ("limits", "1")]


async def test_a_bound_counts_or_is_refused(tmp_path: Path) -> None:
    """By each set of bounds, a store answers with the rows within all of them, or says which bounds it takes; so with misspelled ones."""
    async with site(tmp_path / "site") as one, asked(tmp_path / "asked") as other:
        await one.visit("/", "/about", "/", "/shop")
        texts: dict[str, Any] = {"key": "/", "from": "/a", "to": "/b", "time_from": 60_000, "time_to": 59_999}
        numbers: dict[str, Any] = {"key": 7, "from": 8, "to": 6, "time_from": 1_000, "time_to": 1_000}
        for here, store, values in ((one, "per-page", texts), (one, "per-minute", texts), (other, "sessions", numbers)):
            path = f"/api/stores/{store}"
            every = (await here.get(path))["rows"]
            refused = set()
            for names in chain.from_iterable(combinations(NAMES, count) for count in range(len(NAMES) + 1)):
                bounds = {name: values[name] for name in names}
                answer = await here.client.get(path, params=bounds)
                if answer.status_code == 400:
                    assert f"store {store} is asked by key" in answer.json()["error"]
                    refused.add(names)
                else:
                    assert answer.json()["rows"] == [row for row in every if fits(row, bounds)], names
            assert not {(), ("key",)} & refused
            assert ("key", "from") in refused
            for name, value in OTHERS:
                assert (await here.client.get(path, params={name: value})).status_code == (200 if name == "stale" else 400)


async def test_versions_are_asked_by_key_alone(tmp_path: Path) -> None:
    """Each has the time from which on it holds, and until when; without a key the answer says to give one."""
    async with asked(tmp_path) as here:
        found = await here.get('/api/stores/versions?as=json&key={"id":1}')
        assert sorted((row["value"], row["at"]) for row in found["rows"]) == [("new", [200, None]), ("old", [100, 200])]
        assert (await here.get('/api/stores/versions?as=json&key={"id":1}&limit=1'))["more"]
        assert "give a key" in (await here.get("/api/stores/versions", 400))["error"]


async def test_bytes_are_asked_in_hex_and_long_values_are_cut(tmp_path: Path) -> None:
    """A global table is whole on each instance; a value of more than 2,000 characters is cut, and says how long it is."""
    async with asked(tmp_path) as here:
        (row,) = (await here.get("/api/stores/everywhere?as=hex&key=ff00"))["rows"]
        assert row["value"].endswith("… (3012 characters)")
        assert len(row["value"]) < 2_100
        (about,) = [one for one in await here.get("/api/stores") if one["name"] == "everywhere"]
        assert about["everywhere"]
        assert (await here.get("/api/stores/everywhere?as=hex&key=00"))["rows"] == []


async def test_each_value_is_shown_as_valid_json(tmp_path: Path) -> None:
    """A lone surrogate is shown escaped, NaN as null, and an integer of more than 64 bits in full."""
    async with asked(tmp_path) as here:
        (row,) = (await here.get("/api/stores/strange?key=text"))["rows"]
        assert row["value"] == {"half": "\\ud800", "other": None}
        (row,) = (await here.get("/api/stores/strange?key=number"))["rows"]
        assert row["value"] == 1 << 70


async def test_rates_of_written_topics_and_the_age_of_records_are_in_the_view(tmp_path: Path) -> None:
    """Topics that are only written have no lag; those that are read have it in records, and in seconds while some wait."""
    async with site(tmp_path) as here:
        sampler = Sampler(here.app, Layout(here.app), HealthBounds())
        await here.visit("/", "/about")
        topics = {topic.topic: topic for topic in sampler.look().topics}
        assert topics["visits"].lag == 0
        assert "site-by-page-repartition" in topics
        await here.app.pause()
        await visit(here.log, "/")
        await until(lambda: any(topic.lag == 1 and (topic.lag_s or 0) > 1 for topic in sampler.look().topics))
        await here.app.resume()


def test_the_page_is_imported_by_those_alone_who_want_it() -> None:
    """`import ks_actors` needs neither Starlette nor uvicorn; without them `ks_actors.web` says what to install."""
    code = """
import sys
import ks_actors, ks_actors.letters
assert not {"starlette", "uvicorn", "ks_actors.web"} & sys.modules.keys()
sys.modules["starlette.applications"] = sys.modules["starlette"] = None
import ks_actors.web
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    assert done.returncode == 1
    assert "ks_actors.web needs starlette: pip install 'ks-actors[web]'" in done.stderr
