"""A socket to a broker."""

from __future__ import annotations

import asyncio
import math
import struct
from collections import deque
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast, final

from ks_actors.log.kafka._aiokafka import (
    ApiVersionRequest,
    CorrelationIdError,
    KafkaConnectionError,
    SaslAuthenticateRequest,
)
from ks_actors.log.kafka.client._login import choose_mechanism, log_in
from ks_actors.log.kafka.login import Step, is_alert
from ks_actors.log.kafka.wire import (
    REBOOTSTRAP_REQUIRED,
    WIRE_LOG,
    MetadataRequest,
    cluster_of,
    identity_request,
    name_of,
)

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from ks_actors.log.kafka.client._options import KafkaOptions
    from ks_actors.log.kafka.client._tokens import Tokens

# The part of a login's session after which a new connection is used, as in Kafka's clients.
_RENEW: Final = 0.85
# The number of requests of a young connection: a listener may refuse the second request.
_YOUNG: Final = 2
_LENGTH: Final = struct.Struct(">i")
_CORRELATION_IDS: Final = 2**31


class WrongBroker(KafkaConnectionError):  # type: ignore[misc]
    """An address leads to another broker than the requested one, or to another cluster."""


class _Sent(NamedTuple):
    """A request without an answer."""

    number: int
    request: Any
    answer: asyncio.Future[Any]


