"""The number of a store's commits, and their duration."""

from __future__ import annotations

import asyncio

from ks_actors.state.task_stores._commit_times import CommitTimes
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import counting, feed, in_app


def test_figures_are_those_of_the_last_30_seconds() -> None:
    """The rate per second, the latency in ms; older commits do not count any more."""
    now = 100.0
    times = CommitTimes(lambda: now)
    for end, began in ((100.0, 99.0), (120.0, 119.998), (129.0, 128.996)):
        now = end
        times.note("s", began)
    times.add("s", 0.004)
    figures = times.figures()["s"]
    assert figures["commit-rate"] == 3 / 30
    assert round(figures["commit-latency-max"], 6) == 1000
    now = 131.0
    figures = {name: round(value, 6) for name, value in times.figures()["s"].items()}
    assert figures == {"commit-rate": round(2 / 30, 6), "commit-latency-avg": 5, "commit-latency-max": 8}
    now = 200.0
    assert times.figures()["s"] == {"commit-rate": 0, "commit-latency-avg": 0, "commit-latency-max": 0}


@in_app(counting(), topics={"in": 1, "out": 1})
async def test_an_app_tells_them_by_task_and_store(harness: AppHarness) -> None:
    """In `App.task_metrics`, as soon as something was committed."""
    for _ in range(3):
        await feed(harness, "in", "k", "v")
        await harness.app.commit()
        await asyncio.sleep(0)
    (figures,) = (await harness.app.task_metrics()).values()
    assert figures.commits["counts"]["commit-rate"] >= 3 / 30
    assert 0 < figures.commits["counts"]["commit-latency-avg"] <= figures.commits["counts"]["commit-latency-max"]
