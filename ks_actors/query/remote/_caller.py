"""Requests to other instances over HTTP: connections that are kept, with TLS and a token."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, final

import h11
import msgspec

from ks_actors._errors import ConfigError, KsActorsError
from ks_actors.lifecycle import in_thread
from ks_actors.query.remote._messages import (
    CONTENT,
    MAP_PATH,
    PATH,
    Found,
    Frames,
    Refused,
    SomeRows,
    decode_map,
    encode,
)
from ks_actors.query.remote._tls import client_context

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from ks_actors.query.remote._messages import Ask, End
    from ks_actors.query.remote._places import AppMap, Endpoint

_READ: Final = 1 << 18
_AT_ONCE: Final = 16
_IDLE_SECONDS: Final = 60.0
_CONNECT_SECONDS: Final = 5.0
_MAP_BYTES: Final = 1 << 26


class Unreachable(Exception):
    """An instance did not answer: it is down, frozen, or cut off."""


@final
class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.http = h11.Connection(h11.CLIENT)
        self.writer = writer
        self.used_at: float = 0.0
        self._reader = reader

    async def request(self, head: h11.Request, body: bytes) -> h11.Response:
        """Send a request, and return the head of the response."""
        events = (head, h11.Data(body), h11.EndOfMessage())
        self.writer.write(b"".join(self.http.send(event) or b"" for event in events))
        await self.writer.drain()
        while not isinstance(event := await self.next(), h11.Response):
            if not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("the connection was closed")
        return event

    async def next(self) -> Any:
        """Return the next event of the response."""
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self._reader.read(_READ))
        return event

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the response's body."""
        while isinstance(event := await self.next(), h11.Data):
            yield event.data
        if not isinstance(event, h11.EndOfMessage):
            raise h11.RemoteProtocolError("the connection was closed")

    def fresh_after(self, now: float) -> bool:
        """Whether an idle connection can still be used."""
        open_ = not self._reader.at_eof() and not self.writer.is_closing()
        return open_ and now - self.used_at < _IDLE_SECONDS

    @property
    def fresh(self) -> bool:
        """Whether the connection can be used again."""
        done = self.http.our_state is h11.DONE and self.http.their_state is h11.DONE
        return done and not self._reader.at_eof() and not self.writer.is_closing()


