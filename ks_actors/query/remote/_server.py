"""The server of an instance's stores for other instances and clients, over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, Final, final

import h11
import msgspec

from ks_actors._errors import (
    ConfigError,
    FailureReason,
    KsActorsError,
    NotRunning,
    QueryFailed,
)
from ks_actors.lifecycle import component_log
from ks_actors.query._reach import count
from ks_actors.query._scan import Scan, slices
from ks_actors.query._store import KEY_VALUE
from ks_actors.query.remote._messages import (
    CONTENT,
    MAP_PATH,
    MOST_REQUEST_BYTES,
    PATH,
    End,
    Found,
    Refused,
    Row,
    SomeRows,
    decode_ask,
    encode,
    framed,
)
from ks_actors.query.remote._places import Endpoint, not_present
from ks_actors.query.remote._rows import COUNT, LOOKUPS, Wire

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable

    from ks_actors.query._calls import Call
    from ks_actors.query._local import LocalStores, Part
    from ks_actors.query.remote._messages import Ask
    from ks_actors.query.remote._places import AppMap

_CONNECTIONS: Final = 256
_HEAD_BYTES: Final = 16 << 10
_READ: Final = 1 << 16
_REQUEST_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 120.0
_DRAIN_SECONDS: Final = 60.0
_SIGN_SECONDS: Final = 1.0
_AT_ONCE: Final = 500
_AT_ONCE_BYTES: Final = 1 << 18
_LOOKUP_TIMEOUT_MS: Final = 10_000
_OK, _BAD, _UNKNOWN, _NO_PATH, _TOO_LARGE, _BUSY = 200, 400, 401, 404, 413, 503
_log = component_log(__name__)


@final
class Leased:
    """A call of an active task's reader, which answers only while the membership lease holds.

    Nothing can change between this check and the read, so the answer is as of the check: at that
    time no other instance can have had the task.
    """

    __slots__ = ("_call", "_holds", "_parts")

    def __init__(
        self, call: Callable[[Any], Any], parts: list[Part], holds: Callable[[], bool]
    ) -> None:
        self._call = call
        self._parts = parts
        self._holds = holds

    def __call__(self, reader: Any) -> Any:
        """Return the answer of a part's reader.

        Raises QueryFailed when the lease is over, or when the task has become a standby.
        """
        part = next(each for each in self._parts if each.reader is reader)
        if not self._holds():
            why = "the group has not answered this instance for its session timeout"
        elif not part.active:
            why = f"the task is {part.role.value} on this instance by now"
        else:
            return self._call(reader)
        raise QueryFailed(
            f"partition {part.partition} of store {reader.name} may have moved: {why}; try again",
            reason=FailureReason.NOT_ACTIVE,
            store=reader.name,
            partition=part.partition,
        )


@final
class Here:
    """The stores of this instance, as other instances may read them: active while leased."""

    def __init__(
        self, local: LocalStores, wire: Callable[[str], Wire], holds: Callable[[], bool]
    ) -> None:
        self.local: LocalStores = local
        self.wire: Callable[[str], Wire] = wire
        self._holds = holds

    def leased(
        self, call: Callable[[Any], Any], parts: list[Part], *, stale: bool
    ) -> Callable[..., Any]:
        """Return the call, to be answered only while the lease holds unless it may be `stale`."""
        return call if stale else Leased(call, parts, self._holds)

    def parts(
        self, store: str, partitions: list[int], *, stale: bool, of: int | None = None
    ) -> list[Part]:
        """Return these partitions of a store, which has `of`; that of a global store for none.

        Raises QueryFailed and NotRunning.
        """
        local = self.local
        if local.is_global(store):
            return local.readable(store, None, stale=True)
        if not partitions:
            raise ConfigError(f"store {store}: the request names no partition")
        if len({*partitions}) < len(partitions):
            raise ConfigError(f"store {store}: the request names a partition twice")
        count = local.partitions(store)
        if of is not None and of != count:
            raise not_present(
                f"store {store} has {count} partitions here, and {of} by the request", store
            )
        return [
            part for number in partitions for part in local.readable(store, number, stale=stale)
        ]

    async def look_up(self, part: Part, call: Callable[[Any], Any], *, stale: bool) -> Any:
        """Return the answer of one partition."""
        stale = stale or self.local.is_global(part.reader.name)
        return await part.at(self.leased(call, [part], stale=stale), _LOOKUP_TIMEOUT_MS)

    async def rows(
        self, parts: list[Part], scan: Scan, *, stale: bool
    ) -> AsyncGenerator[list[Any], None]:
        """Yield the rows of some partitions as their readers have them, a slice at a time."""
        stale = stale or self.local.is_global(parts[0].reader.name)
        leased = Scan(self.leased(scan.begin, parts, stale=stale), _as_it_is, reverse=scan.reverse)
        async with aclosing(slices(self.local, parts, leased, _LOOKUP_TIMEOUT_MS)) as found:
            async for rows in found:
                yield rows


def _as_it_is(row: Any) -> Any:
    return row


@final
class QueryServer:
    """The HTTP server of an instance: it answers reads of its own partitions, and the app's map.

    It changes nothing and executes no data: bodies are MessagePack of fixed types. On loopback
    without a token it refuses other host names, which web pages could send. At most 256
    connections are open at a time. A request has to arrive within ten seconds, may have 1 MiB, and
    is dropped when its answer is not read for a minute. The token is never shown.
    """

    def __init__(self, here: Here, described: Callable[[], AppMap], token: str | None) -> None:
        self.endpoint: Endpoint = Endpoint("", 0)
        self._here = here
        self._map = described
        self._token: bytes | None = None if token is None else f"Bearer {token}".encode()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[Any]] = set()

    async def start(self, at: Endpoint, context: ssl.SSLContext | None) -> None:
        """Take connections at an endpoint; port 0 is any free port. Raises OSError."""
        self.endpoint = Endpoint(at.host, at.port, context is not None)
        self._server = await asyncio.start_server(
            self._connected,
            at.host,
            at.port,
            ssl=context,
            limit=_READ,
            **({} if context is None else {"ssl_handshake_timeout": _REQUEST_SECONDS}),
        )
        port = at.port or self._server.sockets[0].getsockname()[1]
        self.endpoint = Endpoint(at.host, port, context is not None)

    async def close(self) -> None:
        """End the server and all answers. Does nothing when closed already."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        tasks = tuple(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        talk = _Talk(reader, writer)
        try:
            if len(self._connections) > _CONNECTIONS:
                text = f"{_CONNECTIONS} other callers are connected: try again later"
                await talk.refuse(_BUSY, NotRunning(text))
            else:
                while await self._answered(talk):
                    pass
        except (OSError, EOFError, ValueError, h11.ProtocolError, msgspec.MsgspecError) as error:
            # The class alone: the text of an error could contain what the caller has sent.
            _log.info("dropping a caller of %s: %s", self.endpoint, type(error).__name__)
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()  # by `close`; this is a task of its own
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answered(self, talk: _Talk) -> bool:
        """Answer the next request; return whether there may be another one."""
        head = await talk.head()
        if head is None:
            return False
        headers = dict(head.headers)
        # Check before the body is read: unknown callers get no memory.
        if not self._knows(headers):
            _log.warning("a caller of %s has a wrong token, or none", self.endpoint)
            await talk.refuse(_UNKNOWN, ConfigError("the token is not that of the app's queries"))
            return False
        route = head.method, head.target
        if route == (b"GET", MAP_PATH.encode()):
            await talk.body()
            try:
                found = encode(self._map())
            except KsActorsError as error:  # the app starts, or ends
                await talk.refuse(_BUSY, error)
                return False
            await talk.answer(found)
        elif route == (b"POST", PATH.encode()) and headers.get(b"content-type") == CONTENT.encode():
            body = await talk.body()
            if body is None:
                text = f"a request may have {MOST_REQUEST_BYTES:,} bytes"
                await talk.refuse(_TOO_LARGE, ConfigError(text))
                return False
            await self._ask(body, talk)
        else:
            await talk.refuse(_NO_PATH, ConfigError("there is no such request"))
            return False
        return talk.next_request()

    def _knows(self, headers: dict[bytes, bytes]) -> bool:
        if self._token is None:
            if not self.endpoint.is_loopback:
                return True  # by `query_insecure`: other machines may have any name for this one
            host = headers.get(b"host", b"").decode("latin-1")
            try:
                return Endpoint.of(host if ":" in host else f"{host}:80").is_loopback
            except ValueError:
                return False
        # The time of the comparison must not reveal how much of a guessed token is right.
        return compare_digest(headers.get(b"authorization", b""), self._token)

    async def _ask(self, body: bytes, talk: _Talk) -> None:
        try:
            ask = decode_ask(body)
        except msgspec.MsgspecError:
            await talk.refuse(_BAD, ConfigError("the request is not one of this version"))
            return
        try:
            wire = self._here.wire(ask.store)
            if ask.name == COUNT:
                await talk.answer(framed(Found([], await self._count(ask, wire))))
                return
            call = wire.call(ask)
            parts = self._here.parts(ask.store, ask.partitions, stale=ask.stale, of=ask.of)
            if ask.name not in LOOKUPS:
                await self._scan(parts, wire, ask, call, talk)
                return
            found = await self._here.look_up(parts[0], call, stale=ask.stale)
            reply = framed(Found(wire.looked_up(found)))
        except KsActorsError as error:
            reply = framed(Refused.of(error))
        except Exception as error:  # noqa: BLE001 - a serde, for one: told to whoever asks
            reply = framed(Refused.of(_failed(ask.store, error)))
        await talk.answer(reply)

    async def _count(self, ask: Ask, wire: Wire) -> int:
        if wire.kind not in KEY_VALUE:
            raise ConfigError(f"store {ask.store} does not tell its number of keys")
        parts = self._here.parts(ask.store, ask.partitions, stale=ask.stale, of=ask.of)
        return sum([await self._here.look_up(part, count, stale=ask.stale) for part in parts])

    async def _scan(self, parts: list[Part], wire: Wire, ask: Ask, call: Call, talk: _Talk) -> None:
        scan = Scan(call, _as_it_is, reverse=bool(ask.reverse))
        await talk.begin()
        sent, clock = 0, asyncio.get_running_loop().time
        told, waiting, size = clock(), list[Row](), 0
        last: SomeRows | Refused | End
        try:
            async with aclosing(self._here.rows(parts, scan, stale=ask.stale)) as slices_:
                async for rows in slices_:
                    some = wire.rows(rows, of_key=ask.key is not None)
                    waiting += some
                    size += sum([len(row.entry) for row in some])
                    full = len(waiting) >= _AT_ONCE or size >= _AT_ONCE_BYTES
                    if full or clock() - told >= _SIGN_SECONDS:
                        sent += len(waiting)
                        await talk.more(framed(SomeRows(waiting)))
                        told, waiting, size = clock(), [], 0
            if waiting:
                sent += len(waiting)
                await talk.more(framed(SomeRows(waiting)))
            last = End(sent)
        except KsActorsError as error:
            last = Refused.of(error)
        except (OSError, h11.ProtocolError):
            raise
        except Exception as error:  # noqa: BLE001 - a serde, for one: told to whoever asks
            last = Refused.of(_failed(ask.store, error))
        await talk.more(framed(last))
        await talk.end()