@final
class Connection(asyncio.Protocol):
    """A socket whose requests are answered in their order.

    When the socket closes, `closing` gets the future of the close and the transport. The connection
    closes after `connections_max_idle_ms` without a request or an answer.
    """

    def __init__(
        self,
        closing: Callable[[asyncio.Future[None], asyncio.WriteTransport], None],
        address: tuple[str, int],
        client_id: str,
        options: KafkaOptions,
        tokens: Tokens | None = None,
    ) -> None:
        self.host, self.port = address
        # The current step of connecting; after a failure, the step that failed.
        self.step: Step = Step.TLS
        self._closing = closing
        self._client_id = client_id
        self._options = options
        self._tokens = tokens
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._sent: deque[_Sent] = deque()
        self._number = 0
        # The bytes of incomplete answers that have arrived so far.
        self._pieces: list[bytes] = []
        self._arrived = 0
        self._wanted = _LENGTH.size
        self._renew_at: float = math.inf
        self._used_at = self._heard_at = self._loop.time()
        self._idle: asyncio.TimerHandle | None = None

    async def take(
        self, connected: socket.socket, context: ssl.SSLContext | None, cluster: str, node: int
    ) -> Self:
        """Begin on a socket to one of the host's addresses: TLS, versions, login, identity.

        Raises WrongBroker if the address leads to another cluster than `cluster` (empty: not known
        yet), or to a broker with another id than `node` (negative: any).
        """
        self.step = Step.VERSIONS if context is None else Step.TLS
        await self._loop.create_connection(
            lambda: self,
            sock=connected,
            ssl=context,
            server_hostname=None if context is None else self.host,
        )
        self._watch_idleness()
        try:
            self.step = Step.VERSIONS
            await self._ask_versions()
            if self._options.sasl_mechanism is not None:
                self.step = Step.MECHANISM
                await choose_mechanism(self.send, self._options)
                self.step = Step.LOGIN
                await log_in(self.send, self._options, self._tokens, self.host)
            self.step = Step.IDENTITY
            if cluster:
                await self._check_broker(cluster, node)
        except BaseException:
            self.close()
            raise
        return self

    async def _ask_versions(self) -> None:
        """Ask the broker which versions of requests it supports."""
        answer = await self.send(ApiVersionRequest())
        if answer.error_code:
            raise KafkaConnectionError(f"it answered {name_of(answer.error_code)} to ApiVersions")
        self._versions = {key: (low, high) for key, low, high in answer.api_versions}

    async def _check_broker(self, cluster: str, node: int) -> None:
        """Raise WrongBroker for another cluster, or another broker if brokers report their ids."""
        refused = False
        request = None if node < 0 else identity_request(cluster, node, self._versions)
        if request is not None:
            code = (await self.send(request)).error_code
            if not code:
                return
            refused = code == REBOOTSTRAP_REQUIRED
        found = cluster_of(await self.send(MetadataRequest([])))
        if found and found != cluster:
            raise WrongBroker(
                f"it belongs to cluster {found!r}, but this client uses cluster {cluster!r}"
            )
        if refused:
            raise WrongBroker(f"it is not broker {node}, but another broker of the cluster")

    @property
    def connected(self) -> bool:
        """Whether the socket looks alive."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def outlived(self) -> bool:
        """Whether the login's session ends soon, so that a new connection is needed."""
        return self._loop.time() >= self._renew_at

    @property
    def young(self) -> bool:
        """Whether only the request for the versions has been answered so far."""
        return self._number <= _YOUNG

    @property
    def waiting(self) -> bool:
        """Whether a request has no answer yet."""
        return bool(self._sent)

    @property
    def arriving(self) -> bool:
        """Whether a part of the next answer has arrived."""
        return self._arrived > 0

    def hears(self, seconds: float) -> bool:
        """Return whether the broker has sent a byte in the last seconds."""
        return self._loop.time() - self._heard_at < seconds

    def owing(self, seconds: float) -> bool:
        """Return whether all requests were given up without an answer, and no byte came since."""
        return (
            bool(self._sent)
            and self._loop.time() - self._used_at >= seconds
            and not self.hears(seconds)
            and all(sent.answer.done() for sent in self._sent)
        )

    async def until_answered(self) -> None:
        """Wait until all requests have been answered."""
        while waiting := [sent.answer for sent in self._sent if not sent.answer.done()]:
            await asyncio.wait(waiting)

    def be_named(self, client_id: str) -> None:
        """Use another client id in the next requests."""
        self._client_id = client_id

    def send(self, request: Any) -> asyncio.Future[Any]:
        """Write a request in one go, and return the future of its response.

        The caller limits the wait. Raises KafkaConnectionError if the connection is closed, and
        NotImplementedError, IncompatibleBrokerVersion or LogError if the broker does not take the
        request.
        """
        transport = self._transport
        # In Python 3.13 a write fails if the transport is about to report its end.
        if transport is None or transport.is_closing():
            raise KafkaConnectionError(f"no connection to {self.host}:{self.port}")
        prepared = request.prepare(self._versions)
        self._number = number = (self._number + 1) % _CORRELATION_IDS
        header: bytes = prepared.build_request_header(
            correlation_id=number, client_id=self._client_id
        ).encode()
        body: list[bytes] = prepared.parts if hasattr(prepared, "parts") else [prepared.encode()]
        # Skip empty parts, such as the body of ApiVersions: transports of Python 3.12 and 3.13 keep
        # an empty last part for ever, write nothing at each turn of the loop, and do not close.
        parts = filter(None, body)
        transport.writelines([_LENGTH.pack(len(header) + sum(map(len, body))) + header, *parts])
        if isinstance(request, SaslAuthenticateRequest):
            WIRE_LOG.debug("request to %s:%d %d: a step of the login", self.host, self.port, number)
        else:
            WIRE_LOG.debug("request to %s:%d %d: %s", self.host, self.port, number, prepared)
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._sent.append(_Sent(number, prepared, answer))
        self._used_at = self._loop.time()
        return answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop are not of asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._pieces.append(data)
        self._arrived += len(data)
        if self._arrived < self._wanted:
            return
        data = b"".join(self._pieces)
        at, self._wanted = 0, _LENGTH.size
        while len(data) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(data, at)
            end = at + _LENGTH.size + size
            if end > len(data):
                self._wanted = end - at
                break
            # If the data is exactly one answer, do not copy it.
            alone = at == 0 and end == len(data)
            answer = BytesIO(data if alone else data[at:end])
            answer.seek(_LENGTH.size)
            try:
                self._answered(answer)
            except Exception as error:  # noqa: BLE001 - whatever it is, the bytes cannot be read
                self.close("an answer cannot be read", error)
            if self._transport is None:
                return
            at = end
        self._pieces = [data[at:]] if at < len(data) else []
        self._arrived = len(data) - at

    def _answered(self, data: BytesIO) -> None:
        """Resolve the future of the oldest request."""
        number, request, answer = self._sent[0]
        found = request.parse_response_header(data).correlation_id
        if found != number:
            raise CorrelationIdError(
                f"{self.host}:{self.port} answered request {found} in place of {number}"
            )
        if not answer.done():
            response = request.RESPONSE_TYPE.decode(data)
            self._note_session(response)
            WIRE_LOG.debug("answer from %s:%d %d: %s", self.host, self.port, number, response)
            answer.set_result(response)
        self._sent.popleft()
        self._used_at = self._loop.time()

    def _note_session(self, response: Any) -> None:
        """Note the time until which the broker takes requests after a login (KIP-368)."""
        lifetime_ms = getattr(response, "session_lifetime_ms", 0)
        if lifetime_ms > 0:
            self._renew_at = self._loop.time() + _RENEW * lifetime_ms / 1000

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._versions and is_alert(b"".join(self._pieces)):
            exc = ConnectionError("its listener has TLS: set security_protocol to SSL or SASL_SSL")
        self.close("the broker closed it", exc)
        if not self._closed.done():
            self._closed.set_result(None)

    def _watch_idleness(self) -> None:
        """Close when nothing was sent or answered for too long; requests have their deadlines."""
        if self._transport is None:
            return
        longest_s = self._options.connections_max_idle_ms / 1000
        left_s = self._used_at + longest_s - self._loop.time()
        if left_s <= 0 and not self._sent:
            self.close("it was not used")
        else:
            self._idle = self._loop.call_later(
                left_s if left_s > 0 else longest_s, self._watch_idleness
            )

    def close(
        self, reason: str = "closed", cause: BaseException | None = None
    ) -> asyncio.Future[None]:
        """Close the socket; return a future that is done when it is closed.

        Requests without an answer raise KafkaConnectionError.
        """
        transport, self._transport = self._transport, None
        if transport is not None:
            WIRE_LOG.debug("connection to %s:%d ends: %s (%s)", self.host, self.port, reason, cause)
            transport.close()
            if self._idle is not None:
                self._idle.cancel()
            sent, self._sent = self._sent, deque()
            for *_, answer in sent:
                if not answer.done():
                    error = KafkaConnectionError(
                        f"the connection to {self.host}:{self.port} was closed"
                        + ("" if cause is None else f": {str(cause) or type(cause).__name__}")
                    )
                    error.__cause__ = cause
                    answer.set_exception(error)
            self._closing(self._closed, transport)
        return self._closed
