"""A socket to a broker: bytes in any pieces, answers in the order of requests, and ends of all kinds."""

from __future__ import annotations

import asyncio
import importlib
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.errors import KafkaConnectionError  # type: ignore[import-untyped]
from aiokafka.protocol.admin import ApiVersionRequest  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.client._connection import Connection
from tests.ks_actors.log.kafka.client.answering import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Sequence


class Wire(asyncio.Transport):
    """Keeps the bytes that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.ended = False

    def writelines(self, list_of_data: Any) -> None:
        self.written.append(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True


def connect(options: KafkaOptions | None = None) -> tuple[Connection, Wire]:
    connection, wire = Connection(lambda *_: None, ("b", 1), "c", options or KafkaOptions()), Wire()
    connection.connection_made(wire)
    return connection, wire


def frame(number: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), number) + body


def versions(*found: tuple[int, int, int]) -> bytes:
    """Return the body of an answer to ApiVersions."""
    return struct.pack(">hi", 0, len(found)) + b"".join(struct.pack(">hhh", *each) for each in found)


@given(st.lists(st.lists(st.tuples(*[st.integers(0, 99)] * 3), max_size=5), min_size=1, max_size=6), st.lists(st.integers(1, 40), max_size=40))
def test_answers_are_whole_however_their_bytes_arrive(bodies: Sequence[Sequence[tuple[int, int, int]]], cuts: Sequence[int]) -> None:
    """One answer in many pieces, many in one: each request gets its own, in order."""

    async def test() -> None:
        connection, _ = connect()
        answers = [connection.send(ApiVersionRequest()) for _ in bodies]
        stream = b"".join(frame(number, versions(*body)) for number, body in enumerate(bodies, 1))
        for cut in (*cuts, len(stream)):
            piece, stream = stream[:cut], stream[cut:]
            if piece:
                connection.data_received(piece)
        assert [(await answer).api_versions for answer in answers] == [list(body) for body in bodies]
        assert connection.connected

    asyncio.run(test())


@pytest.mark.parametrize(
    ("stream", "told"),
    [
        (frame(2, versions()), "answered request 2 in place of 1"),
        (frame(1, b"\0"), "was closed"),
        (struct.pack(">i", -5), "was closed"),
        (frame(1, versions()) * 2, ""),
    ],
    ids=["another number", "too short", "a negative length", "one too many"],
)
def test_bytes_that_are_no_answer_end_the_connection(stream: bytes, told: str) -> None:
    """A request without an answer fails with the cause; nothing is sent on such a connection."""

    async def test() -> None:
        connection, wire = connect()
        answer = connection.send(ApiVersionRequest())
        connection.data_received(stream)
        assert wire.ended
        assert not connection.connected
        if told:
            with pytest.raises(KafkaConnectionError, match=told):
                await answer
        else:
            assert (await answer).api_versions == []
        with pytest.raises(KafkaConnectionError, match="no connection to b:1"):
            connection.send(ApiVersionRequest())

    asyncio.run(test())


@pytest.mark.parametrize("cause", [None, ConnectionResetError("reset by peer")])
def test_a_lost_connection_fails_the_requests_without_an_answer(cause: Exception | None) -> None:
    """Also with the cause of the system; the future of the close is done then."""

    async def test() -> None:
        connection, _ = connect()
        answer = connection.send(ApiVersionRequest())
        connection.connection_lost(cause)
        with pytest.raises(KafkaConnectionError, match="reset by peer" if cause else "was closed"):
            await answer
        await connection.close()

    asyncio.run(test())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_it_works_on_each_loop(loop: str) -> None:
    """On a real socket: an answer in pieces, then the server's end."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        await reader.readexactly(size)
        answer = frame(1, versions((18, 0, 4)))
        for piece in (answer[:3], answer[3:]):
            writer.write(piece)
            await writer.drain()
        await reader.readexactly(4)
        writer.close()
        await writer.wait_closed()

    async def test() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            address = server.sockets[0].getsockname()
            connected = socket.create_connection(address)
            connected.setblocking(False)
            connection = await Connection(lambda *_: None, address, "c", KafkaOptions()).take(connected, None, "", -1)
            with pytest.raises(KafkaConnectionError, match="was closed"):
                await connection.send(ApiVersionRequest())
            assert not connection.connected

    factory = importlib.import_module("uvloop").new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(test())


def test_a_connection_that_is_not_used_closes_but_for_open_requests() -> None:
    """After `connections_max_idle_ms` since the last request or answer."""

    async def test() -> None:
        connection, wire = connect(KafkaOptions(connections_max_idle_ms=1000))
        connection._watch_idleness()
        await asyncio.sleep(0.9)
        answer = connection.send(ApiVersionRequest())
        await asyncio.sleep(5)
        assert not wire.ended
        connection.data_received(frame(1, versions()))
        assert (await answer).error_code == 0
        await asyncio.sleep(0.5)
        assert not wire.ended
        await asyncio.sleep(2)
        assert wire.ended

    in_virtual_time(test)
