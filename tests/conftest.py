"""Run all tests on the loop that `--loop` names, and hold them to the rules of the house."""

from __future__ import annotations

import asyncio
import itertools
import sys
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from actors.testing import VirtualLoop
from tests.budget import Budget
from tests.cases import few_of, part_of
from tests.examples_of import register_profiles
from tests.layouts import use_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

register_profiles()
use_layout()

LOOPS = ("asyncio", "debug", "eager", "uvloop")
pytest_plugins = ["pytester", "tests.kafka.plugin"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--loop", choices=LOOPS, default="asyncio", help="the event loop that async tests run on")
    parser.addoption("--within", type=float, default=0.0, help="begin no test after so many seconds, and count those that are left; 0: begin all")
    parser.addoption("--few", type=int, default=0, help="run so many cases of each test function at most, spread over all; 0: all")
    parser.addoption("--all-but", type=int, default=0, help="run the cases that --few with the same number leaves out; 0: all")
    parser.addoption("--slice", default="", help="K/N: run the K-th of N parts of the cases; with --few, of those that it leaves out")
    parser.addoption("--budget", choices=("test", "ci"), help="fail when tests take more CPU time than tests/budget.toml allows in this tier")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--loop") == "eager" and sys.version_info < (3, 12):
        raise pytest.UsageError("eager tasks came with Python 3.12")
    if config.getoption("--within") > 0:
        config.pluginmanager.register(Deadline(config.getoption("--within")), "deadline")
    if config.getoption("--budget"):
        config.pluginmanager.register(Budget(config.getoption("--budget")), "budget")


class Deadline:
    """Begin no test after so many seconds from now on."""

    def __init__(self, seconds: float) -> None:
        self._seconds: float = seconds
        self._end: float = monotonic() + seconds
        self._left: int = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        if monotonic() < self._end:
            return None
        self._left += 1
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._left:
            terminalreporter.write_line(f"{self._left} tests did not begin within {self._seconds:g} s: `make test` runs them", yellow=True)


_PLACE = pytest.StashKey[int]()
_places = itertools.count()


def pytest_itemcollected(item: pytest.Item) -> None:
    # Called for the items below this folder. Blocks of pages, elsewhere, have no cases.
    item.stash[_PLACE] = next(_places)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    few, all_but = config.getoption("--few"), config.getoption("--all-but")
    if few and all_but:
        raise pytest.UsageError("--few and --all-but exclude each other: give one of them")
    if all_but and config.getoption("--slice"):
        raise pytest.UsageError("--all-but runs all other cases, and --slice a part: give one of them")
    part = config.getoption("--slice")
    if few or all_but or part:
        # In the order of their definition: plugins have shuffled the items, and --all-but has to leave out those that --few chose in another run.
        by_id = {item.nodeid: item for item in sorted(items, key=lambda item: item.stash.get(_PLACE, 0))}
        chosen = few_of(by_id, few or all_but) | part_of(by_id, part)
        config.hook.pytest_deselected(items=[item for item in items if (item.nodeid in chosen) is bool(all_but)])
        items[:] = [item for item in items if (item.nodeid in chosen) is not bool(all_but)]


def pytest_report_header(config: pytest.Config) -> str:
    return f"loop: {config.getoption('--loop')}"


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Generator[None, object, dict[str, Callable[[], asyncio.AbstractEventLoop]]]:
    yield
    name = config.getoption("--loop")
    kit = "actors_seed" in getattr(item, "fixturenames", ())
    return {"virtual" if kit and name != "uvloop" else name: lambda: make_loop(name, virtual=kit)}


def make_loop(name: str, *, virtual: bool) -> asyncio.AbstractEventLoop:
    if name == "uvloop":
        import uvloop  # noqa: PLC0415 - not there on all platforms

        return uvloop.new_event_loop()
    loop = VirtualLoop() if virtual else asyncio.new_event_loop()
    loop.set_debug(name == "debug")
    if name == "eager":
        loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009 - not there on 3.11, for type checkers too
    return loop
