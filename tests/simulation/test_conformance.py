"""A simulated broker answers as a real one does, field by field."""

from __future__ import annotations

import asyncio
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import pytest

from actors.testing import VirtualLoop
from tests.ks_actors.log.helpers import group_name
from tests.simulation.cluster import Cluster, Manners
from tests.simulation.conversations import CONVERSATIONS, Talk
from tests.simulation.handlers import HANDLERS
from tests.simulation.network import Line, Place
from tests.simulation.trace import Trace
from tests.simulation.transactions import expire
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.kafka.broker import Broker

pytestmark = pytest.mark.unmeasured

_LENGTH: Final = Struct(">i")
_PROMPT: Final = Manners(
    lag=0.0, replication=0.0, fencing=1.0, loading=0.0, sessions=1_000, first_join=0.0, transaction_look=0.05
)  # fmt: skip


async def with_kafka(broker: Broker, name: str, converse: Callable[[Talk], Coroutine[Any, Any, None]]) -> list[tuple[str, Any]]:
    """Have a conversation with a real broker."""
    host, port = broker.bootstrap.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    async def ask(frame: bytes) -> bytes:
        writer.write(_LENGTH.pack(len(frame)) + frame)
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return await reader.readexactly(size)

    talk = Talk(ask, name)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await converse(talk)
    finally:
        writer.close()
        await writer.wait_closed()
    return talk.told


class Ear(asyncio.Protocol):
    """Takes answers from a simulated connection."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if len(self._buffer) < _LENGTH.size + size:
                return
            self.answers.put_nowait(self._buffer[_LENGTH.size : _LENGTH.size + size])
            self._buffer = self._buffer[_LENGTH.size + size :]


def with_simulation(name: str, converse: Callable[[Talk], Coroutine[Any, Any, None]]) -> list[tuple[str, Any]]:
    """Have a conversation with a simulated broker."""

    async def main() -> list[tuple[str, Any]]:
        assert HANDLERS
        cluster = Cluster(1, Random(1), Trace(asyncio.get_running_loop().time), _PROMPT)
        cluster.sure = True
        cluster.begin(expire(cluster))
        ear = Ear()
        line = Line(cluster.network, Place(1, 1), ear, 1)
        cluster.network.lines[line] = None
        cluster.network.hosts[1].accept(line)

        async def ask(frame: bytes) -> bytes:
            line.write(_LENGTH.pack(len(frame)) + frame)
            return await ear.answers.get()

        talk = Talk(ask, name)
        async with asyncio.timeout(600):
            await converse(talk)
        await cluster.close()
        return talk.told

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


@pytest.mark.parametrize("converse", CONVERSATIONS, ids=lambda each: each.__name__)
def test_a_simulated_broker_answers_as_a_real_one(converse: Callable[[Talk], Coroutine[Any, Any, None]], kafka_broker: Broker) -> None:
    """The same requests have the same answers: codes, texts, offsets, epochs, batches, states."""
    name = group_name()
    real = asyncio.run(with_kafka(kafka_broker, name, converse))
    simulated = with_simulation(name, converse)
    for number, (one, other) in enumerate(zip(real, simulated, strict=True)):
        assert other == one, f"answer {number}"
