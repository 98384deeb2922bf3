"""The cost of the page."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from ks_actors import App, HealthBounds, StreamsBuilder, StreamsConfig
from ks_actors.dsl import Consumed, Grouped, Materialized
from ks_actors.metrics.exporters import prometheus_text
from ks_actors.serdes import LONG, STRING
from ks_actors.web._answers import as_json
from ks_actors.web._graph import Layout
from ks_actors.web._sampler import Sampler


def calls(function: Callable[[], object]) -> int:
    """Return the number of calls that a function makes, in Python and in C: the same in each run."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


async def costs(tasks: int, state_dir: Path) -> tuple[int, int]:
    """Return the calls of a look at so many tasks with its JSON, and those of a scrape."""
    builder = StreamsBuilder()
    counted = builder.stream("in", Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
    counted.count(Materialized("counts", STRING, LONG))
    config = StreamsConfig(application_id="large", log="memory://", state_dir=state_dir, default_dsl_store="in_memory")
    async with App(builder.build(), config, topics={"in": tasks}) as app:
        sampler = Sampler(app, Layout(app), HealthBounds())
        assert len(sampler.look().tasks) == tasks
        prometheus_text(app)
        return calls(lambda: as_json(sampler.look())), calls(lambda: prometheus_text(app))


async def test_the_cost_of_a_look_and_of_a_scrape_grows_as_the_number_of_tasks_does(tmp_path: Path) -> None:
    """Four times the tasks make no more than four times the calls: `benchmarks/page.py` has the times."""
    few, many = await costs(15, tmp_path / "few"), await costs(60, tmp_path / "many")
    assert many[0] <= 4 * few[0]
    assert many[1] <= 4 * few[1]
