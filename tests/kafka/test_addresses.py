"""Names with several addresses."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from ks_actors._errors import LogTimeout, NotAuthorized
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client._addresses import connect_to_any
from ks_actors.log.kafka.client._client import KafkaClient
from tests.kafka.broker import PASSWORD, USER, free_ports
from tests.kafka.helpers import soon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.broker import Broker

NAME = "kafka.example"
DEAD, REFUSING, LIVING = "127.0.0.2", "127.0.0.3", "127.0.0.1"


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
    options = KafkaOptions(
        tls=True, tls_ca_file=secure_broker.certificate, sasl_mechanism="PLAIN", sasl_username=USER, sasl_password=PASSWORD, api_timeout_ms=2_000
    )
    client = KafkaClient(f"{NAME}:{port}", options, client_id="test")
    with pytest.raises(NotAuthorized, match=rf"{NAME}.*not valid for '{NAME}'"):
        await client.start()
    await client.close()


async def test_the_error_names_the_addresses_that_were_tried(swallowing: Swallowing, addresses: list[str]) -> None:
    """Each address is in the error, with what it answered."""
    addresses += [DEAD, REFUSING]
    options = KafkaOptions(connect_timeout_ms=600, api_timeout_ms=1_000)
    log = KafkaLog(f"{NAME}:{swallowing.port}", options=options)
    with pytest.raises(LogTimeout, match=rf"within 600 ms; its addresses: {DEAD} \(no answer\), {REFUSING} \(.*\)"):
        await log.start()
    await log.close()
    addresses[:] = ["127.0.0.4", REFUSING]
    log = KafkaLog(f"{NAME}:{swallowing.port}", options=options)
    with pytest.raises(LogTimeout, match=rf"none of its addresses answers: 127.0.0.4 \(.*\), {REFUSING} \(.*\)"):
        await log.start()
    await log.close()


async def test_families_take_turns(addresses: list[str]) -> None:
    """An address of the other family is second, as a whole family may have no route."""
    addresses += ["127.0.0.4", "127.0.0.5", "::1"]
    (port,) = free_ports(1)
    tried = dict[str, str]()
    with pytest.raises(OSError, match="none of its addresses"):
        await connect_to_any(NAME, port, tried)
    assert list(tried) == ["127.0.0.4", "::1", "127.0.0.5"]


async def test_attempts_end_with_their_caller(swallowing: Swallowing, addresses: list[str]) -> None:
    """A cancelled connect leaves neither tasks nor sockets."""
    addresses += [DEAD]
    before = asyncio.all_tasks()
    tried = dict[str, str]()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(connect_to_any(NAME, swallowing.port, tried), 0.01)
    assert asyncio.all_tasks() == before
    assert tried == {DEAD: "no answer"}
