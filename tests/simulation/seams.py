"""Where the simulation takes the place of the outer world: sockets, threads, clocks and chance. All of the client is real."""

from __future__ import annotations

import asyncio
import random as chance
import tempfile
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from ks_actors.log._lease import Lease
from ks_actors.log.kafka.client._outages import Outages
from tests.simulation.threads import use_no_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from tests.simulation.network import Network

# Modules that measure how long work takes.
_MEASURING: Final = (
    "ks_actors.log.kafka.consumer._fetch_loop",
    "ks_actors.log.kafka.consumer._fetcher",
    "ks_actors.log.kafka.consumer._partition_reader",
    "ks_actors.log.kafka.producer._sender",
    "ks_actors.log.kafka.wire._batch_reader",
)
_READER: Final = "ks_actors.log.kafka.wire._batch_reader"
_UNPACKING: Final = "ks_actors.log.kafka.wire._unpacking"
# Sizes of pieces that threads decompress, for batches that are smaller than those of production.
_SMALL_PIECES: Final = {"LITTLE": 600, "PIECE": 3_000, "GROWN": 48_000}


class Threads:
    """Work for a thread takes a drawn time, and then runs in the loop's own."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._slow: float = random.choice([0, 0.0001, 0.003, 0.05])

    def run(self, _: object, func: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Do what `run_in_executor` does."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()

        def end() -> None:
            if outcome.done():
                return
            try:
                outcome.set_result(func(*arguments))
            except BaseException as error:  # noqa: BLE001 - the outcome's waiter gets any error
                outcome.set_exception(error)

        loop.call_later(self._random.random() * self._slow, end)
        return outcome


class Clock:
    """Virtual time in which work takes time, now and then."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._often: float = random.choice([0.0, 0.0, 0.02, 0.2])
        self._spent: float = 0.0

    def __call__(self) -> float:
        if self._often and self._random.random() < self._often:
            self._spent += 0.006
        return asyncio.get_running_loop().time() + self._spent


@contextmanager
def simulated(network: Network, random: Random) -> Iterator[None]:
    """Run the block's clients on a network of this loop."""
    loop: Any = asyncio.get_running_loop()
    state = chance.getstate()
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ks-simulation-") as directory:
        # Processes of a machine see one another there, also those of an earlier run.
        patch.setattr(tempfile, "tempdir", directory)
        network.install(loop)
        loop.run_in_executor = Threads(random).run
        use_no_threads(loop, patch)
        clock = Clock(random)
        for name in _MEASURING:
            patch.setattr(import_module(name), "perf_counter", clock)
        for timed in (Outages, Lease):
            patch.setattr(timed.__init__, "__defaults__", (loop.time,))
        # What is packed by gzip tells when: it would be other bytes in each run.
        patch.setattr("gzip.time", SimpleNamespace(time=lambda: 0))
        if random.random() < 0.7:
            for name, size in _SMALL_PIECES.items():
                for module in (_READER, _UNPACKING):
                    patch.setattr(import_module(module), name, size)
        chance.seed(random.getrandbits(64))
        try:
            yield
        finally:
            chance.setstate(state)
