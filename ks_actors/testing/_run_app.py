"""Runs of app tests, with one seed or many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from actors.testing import FailingSeed, VirtualLoop, is_failure
from ks_actors.app import refuse_running_loop
from ks_actors.testing._harness import AppHarness

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ks_actors.dsl import StreamsBuilder
    from ks_actors.topology import Topology

T = TypeVar("T")


def run_app(
    test: Callable[[AppHarness], Awaitable[T]],
    topology: Topology | StreamsBuilder,
    *,
    seed: int = 0,
    **options: Any,
) -> T:
    """Run `test` with an `AppHarness` of these options, on a new `VirtualLoop`.

    Returns its result, and raises its error. Raises RuntimeError where an event loop runs already.
    """
    _refuse_running_loop("run_app")

    async def main() -> T:
        async with AppHarness(topology, seed=seed, **options) as harness:
            return await test(harness)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def explore_app(
    test: Callable[[AppHarness], Awaitable[object]],
    topology: Topology | StreamsBuilder,
    *,
    runs: int = 10,
    seed: int = 0,
    **options: Any,
) -> FailingSeed | None:
    """Run `test` with up to `runs` seeds, from `seed` on.

    Returns the first failure, or None when all pass. Raises RuntimeError where an event loop runs
    already.
    """
    _refuse_running_loop("explore_app")
    for candidate in range(seed, seed + runs):
        try:
            run_app(test, topology, seed=candidate, **options)
        except BaseException as error:
            if not is_failure(error):
                raise
            return FailingSeed(candidate, error)
    return None


def _refuse_running_loop(name: str) -> None:
    refuse_running_loop(
        of=name, remedy="use `async with AppHarness(topology)`, or call it from a plain function"
    )
