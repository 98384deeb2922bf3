"""A simulated broker answers as a real one does, field by field."""

from __future__ import annotations

import asyncio
from itertools import count, zip_longest
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

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from tests.kafka.broker import Broker
    from tests.simulation.conversations import Asks

# Real time passes in a real broker: a session or a transaction may end a moment earlier there, in one run of ten.
pytestmark = [pytest.mark.unmeasured, pytest.mark.nightly]

_LENGTH: Final = Struct(">i")
_PROMPT: Final = Manners(
    lag=0.0, replication=0.0, fencing=1.0, loading=0.0, sessions=1_000, first_join=0.0, transaction_look=0.05
)  # fmt: skip


async def with_kafka(broker: Broker, name: str, converse: Callable[[Talk], Coroutine[Any, Any, None]]) -> list[tuple[str, Any]]:
    """Have a conversation with a real broker."""
    host, port = broker.bootstrap.split(":")
    writers = []

    async def connect() -> Asks:
        reader, writer = await asyncio.open_connection(host, int(port))
        writers.append(writer)

        async def ask(frame: bytes) -> bytes:
            writer.write(_LENGTH.pack(len(frame)) + frame)
            (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            return await reader.readexactly(size)

        return ask

    talk = Talk(connect, name)
    try:
        await converse(talk)
    finally:
        for writer in writers:
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
        lines = count(1)

        async def connect() -> Asks:
            ear, number = Ear(), next(lines)
            line = Line(cluster.network, Place(1, 1), ear, number)
            cluster.network.lines[line] = None
            cluster.network.hosts[1].accept(line)

            async def ask(frame: bytes) -> bytes:
                line.write(_LENGTH.pack(len(frame)) + frame)
                return await ear.answers.get()

            return ask

        talk = Talk(connect, name)
        await converse(talk)
        await cluster.close()
        return talk.told

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def differences(real: list[tuple[str, Any]], simulated: list[tuple[str, Any]]) -> list[str]:
    """Return in which fields answers differ, the first one first."""
    found = []
    for number, (one, other) in enumerate(zip_longest(real, simulated)):
        a, b = dict(_fields(one)), dict(_fields(other))
        found += [
            f"answer {number}, {one and one[0]}{path}: Kafka's {a.get(path, 'nothing')!r}, simulated {b.get(path, 'nothing')!r}"
            for path in {**a, **b}
            if path not in a or path not in b or a[path] != b[path]
        ]
    return found


def _fields(value: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    """Return what an answer has, each with the way to it."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _fields(each, f"{path}.{name}")
    elif isinstance(value, list | tuple) and value:
        for index, each in enumerate(value):
            yield from _fields(each, f"{path}[{index}]")
    else:
        yield path, value


@pytest.mark.parametrize("converse", CONVERSATIONS, ids=lambda each: each.__name__)
def test_a_simulated_broker_answers_as_a_real_one(converse: Callable[[Talk], Coroutine[Any, Any, None]], kafka_broker: Broker) -> None:
    """The same requests have the same answers: codes, texts, offsets, epochs, batches, states."""
    name = group_name()
    real = asyncio.run(with_kafka(kafka_broker, name, converse))
    simulated = with_simulation(name, converse)
    assert not differences(real, simulated)
