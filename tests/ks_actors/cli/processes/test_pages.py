"""The page and the probes of all members, in front of real servers of apps that have not started."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from ks_actors import App, ConfigError
from ks_actors.cli.processes import ChildState, Options, Supervisor
from ks_actors.cli.processes._merged_metrics import merged
from ks_actors.cli.processes._pages import page_of, probes_of, serve_pages
from ks_actors.web import serve_member
from tests.ks_actors.runtime.helpers import echo

TOKEN = "a token of the page"  # noqa: S105 - a test's


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    """Three members: 1 and 2 run and have pages, 3 rests before its next start."""
    # The paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="ks-") as directory:
        made = Supervisor([], 3, Path(directory), "fraud=1,rest=2")
        async with AsyncExitStack() as stack:
            for child in made.children:
                child.starts = child.number
                child.state = ChildState.RESTING
                if child.number < 3:
                    child.state = ChildState.RUNNING
                    app = App(echo(), "shop", log="memory://", client_id=f"shop-{child.number}")
                    await stack.enter_async_context(serve_member(app, child.socket, token=TOKEN))
            yield made


def client(made: Starlette, host: str = "localhost") -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(made), base_url=f"http://{host}")


async def test_metrics_of_all_members_are_one_exposition(supervisor: Supervisor) -> None:
    """Those of members that answer, and the supervisor's own; each family has one head."""
    async with client(probes_of(supervisor)) as asking:
        text = (await asking.get("/metrics")).text
    heads = [line for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(heads) == len(set(heads))
    assert text.count('client_id="shop-1"') == text.count('client_id="shop-2"') > 0
    assert "ks_members 3\n" in text
    assert "ks_members_answering 2\n" in text
    assert 'ks_member_restarts_total{member="3"} 2\n' in text


def test_samples_of_a_family_stand_together() -> None:
    """As Prometheus' format asks; a family that one process alone has stays."""
    first = b'# HELP a An a.\n# TYPE a gauge\na{member="1"} 1\n# HELP b A b.\n# TYPE b counter\nb{member="1"} 2\n'
    second = b'# HELP a An a.\n# TYPE a gauge\na{member="2"} 3\n'
    expected = b'# HELP a An a.\n# TYPE a gauge\na{member="1"} 1\na{member="2"} 3\n# HELP b A b.\n# TYPE b counter\nb{member="1"} 2\n'
    assert merged([first, second]) == expected


async def test_a_member_that_starts_again_is_live_and_not_ready(supervisor: Supervisor) -> None:
    """An orchestrator must not restart all of them for it; the apps here have not started, so they are live alone."""
    async with client(probes_of(supervisor)) as asking:
        health, ready = await asking.get("/health"), await asking.get("/ready")
    assert health.status_code == 200
    assert ready.status_code == 503
    assert [(view["member"], view["live"], view["ready"]) for view in ready.json()["members"]][2] == (3, True, False)
    assert ready.json()["members"][0]["health"]["problems"]


async def test_a_member_that_does_not_answer_is_not_live(supervisor: Supervisor) -> None:
    """It says that it runs, and its server is gone."""
    supervisor.children[0].socket.unlink()
    async with client(probes_of(supervisor)) as asking:
        answer = await asking.get("/health")
    assert answer.status_code == 503
    assert [view["live"] for view in answer.json()["members"]] == [False, True, True]


async def test_each_member_has_its_page(supervisor: Supervisor) -> None:
    """With path, query, and all answers of its API; orders need the token, as the member itself says."""
    async with client(page_of(supervisor)) as asking:
        assert (await asking.get("/members/2/api")).json()["client_id"] == "shop-2"
        assert (await asking.get("/members/1/api/topology", params={"format": "mermaid"})).text.startswith("flowchart")
        page = await asking.get("/members/1/")
        assert page.headers["content-type"].startswith("text/html")
        assert page.headers["content-security-policy"]
        assert (await asking.get("/members/1")).headers["location"] == "1/"
        assert (await asking.post("/members/1/api/pause")).status_code == 401
        answer = await asking.post("/members/1/api/pause", headers={"authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 503
        assert (await asking.get("/members/9/api")).status_code == 404
        assert "it is RESTING" in (await asking.get("/members/3/api")).json()["error"]


async def test_the_list_names_all_members(supervisor: Supervisor) -> None:
    """With state, restarts, and the last error, whose text may come from a record."""
    supervisor.children[2].error = "<b>wrong</b>"
    async with client(page_of(supervisor)) as asking:
        page = (await asking.get("/")).text
        found = (await asking.get("/api/processes")).json()
        assert (await asking.get("/static/page.css")).status_code == 200
    assert "&lt;b&gt;wrong" in page
    assert [each["query"] for each in found] == ["fraud", "rest", "rest"]
    assert [(each["member"], each["state"], each["restarts"]) for each in found] == [(1, "RUNNING", 0), (2, "RUNNING", 1), (3, "RESTING", 2)]


async def test_the_page_is_for_loopback_names_alone(supervisor: Supervisor) -> None:
    """A foreign page may send others (DNS rebinding); the probes are for all."""
    async with client(page_of(supervisor), "evil.example") as asking:
        assert (await asking.get("/")).status_code == 400
    async with client(probes_of(supervisor), "evil.example") as asking:
        assert (await asking.get("/health")).status_code == 200


async def test_pages_are_served_at_the_given_addresses(supervisor: Supervisor) -> None:
    """An address that is taken is an error before any member starts."""
    told: list[str] = []
    async with AsyncExitStack() as stack:
        await serve_pages(stack, supervisor, Options(3, page=0, probes=("127.0.0.1", 0)), told.append)
        urls = [text.rpartition(" ")[2] for text in told]
        async with httpx.AsyncClient() as asking:
            assert [(await asking.get(f"{url}health")).status_code for url in urls] == [200, 200]
        port = int(urls[0].rstrip("/").rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} cannot be served"):
            await serve_pages(stack, supervisor, Options(3, page=port), told.append)
