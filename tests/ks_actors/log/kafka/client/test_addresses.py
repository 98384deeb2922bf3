"""Names with several addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from ks_actors._errors import NotAuthorized
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client._addresses import connect_to_any
from ks_actors.log.kafka.client._client import KafkaClient
from tests.kafka.broker import PASSWORD, USER, Broker, free_ports
from tests.kafka.helpers import start_in_vain, started_with
from tests.ks_actors.log.kafka.client.certificates import pass_on
from tests.waiting import PATIENCE_S, soon, until

NAME = "kafka.example"
DEAD, REFUSING, LIVING = "127.0.0.2", "127.0.0.3", "127.0.0.1"
# Of starts that fail: behind the timeout of a connection.
DEADLINES_MS = (1_000, 8_000, 60_000)


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give a name the addresses of the returned list."""
    real, found = socket.getaddrinfo, list[str]()

    def look_up(host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> list[Any]:  # noqa: A002 - as in socket
        if host != NAME or flags & socket.AI_NUMERICHOST:
            return real(host, port, family, type, proto, flags)
        return [
            (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port, 0, 0) if ":" in each else (each, port))
            for each in found
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return found


class Swallowing:
    """A server whose queue of connections is full: it answers no attempt to connect."""

    def __init__(self, port: int) -> None:
        self._server = socket.socket()
        self._server.bind((DEAD, port))
        self._server.listen(0)
        self._first = socket.create_connection((DEAD, self.port))

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    def close(self) -> None:
        self._first.close()
        self._server.close()


@pytest.fixture
def swallowing() -> Iterator[Swallowing]:
    """Have a port at an address that swallows connections."""
    made = Swallowing(0)
    yield made
    made.close()


async def test_the_next_address_of_a_name_is_tried_while_the_first_is_silent(kafka_broker: Broker, addresses: list[str]) -> None:
    """A client connects to the living address of a broker, even if the first one swallows all that is sent to it."""
    port = int(kafka_broker.bootstrap.split(":")[1])
    swallowing = Swallowing(port)
    addresses += [DEAD, REFUSING, LIVING]
    options = KafkaOptions(connect_timeout_ms=5_000, api_timeout_ms=5_000)
    async with KafkaLog(f"{NAME}:{port}", options=options) as log:
        assert "nowhere" not in await soon(log.describe_topics())
    swallowing.close()


async def test_tls_checks_the_name_whichever_address_answers(secure_broker: Broker, addresses: list[str]) -> None:
    """The certificate must be for the name of the broker, not for the address that was connected."""
    port = int(secure_broker.address("SASL_SSL").split(":")[1])
    addresses += [REFUSING, LIVING]
    options = KafkaOptions(tls=True, tls_ca_file=secure_broker.certificate, sasl_mechanism="PLAIN", sasl_username=USER, sasl_password=PASSWORD)
    client = KafkaClient(f"{NAME}:{port}", options, client_id="test")
    with pytest.raises(NotAuthorized, match=rf"{NAME}.*not valid for '{NAME}'"):
        await client.start()
    await client.close()


async def test_the_error_names_the_addresses_that_were_tried(swallowing: Swallowing, addresses: list[str]) -> None:
    """Each address is in the error, with what it answered."""
    addresses += [DEAD, REFUSING]
    start = partial(started_with, f"{NAME}:{swallowing.port}", KafkaOptions(connect_timeout_ms=600))
    await start_in_vain(start, rf"within 600 ms; its addresses: {DEAD} \(no answer\), {REFUSING} \(.*\)", DEADLINES_MS)
    addresses[:] = ["127.0.0.4", REFUSING]
    await start_in_vain(start, rf"none of its addresses answers: 127.0.0.4 \(.*\), {REFUSING} \(.*\)", DEADLINES_MS)


@pytest.fixture
def mute() -> Iterator[socket.socket]:
    """Have a server that accepts connections, at all addresses of this machine, and never answers."""
    with socket.create_server(("0.0.0.0", 0)) as server:  # noqa: S104 - of a test
        yield server


async def answering(port: int, kafka_port: int) -> asyncio.Server:
    """Listen at one address, and pass bytes on to a broker."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker = await asyncio.open_connection("127.0.0.1", kafka_port)
        await asyncio.gather(pass_on(reader, broker), pass_on(broker_reader, writer))

    return await asyncio.start_server(serve, LIVING, port)


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


# Longer than a test may take: who waits for a silent server fails.
PATIENT = KafkaOptions(connect_timeout_ms=600_000, api_timeout_ms=600_000)


async def test_the_next_address_of_a_name_is_tried_while_the_first_accepts_and_is_silent(kafka_broker: Broker, addresses: list[str]) -> None:
    """A load balancer without a backend, or a frozen broker, accepts connections and says nothing."""
    port = int(kafka_broker.bootstrap.split(":")[1])
    addresses += [DEAD, LIVING]
    await leaves_a_mute_address(port, PATIENT)


async def test_the_next_address_is_tried_while_the_first_does_not_begin_tls(secure_broker: Broker, addresses: list[str]) -> None:
    """A connection is not there before TLS and login are done."""
    port = int(secure_broker.address("SASL_SSL").split(":")[1])
    addresses += [DEAD, LIVING]
    login: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_username": USER, "sasl_password": PASSWORD}
    options = replace(PATIENT, tls=True, tls_ca_file=secure_broker.certificate, tls_check_hostname=False, **login)
    await leaves_a_mute_address(port, options)


async def leaves_a_mute_address(port: int, options: KafkaOptions) -> None:
    """Assert that a log answers beside an address that is silent, and leaves no connection and no task there."""
    before = asyncio.all_tasks()
    with socket.create_server((DEAD, port)) as mute:
        async with KafkaLog(f"{NAME}:{port}", options=options) as log:
            assert "nowhere" not in await soon(log.describe_topics())
            mute.setblocking(False)
            accepted, _ = mute.accept()
            with accepted:
                await soon(closed(accepted))
    assert asyncio.all_tasks() == before


async def closed(connection: socket.socket) -> None:
    """Wait until the other side has closed a connection."""
    connection.setblocking(False)
    while await asyncio.get_running_loop().sock_recv(connection, 65536):
        pass


async def test_the_next_bootstrap_server_is_asked_while_the_first_is_silent(kafka_broker: Broker, mute: socket.socket) -> None:
    """A silent server does not hold up the start, and its connection is closed when another one has answered."""
    before = asyncio.all_tasks()
    async with asyncio.timeout(PATIENCE_S), KafkaLog(f"127.0.0.1:{port_of(mute)},{kafka_broker.bootstrap}", options=PATIENT) as log:
        assert "nowhere" not in await log.describe_topics()
        mute.setblocking(False)
        accepted, _ = mute.accept()
        with accepted:
            await closed(accepted)
    assert asyncio.all_tasks() == before


async def test_a_server_that_comes_back_is_found_while_another_one_is_silent(kafka_broker: Broker, mute: socket.socket) -> None:
    """A server that refuses connections is tried again, and again, beside one that is silent all the time."""
    (port,) = free_ports(1)
    log = KafkaLog(f"127.0.0.1:{port_of(mute)},127.0.0.1:{port}", options=PATIENT)
    starting = asyncio.create_task(log.start())
    asked = log._client._connections.outages
    async with asyncio.timeout(PATIENCE_S):
        await until(lambda: any(str(port) in outage.reason for outage in asked.now()))
        server = await answering(port, int(kafka_broker.bootstrap.split(":")[1]))
        await starting
    await log.close()
    server.close()


async def test_the_error_of_a_start_names_all_servers(mute: socket.socket) -> None:
    """Each server is in the error, with what it answered or did not."""
    (port,) = free_ports(1)
    start = partial(started_with, f"127.0.0.1:{port_of(mute)},127.0.0.1:{port}", PATIENT)
    expected = rf":{port} cannot be reached: TCP connect failed: .*; bootstrap server at 127.0.0.1:{port_of(mute)} has not accepted a connection yet"
    await start_in_vain(start, expected, DEADLINES_MS)


async def connect(port: int, tried: dict[str, str]) -> None:
    """Connect to an address of the name, and close the connection."""

    async def use(connected: socket.socket) -> socket.socket:
        return connected

    made = await connect_to_any(NAME, port, tried, use, others_may=lambda error: isinstance(error, OSError), unwanted=socket.socket.close)
    made.close()


async def test_families_take_turns(addresses: list[str]) -> None:
    """An address of the other family is second, as a whole family may have no route."""
    addresses += ["127.0.0.4", "127.0.0.5", "::1"]
    (port,) = free_ports(1)
    tried = dict[str, str]()
    with pytest.raises(OSError, match="none of its addresses"):
        await connect(port, tried)
    assert list(tried) == ["127.0.0.4", "::1", "127.0.0.5"]


async def test_attempts_end_with_their_caller(swallowing: Swallowing, addresses: list[str]) -> None:
    """A cancelled connect leaves neither tasks nor sockets."""
    addresses += [DEAD]
    before = asyncio.all_tasks()
    tried = dict[str, str]()
    connecting = asyncio.create_task(connect(swallowing.port, tried))
    await until(lambda: tried)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert asyncio.all_tasks() == before
    assert tried == {DEAD: "no answer"}
