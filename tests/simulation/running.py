"""Run a simulation on a loop in virtual time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from actors.testing import VirtualLoop
from tests.simulation.handlers import HANDLERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.trace import Trace


class Simulation(Protocol):
    """The draw of a seed."""

    trace: Trace

    @property
    def plan(self) -> object: ...

    async def main(self) -> None: ...


S = TypeVar("S", bound=Simulation)


def run_virtual(make: Callable[[], S], seed: int, layer: str = "kafka") -> S:
    """Run a simulation; return it. Raises its error, with the plan and the last events as notes."""

    async def main() -> S:
        assert HANDLERS, "nobody would answer"
        made = make()
        try:
            await made.main()
        except BaseException as error:
            error.add_note(f"{made.trace.told()}\n{made.plan}\nagain: python -m tests.liveness --layer {layer} --seed {seed}")
            raise
        return made

    with quiet(), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing of the outages that a plan has ordered."""
    logs = [logging.getLogger(name) for name in ("ks_actors", "aiokafka", "asyncio")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)
