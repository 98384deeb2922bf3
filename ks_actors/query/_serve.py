"""A read-only server of an app's stores to other processes, protected by a token."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, Final, Self, final

import msgspec

from ks_actors._errors import FailureReason, KsActorsError, QueryFailed
from ks_actors.lifecycle import component_log
from ks_actors.query._scan import SLICE_SECONDS, Scan, slices
from ks_actors.query._wire import (
    LENGTH,
    MOST_BYTES,
    VERSION,
    Describe,
    Described,
    End,
    Hello,
    ReadRows,
    Refused,
    SomeRows,
    Welcome,
    decode_request,
    encode,
)
from ks_actors.state import (
    SUFFIXES,
    CustomReader,
    KeyValueReader,
    VersionedReader,
    log_batch,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from ks_actors.query._local import LocalStores, Part
    from ks_actors.query._wire import Reply, Request
    from ks_actors.records import Batch
    from ks_actors.topology import StoreKind

_AT_ONCE: Final = 1_000
_ENCODED_AT_ONCE: Final = 100
_FRAME_BYTES: Final = 4 << 20
_CONNECTIONS: Final = 64
_HELLO_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 600.0
_DRAIN_SECONDS: Final = 60.0
_SIGN_SECONDS: Final = 10.0
_QUERY_TIMEOUT_MS: Final = 60_000
_TOKEN_BYTES: Final = 32
_log = component_log(__name__)


@final
class StoreEndpoint:
    """The endpoint where other processes can read an app's stores, from `App.serve_stores`.

    Spark reads from it with `spark.read.format("ks_actors")`. `address` is `host:port`. A client
    has to send the `token` first. Requests can only read, data is never executed, and nothing is
    encrypted. At most 64 connections are open at a time. A connection without a request for ten
    minutes is closed, and so is a connection that does not read its answer within one minute. The
    endpoint ends with the app, by `close`, or with an `async with` block.
    """

    def __init__(
        self, local: LocalStores, changelog: Callable[[str], str], token: str | None
    ) -> None:
        self.address: str = ""
        self.token: str = token or secrets.token_urlsafe(_TOKEN_BYTES)
        self._local = local
        self._changelog = changelog
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _start(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._connected, host, port)
        found = self._server.sockets[0].getsockname()
        self.address = f"[{found[0]}]:{found[1]}" if ":" in found[0] else f"{found[0]}:{found[1]}"

    async def close(self) -> None:
        """End the endpoint and all answers. Does nothing when closed already."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        tasks = tuple(self._connections)
        # The server's own `wait_closed` waits for connections to end by themselves.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            # Connections are counted before the token is checked: unknown clients must not use up
            # all sockets either.
            if len(self._connections) > _CONNECTIONS:
                await _send(
                    writer,
                    Refused(
                        "QueryFailed",
                        f"{_CONNECTIONS} other clients read from this app: try again later",
                    ),
                )
            elif await self._knows(reader, writer):
                while (request := await _receive(reader, _IDLE_SECONDS)) is not None:
                    await self._answer(request, writer)
        except (
            OSError,
            EOFError,
            ValueError,
            msgspec.MsgspecError,
        ) as error:  # a TimeoutError is an OSError, too
            _log.info(
                "dropping a reader of stores at %s: %s: %s",
                self.address,
                type(error).__name__,
                error,
            )
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()  # by `close`; this is a task of its own
        finally:
            self._connections.discard(task)
            writer.close()

    async def _knows(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        hello = await _receive(reader, _HELLO_SECONDS)
        # The time of the comparison must not reveal how much of a guessed token is right.
        if not isinstance(hello, Hello) or not compare_digest(
            hello.token.encode(), self.token.encode()
        ):
            await _send(
                writer, Refused("ConfigError", "token: this is not the token of the app's stores")
            )
            return False
        if hello.version != VERSION:
            await _send(
                writer,
                Refused(
                    "ConfigError",
                    f"the app speaks version {VERSION} of this protocol, not {hello.version}: use "
                    "the same ks_actors on both sides",
                ),
            )
            return False
        await _send(writer, Welcome())
        return True

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        try:
            match request:
                case Describe(store, stale):
                    await _send(writer, self._describe(store, stale=stale))
                case ReadRows():
                    await self._rows(request, writer)
                case Hello():
                    await _send(writer, Welcome())
        except QueryFailed as failed:
            await _send(writer, Refused("QueryFailed", str(failed), failed.reason.name))
        except KsActorsError as error:
            await _send(writer, Refused(type(error).__name__, str(error)))

    def _describe(self, store: str, *, stale: bool) -> Described:
        local = self._local
        kind = local.spec(store).kind.value
        if local.is_global(store):
            local.readable(store, None, stale=True)
            return Described(kind, "", [0], 1)
        local.check_running()
        here = sorted(part.partition for part in local.parts(store) if stale or part.active)
        return Described(kind, self._changelog(store), here, local.partitions(store))

    async def _rows(self, request: ReadRows, writer: asyncio.StreamWriter) -> None:
        local, kind = self._local, self._local.spec(request.store).kind
        number = None if local.is_global(request.store) else request.partition
        (part,) = local.readable(request.store, number, stale=request.stale)
        keys = None if request.keys is None else frozenset(request.keys)
        committed = local.committed(None) if request.committed is None else request.committed
        frames, began = _Frames(writer), local.now()
        async with _signs_of_life(writer):
            for scan in raw_scans(part, kind, request.keys, committed=committed):
                async for rows in slices(local, [part], scan, _QUERY_TIMEOUT_MS):
                    for at in range(0, len(rows), _ENCODED_AT_ONCE):
                        await frames.add(
                            raw_batch(part, kind, rows[at : at + _ENCODED_AT_ONCE], keys)
                        )
                    # If the reader has disconnected, a scan of a large store must not go on.
                    if writer.is_closing():
                        raise ConnectionResetError("the client has gone")
                if local.now() - began >= SLICE_SECONDS:  # key scans never pause
                    await asyncio.sleep(0)
                    began = local.now()
            await frames.flush()
        await _send(writer, End(frames.sent))


@final
class _Frames:
    """Rows on their way to a client, in frames of at most 1,000 rows and 4 MiB.

    A row above that size is sent in a frame of its own.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.sent: int = 0
        self._writer = writer
        self._rows = SomeRows([], [], [])
        self._size: int = 0

    async def add(self, batch: Batch) -> None:
        """Add rows, and send full frames."""
        for key, value, time in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            size, rows = len(key) + len(value), self._rows
            if len(rows.keys) >= _AT_ONCE or (rows.keys and self._size + size > _FRAME_BYTES):
                await self.flush()
                rows = self._rows
            rows.keys.append(key)
            rows.values.append(value)
            rows.timestamps.append(time)
            self._size += size

    async def flush(self) -> None:
        """Send the buffered rows."""
        rows, self._rows, self._size = self._rows, SomeRows([], [], []), 0
        if rows.keys:
            self.sent += len(rows.keys)
            await _send(self._writer, rows)


@asynccontextmanager
async def _signs_of_life(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Send an empty frame every ten seconds during the block.

    A scan may find nothing for longer than a client would wait.
    """

    async def tell() -> None:
        while not writer.is_closing():
            await asyncio.sleep(_SIGN_SECONDS)
            # Do not drain: the frame is small, and a client that does not read it fails at the next
            # rows.
            _write(writer, SomeRows([], [], []))

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()


def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    data = encode(reply)
    writer.write(LENGTH.pack(len(data)))
    writer.write(data)


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> None:
    _write(writer, reply)
    # A client that does not read would keep its rows in memory for ever.
    async with asyncio.timeout(_DRAIN_SECONDS):
        await writer.drain()


async def _receive(reader: asyncio.StreamReader, seconds: float) -> Request | None:
    """Return the next request; None when there are no more.

    Raises ValueError for a request that is too long, and the errors of decoding.
    """
    async with asyncio.timeout(seconds):
        try:
            (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        except asyncio.IncompleteReadError as end:
            # An end between two requests is a normal close.
            if end.partial:
                raise
            return None
        # Check before the bytes are read: a wrong length must not fill the memory.
        if size > MOST_BYTES:
            raise ValueError(
                f"a request of {size:,} bytes is too large: {MOST_BYTES:,} are allowed"
            )
        request: Request = decode_request(await reader.readexactly(size))
        return request


async def serve(
    local: LocalStores, changelog: Callable[[str], str], *, host: str, port: int, token: str | None
) -> StoreEndpoint:
    """Return an endpoint that takes connections.

    Raises OSError when the address is not available.
    """
    endpoint = StoreEndpoint(local, changelog, token)
    await endpoint._start(host, port)
    return endpoint


def _whole(row: Any) -> Any:
    return row


def _key_scan(low: bytes, high: bytes, *, committed: bool) -> Scan:
    return Scan(lambda reader: reader.scan(low, high, committed=committed, reverse=False), _whole)


def raw_scans(
    part: Part, kind: StoreKind, keys: Sequence[bytes] | None, *, committed: bool
) -> list[Scan]:
    """Return the scans of a partition: one scan, or one for each key if that is cheaper.

    Raises QueryFailed for kinds that cannot be scanned.
    """
    reader = part.reader
    if isinstance(reader, VersionedReader | CustomReader):
        raise QueryFailed(
            f"store {reader.name}, a {kind.value} store, cannot be read row by row: "
            "read its changelog",
            reason=FailureReason.UNKNOWN_QUERY_TYPE,
            store=reader.name,
            partition=part.partition,
        )
    if keys is not None and isinstance(reader, KeyValueReader):
        return [_key_scan(key, key + b"\0", committed=committed) for key in sorted(set(keys))]
    return [Scan(lambda reader: reader.all(committed=committed), _whole)]


def raw_batch(
    part: Part, kind: StoreKind, rows: Sequence[Any], keys: frozenset[bytes] | None
) -> Batch:
    """Return scanned rows in the form of the changelog.

    For a store with windows, return only the rows of `keys`, if given.
    """
    reader: Any = part.reader
    found = log_batch(reader.store, rows)
    if keys is None or kind not in SUFFIXES:
        return found
    cut = SUFFIXES[kind].size
    return found.select([key[:-cut] in keys for key in found.keys])
