"""The fixtures of the pytest plugin, in a pytest of its own."""

from __future__ import annotations

import pytest

TOPOLOGY = """
    import pytest
    from ks_actors import Consumed, Produced, StreamsBuilder
    from ks_actors.serdes import LONG, STRING

    BUILDER = StreamsBuilder()
    BUILDER.stream("in", Consumed(STRING, STRING)).group_by_key().count("counts").to_stream().to("out", Produced(STRING, LONG))
    opened = []
"""
DRIVER = (
    TOPOLOGY
    + """
    def test_counts(topology_driver):
        first, second = topology_driver(BUILDER), topology_driver(BUILDER.build(), "app", initial_wall_clock_ms=5)
        opened.extend([first, second])
        for driver in opened:
            driver.create_input_topic("in", STRING, STRING).pipe_input("a", "x")
            assert driver.get_key_value_store("counts").get("a") == 1
        assert second.wall_clock_ms == 5

    def test_closed():
        assert len(opened) == 2 and all(driver._closed for driver in opened)
"""
)
HARNESS = (
    TOPOLOGY
    + """
    from ks_actors import InstanceState

    @pytest.mark.asyncio
    async def test_counts(app_harness, actors_seed):
        harness = await app_harness(BUILDER, "shop", topics={"in": 1, "out": 1}, commit_interval_ms=100)
        opened.append(harness.app)
        await harness.produce("in", "a", "x")
        await harness.caught_up()
        assert [record.value for record in await harness.read("out")] == [1]
        assert harness.config.application_id == "shop"
        assert harness.kit.seed == actors_seed

    def test_closed():
        assert {app.state for app in opened} == {InstanceState.NOT_RUNNING}
"""
)
FAILING = (
    TOPOLOGY
    + """
    from ks_actors import Grouped

    @pytest.mark.asyncio
    async def test_fails(app_harness):
        harness = await app_harness(BUILDER, topics={"in": 1, "out": 1})
        await harness.produce("in", "a", b"\\xff")
        await harness.turns(500)
"""
)


@pytest.fixture(autouse=True)
def settings(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")


def run(pytester: pytest.Pytester, pytestconfig: pytest.Config, *options: str) -> pytest.RunResult:
    # An environment that was installed before has no entry point for the plugin.
    plugin = () if pytestconfig.pluginmanager.has_plugin("ks_actors") else ("-p", "ks_actors._pytest_plugin")
    return pytester.runpytest_inprocess("-p", "no:randomly", *plugin, *options)


def test_drivers_are_closed_after_their_test(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> None:
    """A test opens as many as it needs, with the arguments of TopologyTestDriver."""
    pytester.makepyfile(DRIVER)
    run(pytester, pytestconfig).assert_outcomes(passed=2)


def test_harnesses_are_closed_after_their_test(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> None:
    """The test is in virtual time, and a run has the seed of --actors-seed."""
    pytester.makepyfile(HARNESS)
    run(pytester, pytestconfig, "--actors-runs=3").assert_outcomes(passed=4)


@pytest.mark.parametrize("scope", ["class", "module", "session"])
def test_a_harness_is_in_the_loop_of_its_test(pytester: pytest.Pytester, pytestconfig: pytest.Config, scope: str) -> None:
    """In all scopes of loops."""
    pytester.makepyfile(HARNESS.replace("mark.asyncio", f"mark.asyncio(loop_scope='{scope}')"))
    run(pytester, pytestconfig).assert_outcomes(passed=2)


def test_the_error_that_ends_an_app_is_an_error_of_its_test(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> None:
    """It is raised when the harness closes."""
    pytester.makepyfile(FAILING)
    result = run(pytester, pytestconfig)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*DeserializationFailed*"])
