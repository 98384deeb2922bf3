"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import pytest

RACE = """
    import pytest
    from actors import Actor, Spec

    class Say(Actor):
        def __init__(self, log):
            self.log = log

        def receive(self, message):
            self.log.append(message)

    @pytest.mark.asyncio
    async def test_race(actor_kit, actors_seed):
        assert actor_kit.seed == actors_seed
        log = []
        a, b = [await actor_kit.spawn(Spec(lambda: Say(log)), name) for name in "ab"]
        a.tell("a")
        b.tell("b")
        await actor_kit.quiesce()
        assert log == ["a", "b"]
"""


@pytest.fixture(autouse=True)
def settings(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "no:randomly", *options)


def test_a_failing_seed_is_printed_and_replays(pytester: pytest.Pytester) -> None:
    """The line that is printed is the command that fails again."""
    pytester.makepyfile(RACE)
    result = run(pytester, "--actors-runs=20")
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] + outcomes["passed"] == 20
    assert outcomes["failed"] > 2
    result.stdout.fnmatch_lines(["actors: seed 0", "*actors: failing seeds*", "*test_race: *"])
    line = next(line for line in result.outlines if "replay: pytest" in line)
    options = line.partition("replay: pytest ")[2].replace("'", "").split()
    again = run(pytester, *options)
    again.assert_outcomes(failed=1)


def test_a_test_is_run_once_by_default_under_its_own_name(pytester: pytest.Pytester) -> None:
    """Without options and markers the plugin is not in the way."""
    pytester.makepyfile(RACE.replace('assert log == ["a", "b"]', "assert sorted(log) == ['a', 'b']"))
    result = run(pytester, "-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*::test_race PASSED*"])


def test_a_marker_asks_for_several_runs_and_the_option_overrides_it(pytester: pytest.Pytester) -> None:
    """Tests that are about order carry the number of their schedules."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.asyncio
        @pytest.mark.actors(runs=5)
        async def test_it(actor_kit):
            await actor_kit.quiesce()
        """
    )
    run(pytester, "--strict-markers").assert_outcomes(passed=5)
    run(pytester, "--actors-runs=2", "--actors-seed=random").assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("option", "text"),
    [("--actors-seed=x", "must be a number or 'random'"), ("--actors-runs=-1", "must be at least 1"), ("--actors-runs=0", "must be at least 1")],
)
def test_an_impossible_option_is_refused(pytester: pytest.Pytester, option: str, text: str) -> None:
    """With a message that lists the possible values."""
    pytester.makepyfile(RACE)
    result = run(pytester, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{text}*"])


def test_other_tests_keep_their_loop(pytester: pytest.Pytester) -> None:
    """The plugin changes nothing for tests that do not use the kit, asynchronous or not."""
    pytester.makepyfile(
        """
        import asyncio
        import pytest
        from actors.testing import VirtualLoop

        @pytest.mark.asyncio
        async def test_other():
            assert not isinstance(asyncio.get_running_loop(), VirtualLoop)

        def test_plain():
            pass

        @pytest.mark.asyncio
        async def test_kit(actor_kit):
            assert isinstance(asyncio.get_running_loop(), VirtualLoop)

        def test_broken():
            assert False
        """
    )
    run(pytester).assert_outcomes(passed=3, failed=1)


def test_without_pytest_asyncio_the_fixture_names_the_package(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin itself loads, so that other tests run."""
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(
        without_it="""
        import sys
        sys.modules["pytest_asyncio"] = None
        """,
        test_it="""
        def test_other():
            pass

        def test_kit(actor_kit):
            pass
        """,
    )
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = pytester.runpytest_subprocess("-p", "without_it", "-p", "actors.testing.plugin")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*install ks-actors?testing?*"])


def test_a_seed_that_fails_twice_is_listed_once(pytester: pytest.Pytester) -> None:
    """A failure in the test and one at its end are one line."""
    pytester.makepyfile(
        """
        import pytest
        from actors import Actor, Spec

        class Broken(Actor):
            def receive(self, message):
                raise ValueError

        @pytest.mark.asyncio
        async def test_it(actor_kit):
            (await actor_kit.spawn(Spec(Broken), "a")).tell(1)
            await actor_kit.quiesce()
            assert False
        """
    )
    result = run(pytester, "--actors-seed=7")
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(["*::test_it: 7"])


@pytest.mark.parametrize("of_tests", ["function", "module", "session"])
@pytest.mark.parametrize("of_fixtures", ["function", "session"])
def test_the_kit_is_in_the_loop_of_its_test(pytester: pytest.Pytester, of_tests: str, of_fixtures: str) -> None:
    """So it is with all scopes of the loops of tests and of fixtures, by settings or by a marker."""
    pytester.makeini(f"[pytest]\nasyncio_default_fixture_loop_scope = {of_fixtures}\nasyncio_default_test_loop_scope = {of_tests}\n")
    sorted_race = RACE.replace('assert log == ["a", "b"]', "assert sorted(log) == ['a', 'b']")
    marked = """
    @pytest.mark.asyncio(loop_scope="class")
    class TestMarked:
        async def test_marked(self, actor_kit):
            await test_race(actor_kit, actor_kit.seed)
    """
    pytester.makepyfile(sorted_race + marked)
    run(pytester, "--actors-runs=2").assert_outcomes(passed=4)


@pytest.mark.parametrize("marker", ["20", "run=20", "runs=0", "runs='20'", "runs=True", "2, runs=20"])
def test_a_marker_that_says_anything_else_is_refused(pytester: pytest.Pytester, marker: str) -> None:
    """It would be one run, or none, without a word."""
    pytester.makepyfile(RACE.replace("@pytest.mark.asyncio", f"@pytest.mark.asyncio\n    @pytest.mark.actors({marker})"))
    result = run(pytester)
    assert result.ret != 0
    assert "is to be actors(runs=N), with a number of at least 1" in result.stdout.str() + result.stderr.str()
