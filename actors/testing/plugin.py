"""The pytest plugin: the fixture `actor_kit`, `--actors-seed`, `--actors-runs`, and a replay command under each failure."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from actors.testing._kit import TestKit
from actors.testing._loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterable

SEED = "actors_seed"
LoopFactories: TypeAlias = "dict[str, Callable[[], asyncio.AbstractEventLoop]]"
_failed = pytest.StashKey[dict[str, list[int]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("actors")
    group.addoption("--actors-seed", metavar="N", default="0", help="first seed of the actors' schedule: a number, or 'random' (default: 0)")
    group.addoption(
        "--actors-runs", metavar="N", type=int, default=None, help="run each test that uses actor_kit with N seeds (default: its marker's, or 1)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker, and choose the first seed once for all tests."""
    config.addinivalue_line("markers", "actors(runs=N): run the test with N schedules of its actors, unless --actors-runs says otherwise")
    text = str(config.getoption("--actors-seed"))
    if text == "random":
        config.option.actors_seed = str(random.randrange(1 << 31))  # noqa: S311 - a seed, not a secret
    elif not text.isdecimal():
        raise pytest.UsageError(f"--actors-seed must be a number or 'random', is {text!r}")
    if (config.getoption("--actors-runs") or 1) < 1:
        raise pytest.UsageError("--actors-runs must be at least 1")
    config.stash[_failed] = {}


def pytest_report_header(config: pytest.Config) -> str:
    """Say which seed the tests begin with."""
    return f"actors: seed {config.option.actors_seed}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each seed."""
    if SEED not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("actors")
    runs = metafunc.config.getoption("--actors-runs") or (marker.kwargs.get("runs", 1) if marker else 1)
    first = int(metafunc.config.option.actors_seed)
    seeds = range(first, first + runs)
    ids: Iterable[Any] = [pytest.HIDDEN_PARAM] if runs == 1 else [f"seed={seed}" for seed in seeds]
    metafunc.parametrize(SEED, seeds, ids=ids, indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Print how to run a failed test again with its seed."""
    report = yield
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    if report.failed and SEED in params:
        seed = int(str(params[SEED]))
        name = item.nodeid.partition("[")[0]
        report.sections.append(("actors", f"seed {seed}; replay: pytest '{name}' --actors-seed={seed} --actors-runs=1"))
        seeds = item.config.stash[_failed].setdefault(name, [])
        if seed not in seeds:
            seeds.append(seed)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the seeds that failed."""
    failed = config.stash[_failed]
    if failed:
        terminalreporter.section("actors: failing seeds")
        for name, seeds in failed.items():
            terminalreporter.line(f"{name}: {', '.join(map(str, seeds))}")
            terminalreporter.line(f"  replay: pytest '{name}' --actors-seed={seeds[0]} --actors-runs=1")


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_asyncio_loop_factories(item: pytest.Item) -> Generator[None, LoopFactories | None, LoopFactories]:
    """Run tests that use the kit on a virtual loop, all others on the loops that the project has chosen."""
    chosen = yield
    if SEED in getattr(item, "fixturenames", ()):
        return {"virtual": VirtualLoop}
    return chosen or {"asyncio": asyncio.new_event_loop}


@pytest.fixture
def actors_seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of this run of the test; each test that asks for it is run once per seed."""
    return int(request.param)


try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:

    @pytest.fixture
    def actor_kit() -> TestKit:
        """Say what is missing."""
        raise pytest.UsageError("the fixture actor_kit needs pytest-asyncio; install ks-actors[testing]")
else:

    @async_fixture(name="actor_kit")
    async def kit_of_the_test(actors_seed: int) -> AsyncIterator[TestKit]:
        """Give the test a TestKit of its own, with the seed of this run."""
        async with TestKit(seed=actors_seed) as kit:
            yield kit
