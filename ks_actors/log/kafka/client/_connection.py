"""A socket to a broker."""

from __future__ import annotations

import asyncio
import logging
import math
import struct
import weakref
from typing import TYPE_CHECKING, Any, Final, Self

from aiokafka.conn import (  # type: ignore[import-untyped]
    READER_LIMIT,
    AIOKafkaConnection,
    AIOKafkaProtocol,
    CloseReason,
)
from aiokafka.errors import KafkaConnectionError  # type: ignore[import-untyped]
from aiokafka.protocol.admin import (  # type: ignore[import-untyped]
    ApiVersionRequest,
    SaslAuthenticateRequest,
)

from ks_actors.log.kafka.wire import (
    REBOOTSTRAP_REQUIRED,
    MetadataRequest,
    cluster_of,
    identity_request,
    name_of,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

# The part of a login's session after which a new connection is used, as in Kafka's clients.
_RENEW: Final = 0.85
_LENGTH: Final = struct.Struct(">i")
_wire_log = logging.getLogger("aiokafka.conn")


class WrongBroker(KafkaConnectionError):  # type: ignore[misc]
    """Another broker than the one that is meant is at an address, or one of another cluster."""


class Connection(AIOKafkaConnection):  # type: ignore[misc]
    """A socket that reports every close: `closing` gets the close's future and the transport."""

    def __init__(
        self,
        closing: Callable[[asyncio.Future[None], asyncio.WriteTransport], None],
        *address: Any,
        **settings: Any,
    ) -> None:
        super().__init__(*address, **settings)
        self._closing = closing
        self._renew_at: float = math.inf

    @property
    def outlived(self) -> bool:
        """Whether the session of the login ends soon, so that another connection is to be used."""
        return bool(self._loop.time() >= self._renew_at)

    async def until_answered(self) -> None:
        """Wait until no request is without an answer."""
        while waiting := [answer for *_, answer in self._requests if not answer.done()]:
            await asyncio.wait(waiting)

    def _note_session(self, answer: asyncio.Future[Any]) -> None:
        """Note until when the broker takes requests after a login (KIP-368)."""
        if answer.cancelled() or answer.exception() is not None:
            return
        lifetime_ms = getattr(answer.result(), "session_lifetime_ms", 0)
        if lifetime_ms > 0:
            self._renew_at = self._loop.time() + _RENEW * lifetime_ms / 1000

    async def take(self, connected: socket.socket, cluster: str, node: int) -> Self:
        """Begin on a socket to one of the host's addresses; aiokafka's own waits for the first.

        Raises WrongBroker if it leads out of the cluster (empty: not known yet), or to a broker
        with another id than `node` (negative: any).
        """
        loop = self._loop
        reader: asyncio.StreamReader = asyncio.StreamReader(limit=READER_LIMIT, loop=loop)
        self._closed_fut = loop.create_future()
        protocol: asyncio.StreamReaderProtocol = AIOKafkaProtocol(
            self._closed_fut, reader, loop=loop
        )
        transport, _ = await loop.create_connection(
            lambda: protocol,
            sock=connected,
            ssl=self._ssl_context,
            server_hostname=None if self._ssl_context is None else self.host,
        )
        self._reader, self._protocol = reader, protocol
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        self._writer: asyncio.StreamWriter | None = writer
        self._read_task = self._create_reader_task()
        if self._max_idle_ms is not None:
            self._idle_handle = loop.call_soon(self._idle_check, weakref.ref(self))
        try:
            await self._do_version_lookup()
            if self._sasl_mechanism is not None:
                await self._do_sasl_handshake()
            if cluster:
                await self._check_broker(cluster, node)
        except BaseException:
            self.close()
            raise
        return self

    async def _do_version_lookup(self) -> None:
        """Learn which requests the broker takes; aiokafka's own ignores the error code."""
        answer = await self.send(ApiVersionRequest())
        if answer.error_code:
            raise KafkaConnectionError(f"it answered {name_of(answer.error_code)} to ApiVersions")
        self._versions = {key: (low, high) for key, low, high in answer.api_versions}

    async def _check_broker(self, cluster: str, node: int) -> None:
        """Raise WrongBroker for another cluster, and for another broker if brokers tell that."""
        refused = False
        request = None if node < 0 else identity_request(cluster, node, self._versions)
        if request is not None:
            code = (await self.send(request)).error_code
            if not code:
                return
            refused = code == REBOOTSTRAP_REQUIRED
        found = cluster_of(await self.send(MetadataRequest([])))
        if found and found != cluster:
            raise WrongBroker(f"it is of cluster {found!r}, and this client is of {cluster!r}")
        if refused:
            raise WrongBroker(f"it is another broker of the cluster than {node}")

    def be_named(self, client_id: str) -> None:
        """Use another client id in the next requests."""
        self._client_id = client_id

    def send(self, request: Any, expect_response: bool = True) -> Any:
        """Write a request in one go, and return the future of its response.

        The caller limits the wait.
        """
        writer = self._writer
        if writer is None or not expect_response:
            return super().send(request, expect_response)
        prepared = request.prepare(self._versions)
        number: int = self._next_correlation_id()
        header: bytes = prepared.build_request_header(
            correlation_id=number, client_id=self._client_id
        ).encode()
        body: list[bytes] = prepared.parts if hasattr(prepared, "parts") else [prepared.encode()]
        # No empty part, such as the body of ApiVersions: transports of Python 3.12 and 3.13 keep
        # one at the end for ever, write nothing at each turn of the loop, and do not close.
        parts = filter(None, body)
        try:
            writer.writelines([_LENGTH.pack(len(header) + sum(map(len, body))) + header, *parts])
        except OSError as error:
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(
                f"the connection to {self.host}:{self.port} broke: {error}"
            ) from error
        _wire_log.debug("Request to %s:%d %d: %s", self.host, self.port, number, prepared)
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._requests.append((number, prepared, answer))
        if isinstance(request, SaslAuthenticateRequest):
            answer.add_done_callback(self._note_session)
        return answer

    def close(self, reason: Any = None, exc: BaseException | None = None) -> Any:
        writer: asyncio.StreamWriter | None = self._writer
        closed: Any = super().close(reason, exc)
        if writer is not None:
            self._closing(closed, writer.transport)
        return closed