def _failed(store: str, error: Exception) -> QueryFailed:
    return QueryFailed(
        f"store {store} failed to answer: {error!r:.500}",
        reason=FailureReason.STORE_EXCEPTION,
        store=store,
    )


@final
class _Talk:
    """The requests and answers of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self._reader = reader
        self._writer = writer
        self._began = False

    async def _next(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                go = h11.InformationalResponse(status_code=100, headers=[])
                self._writer.write(self._http.send(go))
            self._http.receive_data(await self._reader.read(_READ))
        return event

    async def head(self) -> h11.Request | None:
        """Return the head of the next request; None at the end of the connection."""
        # The first request of a connection has to come soon: unknown callers must not hold it.
        async with asyncio.timeout(_IDLE_SECONDS if self._began else _REQUEST_SECONDS):
            event = await self._next()
        self._began = True
        return event if isinstance(event, h11.Request) else None

    async def body(self) -> bytes | None:
        """Return the body of the request; None if it is too large."""
        found = bytearray()
        async with asyncio.timeout(_REQUEST_SECONDS):
            while isinstance(event := await self._next(), h11.Data):
                found += event.data
                if len(found) > MOST_REQUEST_BYTES:
                    return None
        if not isinstance(event, h11.EndOfMessage):
            raise EOFError("the request ended in the middle")  # noqa: TRY004 - the caller has gone
        return bytes(found)

    async def answer(self, body: bytes, status: int = _OK) -> None:
        """Send a whole response."""
        headers = [("content-type", CONTENT), ("content-length", str(len(body)))]
        if status != _OK:
            headers.append(("connection", "close"))
        parts = (
            self._http.send(h11.Response(status_code=status, headers=headers)),
            self._http.send(h11.Data(body)),
            self._http.send(h11.EndOfMessage()),
        )
        await self._send(b"".join(part for part in parts if part))

    async def refuse(self, status: int, error: KsActorsError) -> None:
        """Send an error as a whole response, and close the connection."""
        await self.answer(framed(Refused.of(error)), status)

    async def begin(self) -> None:
        """Begin a response of unknown length."""
        headers = [("content-type", CONTENT), ("transfer-encoding", "chunked")]
        await self._send(self._http.send(h11.Response(status_code=_OK, headers=headers)) or b"")

    async def more(self, data: bytes) -> None:
        """Send a piece of the response."""
        await self._send(self._http.send(h11.Data(data)) or b"")

    async def end(self) -> None:
        """End the response."""
        await self._send(self._http.send(h11.EndOfMessage()) or b"")

    async def _send(self, data: bytes) -> None:
        if self._writer.is_closing():
            raise ConnectionResetError("the caller has gone")
        self._writer.write(data)
        # A caller that does not read would keep its rows in memory for ever.
        async with asyncio.timeout(_DRAIN_SECONDS):
            await self._writer.drain()

    def next_request(self) -> bool:
        """Return whether the connection goes on, ready for the next request."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True
