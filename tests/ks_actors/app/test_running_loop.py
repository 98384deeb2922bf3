"""Where an event loop runs already, as in a notebook, nothing makes another one, and errors name the other way."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from ks_actors import App, StreamsConfig
from ks_actors.dsl import Consumed, Produced, StreamsBuilder
from ks_actors.runtime import InstanceState
from ks_actors.serdes import STRING
from ks_actors.testing import AppHarness, TopologyTestDriver, explore_app, run_app
from ks_actors.topology import Topology

# A coroutine that is made, and not awaited, is a warning.
pytestmark = pytest.mark.filterwarnings("error")


async def shout(value: str) -> str:
    return value.upper()


def topology(*, asynchronous: bool) -> Topology:
    builder = StreamsBuilder()
    lines = builder.stream("in", Consumed(STRING, STRING))
    (lines.map_values(shout) if asynchronous else lines.map_values(str.upper)).to("out", Produced(STRING, STRING))
    return builder.build()


async def test_main_names_run(tmp_path: Path) -> None:
    """It has no effect: not on the garbage collector, not on the app, which can be run."""
    app = App(topology(asynchronous=False), StreamsConfig(application_id="app", state_dir=tmp_path, log="memory://"))
    threshold, frozen = gc.get_threshold(), gc.get_freeze_count()
    with pytest.raises(RuntimeError, match=r"^App.main makes an event loop of its own, but one runs here already.*: await app.run\(\) instead$"):
        app.main()
    assert gc.get_threshold() == threshold
    # Objects that others have frozen may end meanwhile.
    assert gc.get_freeze_count() <= frozen
    assert app.state is InstanceState.CREATED


@pytest.mark.parametrize("name", ["run_app", "explore_app"])
async def test_runs_of_app_tests_name_the_harness(name: str) -> None:
    """The test is not called; a run of many seeds does not take the error for a failing seed."""

    async def test(_harness: AppHarness) -> None:
        raise AssertionError("called")

    with pytest.raises(
        RuntimeError, match=rf"^{name} makes an event loop of its own.*: use `async with AppHarness\(topology\)`, or call it from a plain function$"
    ):
        if name == "run_app":
            run_app(test, topology(asynchronous=False))
        else:
            explore_app(test, topology(asynchronous=False))


async def test_the_driver_names_the_other_one() -> None:
    """Only asynchronous processors need a loop: others are driven where one runs, too."""
    with pytest.raises(RuntimeError, match=r"^TopologyTestDriver, with asynchronous processors, makes an event loop.*: use AsyncTopologyTestDriver$"):
        TopologyTestDriver(topology(asynchronous=True)).__enter__()
    with TopologyTestDriver(topology(asynchronous=False)) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("a", "x")
        assert driver.create_output_topic("out", STRING, STRING).read_value() == "X"
