"""Memory of idle actors.

Run it as a module in its own process: memory freed by earlier work would be reused unnoticed.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]  # comes with xoscar; has no annotations
import pykka

from actors import Spec, System
from benchmarks import _ours, _pykka, _xoscar
from benchmarks._bare import Box, Channel, drain, take
from benchmarks._load import nothing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    Start = Callable[[int], Awaitable[object]]

ROOT = Path(__file__).resolve().parent.parent


def measure(actors: int, *, contender: str) -> float:
    """Return the bytes per actor that has handled one message and waits for the next."""
    command = [sys.executable, "-m", "benchmarks._idle", contender, str(actors)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own module
    return float(done.stdout)


@asynccontextmanager
async def _bare(make: Callable[[], Any], consume: Callable[..., Any]) -> AsyncIterator[Start]:
    async def start(_number: int) -> object:
        box = make()
        task = asyncio.create_task(consume(box, nothing))
        box.put(1)
        return box, task

    yield start


@asynccontextmanager
async def _actors() -> AsyncIterator[Start]:
    async with System("bench") as system:

        async def start(number: int) -> object:
            ref = await system.spawn(Spec(_ours.Sink), f"sink-{number}")
            ref.tell(1)
            return ref

        yield start


@asynccontextmanager
async def _threads() -> AsyncIterator[Start]:
    async def start(_number: int) -> object:
        ref = _pykka.Sink.start()
        ref.ask(1)
        return ref

    yield start
    pykka.ActorRegistry.stop_all()


@asynccontextmanager
async def _pooled() -> AsyncIterator[Start]:
    async with _xoscar.pool() as address:

        async def start(number: int) -> object:
            ref = await _xoscar.make(address, _xoscar.Sink, f"sink-{number}")
            await ref.handle(1)
            return ref

        yield start


_CONTENDERS: dict[str, Callable[[], AbstractAsyncContextManager[Start]]] = {
    "floor": partial(_bare, Box, drain),
    "queue": partial(_bare, Channel, take),
    "actors": _actors,
    "pykka": _threads,
    "xoscar": _pooled,
}


async def _measure(contender: str, actors: int) -> float:
    async with _CONTENDERS[contender]() as start:
        # The first ones pay for pools and the like.
        kept = [await start(number) for number in range(10)]
        before = await _resident()
        for number in range(10, actors + 10):
            kept.append(await start(number))
            if not number % 64:
                await asyncio.sleep(0)
        return (await _resident() - before) / actors


async def _resident() -> int:
    await asyncio.sleep(0.01)
    gc.collect()
    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    print(asyncio.run(_measure(sys.argv[1], int(sys.argv[2]))))
