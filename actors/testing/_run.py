"""Run test code in virtual time without pytest, once or for many seeds."""

from __future__ import annotations

import asyncio
import inspect
import sys
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from actors.testing._kit import TestKit
from actors.testing._loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor

T = TypeVar("T")


class FailingSeed(msgspec.Struct, frozen=True):
    """A schedule that breaks a test: `run(test, seed=seed)` fails again, with `error`."""

    seed: int
    error: BaseException


def run(
    test: Callable[[TestKit], Awaitable[T]],
    *,
    seed: int = 0,
    executor: Executor | Literal["inline", "threads"] = "inline",
) -> T:
    """Run `test` with a `TestKit` on a new `VirtualLoop`; return its result or raise its error.

    Raises RuntimeError where an event loop runs already.
    """
    _refuse_running_loop("run")

    async def main() -> T:
        async with TestKit(seed=seed, executor=executor) as kit:
            work = test(kit)
            if not inspect.isawaitable(work):
                raise TypeError(
                    f"run takes an async function of the kit, but {test!r} returned {work!r}; "
                    "write `async def`"
                )
            return await work

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def explore(
    test: Callable[[TestKit], Awaitable[object]], *, runs: int = 100, seed: int = 0
) -> FailingSeed | None:
    """Run `test` with up to `runs` seeds, from `seed` on; return the first failure, or None.

    Raises RuntimeError where an event loop runs already.
    """
    _refuse_running_loop("explore")
    for candidate in range(seed, seed + runs):
        try:
            run(test, seed=candidate)
        except BaseException as error:
            if not is_failure(error):
                raise
            return FailingSeed(candidate, error)
    return None


def is_failure(error: BaseException) -> bool:
    """Return whether an error is a failure of the test.

    `pytest.fail()`, and `pytest.raises` if nothing is raised, raise an error that is not of class
    Exception. A test that uses them has imported pytest, which this module does not need.
    """
    pytest = sys.modules.get("pytest")
    if isinstance(error, Exception) or pytest is None:
        return isinstance(error, Exception)
    failed, expected = pytest.fail.Exception, pytest.xfail.Exception
    return isinstance(error, failed) and not isinstance(error, expected)


def _refuse_running_loop(name: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        f"actors.testing.{name} makes an event loop of its own, but one runs here already, as in a "
        "notebook or in an asynchronous test: use `async with TestKit()` or the fixture "
        "actor_kit, or call it from a plain function"
    )