@final
class Caller:
    """The connections of one caller to the instances of an app.

    All methods raise Unreachable when there is no answer; the refusals of the instance as they are;
    and ConfigError for a wrong token and for a certificate that is not accepted. The caller sets
    the deadlines. At most 16 lookups wait for one instance at a time, each on a connection of its
    own; idle connections are closed after a minute.
    """

    def __init__(
        self,
        token: str | None,
        context: ssl.SSLContext | None = None,
        *,
        authorities: Path | None = None,
        insecure: bool = False,
    ) -> None:
        self._token = token
        self._context = context
        self._authorities = authorities
        self._insecure = insecure
        self._idle: dict[Endpoint, list[_Connection]] = {}
        self._turns: dict[Endpoint, asyncio.Semaphore] = {}
        self._swept_at: float = 0.0
        self._closed = False

    def __repr__(self) -> str:
        return f"<Caller of {len(self._turns)} instances>"

    async def look_up(self, endpoint: Endpoint, ask: Ask) -> Found:
        """Return the answer to a lookup."""
        turns = self._turns.setdefault(endpoint, asyncio.Semaphore(_AT_ONCE))
        async with turns, self._exchange(endpoint, "POST", PATH, encode(ask)) as (_, body):
            frames, found = Frames(), None
            async for data in body:
                for message in frames.feed(data):
                    found = message
        match found:
            case Found():
                return found
            case Refused():
                raise found.as_error(ask.store, str(endpoint))
        raise Unreachable(f"{endpoint} sent no answer")

    async def rows(self, endpoint: Endpoint, ask: Ask) -> AsyncGenerator[SomeRows, None]:
        """Yield the rows of a scan as they arrive, and nothing at the end."""
        count, ended = 0, False
        async with self._exchange(endpoint, "POST", PATH, encode(ask)) as (_, body):
            frames = Frames()
            async for data in body:
                for message in frames.feed(data):
                    if isinstance(message, SomeRows):
                        count += len(message.rows)
                        yield message
                    elif isinstance(message, Refused):
                        raise message.as_error(ask.store, str(endpoint))
                    else:
                        ended = _complete(message, count)
        if not ended:
            raise Unreachable(f"{endpoint} ended its answer after {count} rows")

    async def map(self, endpoint: Endpoint) -> AppMap:
        """Return the map of the app."""
        async with self._exchange(endpoint, "GET", MAP_PATH, b"") as (_, body):
            found = bytearray()
            async for data in body:
                found += data
                if len(found) > _MAP_BYTES:
                    raise Unreachable(f"{endpoint} sent a map of more than {_MAP_BYTES:,} bytes")
        try:
            return decode_map(found)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"{endpoint} is no app of this version: {error}") from error

    @asynccontextmanager
    async def _exchange(
        self, endpoint: Endpoint, method: str, path: str, body: bytes
    ) -> AsyncIterator[tuple[_Connection, AsyncIterator[bytes]]]:
        """Send a request; inside the block its response is read."""
        connection: _Connection | None = None
        try:
            connection, response = await self._request(endpoint, method, path, body)
            if response.status_code != 200:  # noqa: PLR2004 - HTTP's number
                await _raise_for(endpoint, response, connection)
            yield connection, connection.body()
            self._keep(endpoint, connection)
            connection = None
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(
                f"the certificate of {endpoint} is not accepted: {error.verify_message}"
            ) from None
        except (OSError, EOFError, h11.ProtocolError) as error:
            raise Unreachable(f"{endpoint} does not answer: {_text(error)}") from error
        except (ValueError, msgspec.MsgspecError) as error:
            if isinstance(error, KsActorsError):
                raise
            raise Unreachable(f"{endpoint} is no app of this version: {error}") from error
        finally:
            # A response that was not read to its end would be taken for the next one's.
            if connection is not None:
                connection.writer.transport.abort()

    async def _request(
        self, endpoint: Endpoint, method: str, path: str, body: bytes
    ) -> tuple[_Connection, h11.Response]:
        head = self._head(endpoint, method, path, len(body))
        while (connection := self._kept(endpoint)) is not None:
            try:
                return connection, await connection.request(head, body)
            except (OSError, EOFError, h11.ProtocolError):
                # The instance has closed it meanwhile. All requests only read: ask again.
                connection.writer.transport.abort()
            except BaseException:
                connection.writer.transport.abort()
                raise
        connection = await self._connect(endpoint)
        try:
            return connection, await connection.request(head, body)
        except BaseException:
            connection.writer.transport.abort()
            raise

    def _head(self, endpoint: Endpoint, method: str, path: str, size: int) -> h11.Request:
        headers = [("host", str(endpoint).partition("://")[2]), ("content-length", str(size))]
        if size:
            headers.append(("content-type", CONTENT))
        if self._token is not None:
            self._check_secret(endpoint)
            headers.append(("authorization", f"Bearer {self._token}"))
        return h11.Request(method=method, target=path, headers=headers)

    def _check_secret(self, endpoint: Endpoint) -> None:
        if not (endpoint.tls or endpoint.is_loopback or self._insecure):
            raise ConfigError(
                f"{endpoint} has no TLS: the token would be readable on the network; serve it by "
                "https, or allow it with insecure=True (query_insecure)"
            )

    async def _connect(self, endpoint: Endpoint) -> _Connection:
        context = None
        if endpoint.tls:
            if self._context is None:
                # Certificates of the system take a third of a second to read.
                self._context = await in_thread(client_context, self._authorities)
            context = self._context
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                endpoint.host, endpoint.port, ssl=context, limit=_READ
            )
        return _Connection(reader, writer)

    def _kept(self, endpoint: Endpoint) -> _Connection | None:
        idle, now = self._idle.get(endpoint, []), asyncio.get_running_loop().time()
        while idle:
            connection = idle.pop()
            if connection.fresh_after(now):
                return connection
            connection.writer.transport.abort()
        return None

    def _keep(self, endpoint: Endpoint, connection: _Connection) -> None:
        idle = self._idle.setdefault(endpoint, [])
        if self._closed or len(idle) >= _AT_ONCE or not connection.fresh:
            connection.writer.transport.abort()
            return
        connection.http.start_next_cycle()
        connection.used_at = asyncio.get_running_loop().time()
        idle.append(connection)
        self._sweep(connection.used_at)

    def _sweep(self, now: float) -> None:
        """Close idle connections that are too old: nobody may ask their instances again."""
        if now < self._swept_at + _IDLE_SECONDS:
            return
        self._swept_at = now
        for endpoint, idle in tuple(self._idle.items()):
            for connection in idle:
                if not connection.fresh_after(now):
                    connection.writer.transport.abort()
            idle[:] = [each for each in idle if each.fresh_after(now)]
            if not idle:
                del self._idle[endpoint]

    def close(self) -> None:
        """Close all idle connections; those in use end with their requests."""
        self._closed = True
        for idle in self._idle.values():
            for connection in idle:
                connection.writer.transport.abort()
        self._idle.clear()


def _complete(end: End | Found, count: int) -> bool:
    return getattr(end, "rows", None) == count


async def _raise_for(endpoint: Endpoint, response: h11.Response, connection: _Connection) -> None:
    """Raise the error that a response without an answer means."""
    data = bytearray()
    async for piece in connection.body():
        data += piece
        if len(data) > _READ:
            break
    for message in Frames().feed(data):
        if isinstance(message, Refused):
            raise message.as_error("", str(endpoint))
    raise Unreachable(f"{endpoint} answered {response.status_code}: is it an app of ks_actors?")


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
