"""The programs that docs/compared.md shows beside each other."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.compared import CASES, PEERS, TOOLS, lines_of, run, source
from ks_actors import App
from ks_actors.testing import AsyncTopologyTestDriver
from tests.examples.test_examples import load
from tests.kafka.broker import NEWEST, require_kafka

PAGE = (Path(__file__).parents[2] / "docs" / "compared.md").read_text(encoding="utf-8")


def lines_by_tool(program: str) -> dict[str, int]:
    return {tool: lines_of(path) for tool in TOOLS if (path := source(program, tool)) is not None}


def answer(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json=0.9 if request.url.path == "/score/bad" else 0.1)


@pytest.mark.parametrize("program", [name for name, case in CASES.items() if case.steps])
async def test_our_programs_give_the_results_that_all_have_to_give(program: str) -> None:
    """From the input that each tool gets, ours computes the same results."""
    case = CASES[program]
    module: Any = load(f"compared/{program}/with_ks_actors")
    if program == "fraud":
        module.scorer = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    async with AsyncTopologyTestDriver(module.builder) as driver:
        for sent in chain.from_iterable(case.steps):
            await driver.create_input_topic(sent.topic).pipe_input(sent.key, sent.value, sent.timestamp_ms)
        assert driver.create_output_topic(case.topics[-1]).read_key_values_to_map() == case.expected
    if program == "fraud":
        await module.scorer.aclose()


async def test_our_page_counter_counts_behind_http(tmp_path: Path) -> None:
    """Visits by HTTP are counted for each page, and a page without visits has none."""
    module: Any = load("compared/page_counter/with_ks_actors")
    module.streams = App(module.builder, "page-counter", log="memory://", topics={"visits": 2}, state_dir=str(tmp_path))
    transport = httpx.ASGITransport(module.api)
    async with module.streams.lifespan(), httpx.AsyncClient(transport=transport, base_url="http://test") as client:

        async def counts() -> dict[str, Any]:
            return {page: (await client.get(f"/count/{page}")).json()["count"] for page in "abc"}

        for page in "aba":
            assert (await client.post(f"/visit/{page}")).status_code == 200
        await module.streams.wait_until_caught_up()
        assert await counts() == CASES["page_counter"].expected | {"c": 0}


@pytest.mark.parametrize("program", CASES)
def test_no_program_is_shorter_than_ours(program: str) -> None:
    """In each program ours has the fewest lines, or as few as the shortest."""
    lines = lines_by_tool(program)
    assert lines["ks_actors"] == min(lines.values())


def test_the_page_has_the_lines_of_the_files() -> None:
    """The table of lines says of each program and tool what the files have, and of a program that a tool cannot do, nothing."""
    rows = {cells[0]: cells[1:] for row in re.findall(r"^\| (.+?) \|$", PAGE, re.MULTILINE) if len(cells := row.split(" | ")) == 6}
    assert rows["lines"] == list(TOOLS.values())
    for program in CASES:
        lines = lines_by_tool(program)
        assert rows[program.replace("_", " ")] == [str(lines.get(tool, "\N{EN DASH}")) for tool in TOOLS]


def test_the_page_shows_each_program() -> None:
    """Each file of a program is on the page, and no other file."""
    shown = re.findall(r'--8<-- "(examples/compared/[^"]+)"', PAGE)
    files = [path for program in CASES for tool in TOOLS if (path := source(program, tool)) is not None]
    assert shown == [path.relative_to(Path(__file__).parents[2]).as_posix() for path in files]


def test_the_page_names_the_versions_that_ran() -> None:
    """The versions of the page are those that the programs are run with."""
    versions = dict(peer.split("==") for peer in PEERS)
    named = {"Faust": versions["faust-streaming"], "Quix Streams": versions["quixstreams"], "FastStream": versions["faststream[kafka]"]}
    for tool, version in (named | {"Kafka Streams": NEWEST}).items():
        assert f"{tool} {version}" in PAGE


@pytest.mark.extended
@pytest.mark.parametrize("program", ["word_count", "page_counter"])
def test_our_programs_run_on_kafka(program: str) -> None:
    """As the page shows it, a program runs on a real Kafka at the usual port, and its results are right."""
    require_kafka()
    path = source(program, "ks_actors")
    assert path is not None
    right, _ = run(path, "ks_actors")
    assert right
