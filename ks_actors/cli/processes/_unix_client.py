"""Requests to the servers of members, at their Unix sockets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import h11

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    Headers = Sequence[tuple[bytes, bytes]]

_CHUNK: Final = 1 << 16


class Answer(NamedTuple):
    """The answer of a member; the body comes as it is sent."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: AsyncIterator[bytes]


@asynccontextmanager
async def asked(
    path: Path, target: str, *, method: str = "GET", headers: Headers = (), content: bytes = b""
) -> AsyncIterator[Answer]:
    """Send a request on a connection of its own, and yield the answer.

    Raises OSError, also for an answer that is no HTTP.
    """
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        connection = h11.Connection(h11.CLIENT)
        head = [(b"host", b"member"), (b"connection", b"close"), *headers]
        if content:
            head.append((b"content-length", str(len(content)).encode()))
        sent = connection.send(h11.Request(method=method, target=target, headers=head)) or b""
        if content:
            sent += connection.send(h11.Data(data=content)) or b""
        writer.write(sent + (connection.send(h11.EndOfMessage()) or b""))
        events = _events(connection, reader)
        first = await anext(events)
        if not isinstance(first, h11.Response):
            raise OSError(f"{path} gave no answer")
        yield Answer(first.status_code, list(first.headers), _body(events))
    except h11.RemoteProtocolError as error:
        raise OSError(f"{path} gave no HTTP: {error}") from error
    finally:
        writer.close()


async def _events(
    connection: h11.Connection, reader: asyncio.StreamReader
) -> AsyncIterator[h11.Event]:
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Event):
            yield event
            if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return


async def _body(events: AsyncIterator[h11.Event]) -> AsyncIterator[bytes]:
    async for event in events:
        if isinstance(event, h11.Data):
            yield bytes(event.data)


async def fetched(path: Path, target: str, within_s: float) -> tuple[int, bytes] | None:
    """Return the status and the body of a short answer; None if there is none in time."""
    try:
        async with asyncio.timeout(within_s), asked(path, target) as answer:
            return answer.status, b"".join([part async for part in answer.body])
    except (OSError, TimeoutError):
        return None
