"""The pytest plugin: fixture `actor_kit`, options `--actors-seed` and `--actors-runs`.

It prints a replay command under each failure.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import pytest

from actors.testing._kit import TestKit
from actors.testing._loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping

SEED = "actors_seed"
LoopFactories: TypeAlias = "dict[str, Callable[[], asyncio.AbstractEventLoop]]"
LoopScope: TypeAlias = Literal["function", "class", "module", "package", "session"]
_failed = pytest.StashKey[dict[str, list[int]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("actors")
    group.addoption(
        "--actors-seed",
        metavar="N",
        default="0",
        help="first seed of the actors' schedule: a number, or 'random' (default: 0)",
    )
    group.addoption(
        "--actors-runs",
        metavar="N",
        type=int,
        default=None,
        help="run each test that uses actor_kit with N seeds (default: its marker's, or 1)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and choose the first seed once for all tests."""
    config.addinivalue_line(
        "markers",
        "actors(runs=N): run the test with N schedules of its actors, unless "
        "--actors-runs says otherwise",
    )
    text = str(config.getoption("--actors-seed"))
    if text == "random":
        config.option.actors_seed = str(random.randrange(1 << 31))  # noqa: S311 - a seed
    elif not text.isdecimal():
        raise pytest.UsageError(f"--actors-seed must be a number or 'random', is {text!r}")
    runs = config.getoption("--actors-runs")
    if runs is not None and runs < 1:
        raise pytest.UsageError("--actors-runs must be at least 1")
    config.stash[_failed] = {}


def pytest_report_header(config: pytest.Config) -> str:
    """Report the first seed."""
    return f"actors: seed {config.option.actors_seed}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize each test by its seeds."""
    if SEED not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("actors")
    marked = 1 if marker is None else _runs(marker.args, marker.kwargs, metafunc.definition.nodeid)
    runs = metafunc.config.getoption("--actors-runs") or marked
    first = int(metafunc.config.option.actors_seed)
    seeds = range(first, first + runs)
    ids: Iterable[Any] = [pytest.HIDDEN_PARAM] if runs == 1 else [f"seed={seed}" for seed in seeds]
    metafunc.parametrize(SEED, seeds, ids=ids, indirect=True)


def _runs(args: tuple[object, ...], options: Mapping[str, object], where: str) -> int:
    """Return the runs of a marker. Raises UsageError for a marker with other arguments."""
    runs = options.get("runs", 1)
    if args or set(options) - {"runs"} or type(runs) is not int or runs < 1:
        given = [*map(repr, args), *(f"{name}={value!r}" for name, value in options.items())]
        raise pytest.UsageError(
            f"{where}: the marker actors({', '.join(given)}) is to be actors(runs=N), with a "
            "number of at least 1"
        )
    return runs


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Print the command that repeats a failed test with its seed."""
    report = yield
    params = (
        item.callspec.params
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else {}
    )
    if report.failed and SEED in params:
        seed = int(str(params[SEED]))
        name = item.nodeid.partition("[")[0]
        report.sections.append(
            ("actors", f"seed {seed}; replay: pytest '{name}' --actors-seed={seed} --actors-runs=1")
        )
        seeds = item.config.stash[_failed].setdefault(name, [])
        if seed not in seeds:
            seeds.append(seed)
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """List the failed seeds."""
    failed = config.stash[_failed]
    if failed:
        terminalreporter.section("actors: failing seeds")
        for name, seeds in failed.items():
            terminalreporter.line(f"{name}: {', '.join(map(str, seeds))}")
            terminalreporter.line(
                f"  replay: pytest '{name}' --actors-seed={seeds[0]} --actors-runs=1"
            )


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Generator[None, LoopFactories | None, LoopFactories]:
    """Run tests with the kit on a virtual loop, all others on the project's loops."""
    chosen = yield
    if SEED in getattr(item, "fixturenames", ()):
        return {"virtual": VirtualLoop}
    return chosen or {"asyncio": asyncio.new_event_loop}


@pytest.fixture
def actors_seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of this run of the test; a test that uses it runs once per seed."""
    return int(request.param)


try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:

    def in_loop_of_test(name: str, _: Callable[[int], AsyncIterator[Any]], /) -> dict[str, Any]:
        """Return a fixture that raises a UsageError with the missing package."""

        @pytest.fixture(name=name)
        def missing() -> None:
            raise pytest.UsageError(
                f"the fixture {name} needs pytest-asyncio; install ks-actors[testing]"
            )

        return {name: missing}
else:

    def in_loop_of_test(name: str, make: Callable[[int], AsyncIterator[Any]], /) -> dict[str, Any]:
        """Return the fixtures, by name, that run `make(seed)` in the loop of their test.

        The default loop scope of fixtures does not count. So there is one fixture for each loop
        scope, and the fixture `name` takes the fixture of the test's own loop.
        """

        def made_in(scope: LoopScope) -> Any:
            @async_fixture(name=f"_{name}_in_{scope}", loop_scope=scope)
            async def made(actors_seed: int) -> AsyncIterator[Any]:
                async for it in make(actors_seed):
                    yield it

            return made

        @pytest.fixture(name=name)
        def of_the_test(
            request: pytest.FixtureRequest,
            actors_seed: int,  # noqa: ARG001 - it makes a run of each seed
        ) -> Any:
            marker = request.node.get_closest_marker("asyncio")
            options = {} if marker is None else marker.kwargs
            default = request.config.getini("asyncio_default_test_loop_scope")
            scope = options.get("loop_scope") or options.get("scope") or default
            return request.getfixturevalue(f"_{name}_in_{scope}")

        of_the_test.__doc__ = make.__doc__
        scopes = get_args(LoopScope)
        return {name: of_the_test, **{f"_{name}_in_{scope}": made_in(scope) for scope in scopes}}


async def _kit(seed: int) -> AsyncIterator[TestKit]:
    """Give the test its own TestKit, with the seed of this run."""
    async with TestKit(seed=seed) as kit:
        yield kit


globals().update(in_loop_of_test("actor_kit", _kit))
