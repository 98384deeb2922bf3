"""Real sockets whose requests are called back: the kernel sends no more of them, while a closed connection sends all."""

from __future__ import annotations

import asyncio
import importlib
import select
import socket
import ssl
from pathlib import Path
from typing import Any, Final

import pytest

from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.client._cluster import Cluster
from ks_actors.log.kafka.client._connection import Connection
from ks_actors.log.kafka.client._connections import PRODUCE, Connections
from ks_actors.log.kafka.client._outages import Outages
from ks_actors.log.kafka.wire import ProduceRequest
from tests.ks_actors.log.kafka.client.certificates import Authority
from tests.waiting import until

_SIZE: Final = 100_000
_VERSIONS: Final = {0: (0, 12)}


async def ended(way: str, context: ssl.SSLContext | None, listener: ssl.SSLContext | None) -> tuple[int, bool]:
    """End a connection with a request on its way; return the bytes that the peer then reads, and whether it sees a reset."""
    loop, options = asyncio.get_running_loop(), KafkaOptions()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connected = socket.create_connection(server.getsockname())
        connected.setblocking(False)
        peer, _ = server.accept()
    connections = Connections(options, "c", Outages(pause_ms=1), Cluster(), lambda: None)
    connection = Connection(connections._note_closing, ("127.0.0.1", 1), "c", options)
    name = None if context is None else "localhost"
    opening = asyncio.ensure_future(loop.create_connection(lambda: connection, sock=connected, ssl=context, server_hostname=name))
    if listener is not None:
        wrapped = await asyncio.to_thread(listener.wrap_socket, peer, server_side=True)
        # Read its bytes as they come: those that have arrived count.
        peer = socket.socket(fileno=wrapped.detach())
    await opening
    connection._versions = _VERSIONS
    connections._ready[1, PRODUCE] = connection
    answer = connection.send(ProduceRequest(None, -1, 1, [("t", [(0, bytearray(_SIZE))])]))
    # The peer takes a part of it; the kernel has the rest.
    await until(lambda: bool(select.select([peer], [], [], 0)[0]))
    if way == "cut":
        connections.cut(PRODUCE)
        await connection.close()
    else:
        connections.disconnect(PRODUCE)
    assert answer.exception() is not None
    peer.settimeout(5)
    read = await asyncio.to_thread(rest_of, peer)
    await connections.close()
    return read


def rest_of(peer: socket.socket) -> tuple[int, bool]:
    """Read all that comes; return its size, and whether it ends in a reset."""
    read = 0
    with peer:
        try:
            while data := peer.recv(_SIZE):
                read += len(data)
        except ConnectionResetError:
            return read, True
    return read, False


def run(loop: str, *given: Any) -> tuple[int, bool]:
    factory = importlib.import_module("uvloop").new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(ended(*given))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("tls", [False, True])
def test_a_connection_that_is_cut_sends_no_more_of_its_requests(tmp_path: Path, loop: str, tls: bool) -> None:
    """Its peer reads what it had received by then, and sees a reset in place of the end."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    authority = Authority(tmp_path / "ca") if tls else None
    context = listener = None
    if authority is not None:
        context, listener = ssl.create_default_context(cafile=str(authority.certificate)), authority.listener()
        listener.verify_mode = ssl.CERT_NONE
    read, was_reset = run(loop, "cut", context, listener)
    assert was_reset
    assert read < _SIZE


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_connection_that_is_closed_sends_all(loop: str) -> None:
    """The kernel goes on after the close, as usual."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    read, was_reset = run(loop, "disconnect", None, None)
    assert not was_reset
    assert read > _SIZE
