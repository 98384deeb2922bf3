"""The examples of streams do as they say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ks_actors.testing import AppHarness, run_app
from tests.examples.test_examples import EXAMPLES, client_of, load
from tests.waiting import PATIENCE_S, until


def output_of(name: str) -> str:
    """Run an example as its docstring says, with all warnings as errors; on a machine that is busy it may be told that the loop stood still."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)  # noqa: S603 - our own file, by our own interpreter
    assert done.returncode == 0, done.stderr
    assert "Exception ignored" not in done.stderr
    return done.stdout


def test_word_count_prints_the_most_frequent_words() -> None:
    """Its output is always the same: the most frequent words, equal ones by the alphabet."""
    expected = " 10 it\n 10 of\n 10 the\n 10 was\n  2 age\n  2 epoch\n  2 season\n  2 times\n"
    assert output_of("word_count") == expected


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("partitions", [1, 3])
async def test_word_count_counts_all_words(partitions: int, guarantee: str) -> None:
    """Each word is counted as often as it is there, over however many partitions the lines are spread."""
    module = load("word_count")
    expected = Counter(word for line in module.TEXT for word in module.words_of(line))
    assert await module.count_words(module.TEXT, partitions=partitions, guarantee=guarantee) == expected


def test_enrich_prints_its_savings() -> None:
    """All clicks come out, calls that failed were made again, and all of it took a fraction of the calls' time."""
    lines = output_of("enrich_async").splitlines()
    assert re.fullmatch(r"400 visits from 408 calls, 8 of them failed, at most \d+ at once", lines[0])
    found = re.fullmatch(r"([\d.]+) s; one after the other they would have taken 8\.2 s", lines[1])
    assert found is not None
    assert float(found[1]) < 8.2


@pytest.mark.parametrize("seed", [0, 1])
def test_enrich_keeps_the_order_of_each_visitor(seed: int) -> None:
    """Visits of one visitor come out in the order of the clicks, and no task has more calls at once than its limit."""
    module = load("enrich_async")
    service = module.Service(fails_each=7)

    async def enrich(harness: AppHarness) -> dict[Any, list[Any]]:
        for number in range(300):
            await harness.produce(module.CLICKS, f"visitor-{number % 60}", f"page-{number // 60}")
        await harness.caught_up()
        visits: dict[Any, list[Any]] = {}
        for record in await harness.read(module.VISITS):
            visits.setdefault(record.key, []).append(record.value)
        return visits

    visits = run_app(enrich, module.topology(service), seed=seed, topics={module.CLICKS: 1, module.VISITS: 1})
    for number in range(60):
        country = "NO" if number % 2 else "IT"
        assert visits[f"visitor-{number}"] == [module.Visit(f"page-{page}", country) for page in range(5)]
    assert service.most_at_once == module.AT_ONCE
    assert service.calls == 300 + service.failures
    assert service.failures > 0


async def sold(client: Any, customer: str, cents: int) -> None:
    response = await client.post("/orders", params={"customer": customer, "cents": cents})
    assert (response.status_code, response.json()["accepted"].startswith("orders-")) == (202, True)


async def seen(app: Any, customer: str, cents: int) -> None:
    """Turn the loop until the view has come so far."""
    await app.state.streams.wait_until_caught_up()
    await until(lambda: app.state.view.get(customer) == cents)


async def test_service_sums_orders() -> None:
    """Orders that were accepted are in the sum of their customer, and nobody knows of other customers."""
    app = load("fastapi_like_app").create_app()
    async with client_of(app) as client:
        for customer, cents in (("ann", 450), ("bob", 1200), ("ann", 3900)):
            await sold(client, customer, cents)
        await seen(app, "ann", 4350)
        await seen(app, "bob", 1200)
        assert (await client.get("/sales/ann")).json() == {"cents": 4350}
        assert (await client.get("/sales/bob")).json() == {"cents": 1200}
        assert (await client.get("/sales/eve")).status_code == 404


async def test_service_reports_its_health() -> None:
    """Health is the state of the app with its metrics; when the app has ended it is 503."""
    app = load("fastapi_like_app").create_app()
    async with client_of(app) as client:
        await sold(client, "ann", 450)
        await seen(app, "ann", 450)
        response = await client.get("/health")
        assert response.status_code == 200
        told = response.json()
        assert (told["state"], told["process-total"], told["active-tasks"], told["alive-workers"]) == ("RUNNING", 1, 4, 1)
        assert told["commit-total"] >= 1
        await app.state.streams.close()
        response = await client.get("/health")
        assert (response.status_code, response.json()["state"]) == (503, "NOT_RUNNING")


async def test_service_goes_on_with_its_earlier_state(tmp_path: Path) -> None:
    """On a log in a directory, orders and sums are there after a restart, and none is counted twice."""
    module = load("fastapi_like_app")
    for expected in (100, 200, 300):
        app = module.create_app(log_url=f"embedded://{tmp_path / 'log'}")
        async with client_of(app) as client:
            await sold(client, "ann", 100)
            await seen(app, "ann", expected)
