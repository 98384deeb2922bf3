"""Client of `App.serve_stores`: read the stores of a running app in another process. Blocks."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final, Self, TypeVar, final

import msgspec

from ks_actors import _errors
from ks_actors._errors import ConfigError, KsActorsError, QueryFailed
from ks_actors.query import (
    LENGTH,
    Describe,
    Described,
    End,
    FailureReason,
    Hello,
    ReadRows,
    Refused,
    SomeRows,
    Welcome,
    decode_reply,
    encode,
)
from ks_actors.records import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.query import Reply, Request

T = TypeVar("T", bound="Described | Welcome")
_CONNECT_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 120.0


@final
class LiveStores:
    """A connection to an app: `with LiveStores("127.0.0.1:4711", token) as app`.

    Raises ConfigError for an invalid address or a wrong token, and QueryFailed if the app does not
    answer. Raises the app's own errors, too: QueryFailed, UnknownStore and NotRunning.
    """

    def __init__(self, address: str, token: str) -> None:
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isdecimal()):
            raise ConfigError(
                f"live: {address!r} must be host:port, the address of App.serve_stores"
            )
        self._address: str = address
        # An IPv6 address has brackets only where a port follows.
        self._place: tuple[str, int] = (host.strip("[]"), int(port))
        self._token: str = token
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        try:
            self._socket = socket.create_connection(self._place, _CONNECT_SECONDS)
        except OSError as error:
            raise self._failed(
                f"no answer: {error}. Is the app running, and does it serve its stores there?"
            ) from error
        try:
            self._socket.settimeout(_ANSWER_SECONDS)
            self._send(Hello(self._token))
            self._expect(Welcome)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def describe(self, store: str, *, stale: bool = False) -> Described:
        """Describe a store: its kind, and the partitions that this app has."""
        self._send(Describe(store, stale))
        return self._expect(Described)

    def rows(self, request: ReadRows) -> Iterator[Batch]:
        """Yield the rows of a partition at one moment, in batches shaped like those of a changelog.

        Read the iterator to its end before the next request.
        """
        self._send(request)
        count = 0
        # Rows left unread would be taken for the reply to the next request.
        while isinstance(reply := self._receive(), SomeRows):
            count += len(reply.keys)
            yield Batch(list(reply.keys), list(reply.values), reply.timestamps)
        # The count at the end reveals pieces that got lost.
        if not isinstance(reply, End) or reply.rows != count:
            raise self._failed(f"{count} rows of store {request.store} arrived, and then {reply!r}")

    def _failed(self, what: str) -> QueryFailed:
        return QueryFailed(f"stores at {self._address}: {what}", reason=FailureReason.NOT_PRESENT)

    def _send(self, request: Request) -> None:
        assert self._socket is not None
        data = encode(request)
        try:
            self._socket.sendall(LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise self._failed(f"the app no longer accepts requests: {error}") from error

    def _expect(self, kind: type[T]) -> T:
        reply = self._receive()
        if not isinstance(reply, kind):
            raise self._failed(f"expected {kind.__name__}, got {reply!r}")
        return reply

    def _receive(self) -> Reply:
        try:
            (size,) = LENGTH.unpack(self._exactly(LENGTH.size))
            reply: Reply = decode_reply(self._exactly(size))
        except OSError as error:
            raise self._failed(f"the app no longer answers: {error}") from error
        except msgspec.MsgspecError as error:
            raise self._failed(f"the server is not an app of ks_actors: {error}") from error
        if isinstance(reply, Refused):
            raise _refusal(reply, self._address)
        return reply

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        parts: list[bytes] = []
        while size:
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionResetError("the app closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _refusal(refused: Refused, address: str) -> KsActorsError:
    text = f"stores at {address}: {refused.text}"
    if refused.error == "QueryFailed":
        reason = FailureReason.__members__.get(refused.reason or "", FailureReason.STORE_EXCEPTION)
        return QueryFailed(text, reason=reason)
    kind = getattr(_errors, refused.error, KsActorsError)
    # Only the errors of these classes can be made from a text alone.
    if kind not in {_errors.ConfigError, _errors.NotRunning, _errors.UnknownStore}:
        return KsActorsError(f"{refused.error}: {text}")
    found: KsActorsError = kind(text)
    return found
