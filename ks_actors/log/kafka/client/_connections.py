"""Sockets to brokers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from ks_actors._errors import LogClosed, LogError, NotAuthorized
from ks_actors.lifecycle import component_log
from ks_actors.log.kafka._aiokafka import (
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from ks_actors.log.kafka.client._addresses import connect_to_any, listed
from ks_actors.log.kafka.client._connection import Connection, WrongBroker
from ks_actors.log.kafka.client._outages import Line
from ks_actors.log.kafka.client._throttles import Throttles
from ks_actors.log.kafka.client._tls import TlsFiles
from ks_actors.log.kafka.client._tokens import NoToken, Tokens
from ks_actors.log.kafka.client._unanswered_requests import Unanswered
from ks_actors.log.kafka.login import Step, check_kerberos, told, why_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.log.kafka.client._cluster import Cluster
    from ks_actors.log.kafka.client._options import KafkaOptions
    from ks_actors.log.kafka.client._outages import Outages

MAIN: Final = "main"
COORDINATION: Final = "coordination"
PRODUCE: Final = "produce"
_CLOSE_S: Final = 1.0
# SO_LINGER of 0 seconds: the close sends RST, and drops the bytes in the kernel's buffer.
_RESET: Final = struct.pack("ii", 1, 0)
_log = component_log(__name__)
# Seconds without an answer before a warning, unless the request asks the broker to wait.
_SILENT_S: Final = 3.0
# Seconds without a byte before an answer that has begun counts as stuck: a slow network that is
# asked for it once more would carry neither of the two in time.
_STUCK_S: Final = 10.0
# Seconds after a byte on any socket during which a broker works: sockets that wait may be dead.
_HEARD_S: Final = 2.0
# Seconds without a byte before a connection is replaced if it owes only answers without a caller.
_OWING_S: Final = 2.0
_REFUSED = (SaslAuthenticationFailed, UnsupportedSaslMechanismError)


class Unavailable(LogError):
    """A failure after which a retry may succeed.

    With `refresh`, look up leaders and coordinators before the retry. With `soon`, an immediate
    retry is worthwhile. With `away` there was no connection, so no request was sent. With
    `reported` the failure is already logged.
    """

    def __init__(
        self,
        message: str,
        *,
        refresh: bool = True,
        soon: bool = False,
        away: bool = False,
        reported: bool = False,
    ) -> None:
        super().__init__(message)
        self.reported: bool = reported
        self.refresh: bool = refresh
        self.soon: bool = soon
        self.away: bool = away


class _Opening(NamedTuple):
    """An attempt to connect, and the address of the broker."""

    task: asyncio.Task[Connection]
    where: str


@final
class Connections:
    """One socket per broker and channel.

    Brokers answer the requests of a socket in order, so requests that may wait long have a channel
    of their own. Channels differ in nothing else. `lost` counts requests with an unknown outcome.
    `outages` reports silent brokers. Clients share `outages`, `tls`, `tokens` and `cluster`.
    A new connection to a broker of another cluster is refused. `doubted` is called every two
    seconds while a broker does not answer; `leave` then drops brokers that the cluster no longer
    lists.
    """

    def __init__(
        self,
        options: KafkaOptions,
        client_id: str,
        outages: Outages,
        cluster: Cluster,
        doubted: Callable[[], object],
    ) -> None:
        self.outages: Outages = outages
        self.cluster: Cluster = cluster
        self.tls: TlsFiles = TlsFiles(options)
        self.tokens: Tokens | None = Tokens(options) if options.takes_token else None
        self._stuck_s: float = min(_STUCK_S, options.request_timeout_ms / 2000)
        self._unanswered: Unanswered = Unanswered(
            lambda: self.outages, min(_SILENT_S, options.request_timeout_ms / 2000), doubted
        )
        self._options: KafkaOptions = options
        self._client_id: str = client_id
        self._named: dict[str, str] = {}
        self._ready: dict[tuple[int, str], Connection] = {}
        self._opening: dict[tuple[int, str], _Opening] = {}
        # The current attempts, and recently cancelled attempts.
        self._attempts: set[asyncio.Task[Connection]] = set()
        self._closing: dict[asyncio.Future[None], asyncio.WriteTransport] = {}
        self._throttles: Throttles = Throttles()
        self.lost = 0
        self._closed = False

    async def start(self) -> None:
        """Load the TLS files and Kerberos's library, if any. Raises ConfigError."""
        await self.tls.context()
        if self._options.sasl_mechanism == "GSSAPI":
            check_kerberos()

    def name(self, client_id: str) -> None:
        """Use this client id from now on, also on open sockets without a name of their own."""
        self._client_id = client_id
        for (_, channel), connection in self._ready.items():
            if channel not in self._named:
                connection.be_named(client_id)

    def name_channel(self, channel: str, client_id: str | None) -> None:
        """Use this client id on a channel's new sockets; None: the id of the other channels."""
        if client_id is None:
            self._named.pop(channel, None)
        else:
            self._named[channel] = client_id

    def connected(self, node: int, channel: str) -> bool:
        """Return whether the broker has a socket in this channel that looks alive."""
        connection = self._ready.get((node, channel))
        return connection is not None and connection.connected

    def silent(self, node: int, address: tuple[str, int], channel: str) -> bool:
        """Return whether a request would probably wait on a channel to a broker."""
        works = any(
            its == node and connection.hears(_HEARD_S)
            for (its, _), connection in self._ready.items()
        )
        return self._unanswered.silent(self._line(address, channel), alone=works)

    def watch_late(self, tell: Callable[[], object]) -> Callable[[], None]:
        """Call `tell` every second while a request is late; return a function that ends it."""
        self._unanswered.watchers.add(tell)
        return lambda: self._unanswered.watchers.discard(tell)

    def late(self, node: int, address: tuple[str, int], channel: str) -> bool:
        """Return whether an answer or a connection is late, and no byte arrives any more."""
        connection = self._ready.get((node, channel))
        return self._unanswered.late(self._line(address, channel)) and not (
            connection is not None and connection.arriving and connection.hears(self._stuck_s)
        )

    async def send(
        self, node: int, address: tuple[str, int], channel: str, request: Any, timeout_s: float
    ) -> Any:
        """Send one request, once, and return the response.

        `timeout_s` includes the time to connect, but not a pause that the broker has requested,
        which may take up to `timeout_s` in addition. Raises Unavailable when the broker cannot be
        reached or does not answer: it may or may not have acted. Raises NotAuthorized, LogClosed.
        """
        key, where = (node, channel), name_of_server(node, address)
        line = self._line(address, channel)
        # While the connection is muted, the broker does not read from it.
        if not await self._throttles.wait(node, channel, timeout_s):
            reason = f"{where} throttles this client for longer than {timeout_s:.1f} s"
            raise Unavailable(reason, refresh=False, reported=True)
        # Time beyond the usual request timeout is a wait that the request asks the broker for.
        allowance = timeout_s - self._options.request_timeout_ms / 1000
        connection: Connection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connected(node, address, channel)
                with self._unanswered.until_answered(line, name_of_request(request), allowance):
                    response = await connection.send(request)
            self._throttles.note(node, channel, where, getattr(response, "throttle_time_ms", 0))
            return response
        except TimeoutError:
            if connection is None:
                reason = f"{where} did not accept a connection within {timeout_s:.1f} s"
                raise self._report_outage(line, reason, away=True) from None
            self.lost += 1
            # On this socket a late answer would be taken for the answer to the next request.
            self._abort(key, connection)
            raise self._report_outage(
                line,
                f"{where} did not answer {name_of_request(request)} within {timeout_s:.1f} s",
            ) from None
        except (KafkaConnectionError, OSError) as error:
            self.lost += 1
            # If the socket is no longer in `_ready`, this client closed it, or its failure is
            # already logged.
            broke = self._ready.get(key) is connection
            if connection is not None:
                self._close(key, connection)
            if self._closed:
                raise LogClosed("the connection to Kafka was closed meanwhile") from error
            reason = f"the connection to {where} broke: {error}"
            if connection is not None and connection.young and not self._options.sasl_mechanism:
                tls = bool(self._options.tls)
                why = why_failed(Step.IDENTITY, error, tls=tls, known=node >= 0)
                reason = f"{where} cannot be reached: {why}"
            raise (self._report_outage(line, reason) if broke else Unavailable(reason)) from error
        except KafkaError as error:
            self.lost += 1
            if connection is not None:
                self._close(key, connection)
            raise Unavailable(f"{where}: {type(error).__name__} {error}") from error
        except asyncio.CancelledError:
            # The request may have been sent: the broker acts on it, though no caller waits.
            self.lost += connection is not None
            raise
        except NotImplementedError as error:
            raise LogError(
                f"{where} has no usable version of {name_of_request(request)}: use Kafka 2.8 to 4.x"
            ) from error

    async def _connected(self, node: int, address: tuple[str, int], channel: str) -> Connection:
        """Return the existing connection, or a new connection."""
        key = (node, channel)
        connection = self._ready.get(key)
        if connection is not None and connection.outlived:
            # The broker would soon close the connection. Waiting keeps the order of requests.
            await connection.until_answered()
            self._close(key, connection)
            connection = self._ready.get(key)
        # Calls that ask several brokers cancel the slower requests, so no timeout ends a connection
        # that is dead. Other channels carry requests whose order counts.
        if connection is not None and channel == MAIN and connection.owing(_OWING_S):
            self._abort(key, connection)
            connection = None
        if connection is None or not connection.connected:
            connection = await self._open(node, address, channel)
        return connection

    def _line(self, address: tuple[str, int], channel: str) -> Line:
        return Line(_where(address), id(self), channel)

    def _report_outage(self, line: Line, reason: str, *, away: bool = False) -> Unavailable:
        """Report the outage of a broker, and return the error for the caller."""
        self.outages.failed(line, reason)
        return Unavailable(reason, away=away, reported=True)

    async def _open(self, node: int, address: tuple[str, int], channel: str) -> Connection:
        """Return a new connection; concurrent callers share it."""
        if self._closed:
            raise LogClosed("the connection to Kafka is closed")
        task = self._begin_opening(node, address, channel)
        try:
            # Other requests may wait for the same connection.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if task.cancelled() and waiting is not None and not waiting.cancelling():
                if self._closed:
                    raise LogClosed("the connection to Kafka was closed meanwhile") from None
                reason = f"the connection to {name_of_server(node, address)} was given up"
                raise Unavailable(reason, away=True) from None
            raise

    def _begin_opening(
        self, node: int, address: tuple[str, int], channel: str
    ) -> asyncio.Task[Connection]:
        key = (node, channel)
        opening = self._opening.get(key)
        if opening is not None and not opening.task.cancelling():
            return opening.task
        self._drop(key)
        task = asyncio.create_task(
            self._connect(node, address, channel), name=f"connect to broker {node}"
        )
        self._opening[key] = _Opening(task, _where(address))
        self._attempts.add(task)
        task.add_done_callback(lambda done: self._opened(key, done))
        return task

    def open_ahead(self, node: int, address: tuple[str, int], channel: str) -> None:
        """Start connecting for the first sender; if that fails, the sender tries again."""
        if not self._closed and not self.connected(node, channel):
            self._begin_opening(node, address, channel)

    def _opened(self, key: tuple[int, str], task: asyncio.Task[Connection]) -> None:
        self._attempts.discard(task)
        opening = self._opening.get(key)
        wanted = opening is not None and opening.task is task
        if wanted:
            del self._opening[key]
        if task.cancelled() or task.exception() is not None:
            return
        if wanted and not self._closed:
            self._ready[key] = task.result()
        else:
            # No other code would close this connection later.
            task.result().close()

    async def _connect(self, node: int, address: tuple[str, int], channel: str) -> Connection:
        options = self._options
        host, port = address
        where = name_of_server(node, address)
        line = self._line(address, channel)
        context = await self.tls.context()
        if self.tokens is not None:
            # Get a token before there is a socket, as the broker does not wait long for a login.
            try:
                await self.tokens.current()
            except NoToken as error:
                reason = f"{where} cannot be reached: {Step.TOKEN} failed: {error}"
                raise Unavailable(reason, away=True) from error
        tried: dict[str, str] = {}
        begun: list[Connection] = []

        async def begin(connected: socket.socket) -> Connection:
            name = self._named.get(channel, self._client_id)
            connection = Connection(self._note_closing, address, name, options, self.tokens)
            begun.append(connection)
            return await connection.take(connected, context, self.cluster.id, node)

        def failed(error: BaseException | str) -> str:
            step = begun[-1].step if begun else Step.CONNECT if tried else Step.RESOLVE
            reason = why_failed(step, error, tls=context is not None, known=node >= 0)
            return f"{where} cannot be reached: {reason}"

        try:
            async with asyncio.timeout(options.connect_timeout_ms / 1000):
                with self._unanswered.until_answered(line, "a connection", 0.0, answers=False):
                    return await connect_to_any(
                        host,
                        port,
                        tried,
                        begin,
                        others_may=_others_may,
                        unwanted=lambda late: late.close(),
                    )
        except SaslAuthenticationFailed as error:
            who, how = self._login_name(), options.sasl_mechanism
            reason = f"it refuses to authenticate {who} by {how}: {told(error)}"
            raise NotAuthorized(failed(reason)) from error
        except (
            UnsupportedSaslMechanismError,
            ssl.SSLCertVerificationError,
            NotAuthorized,
        ) as error:
            raise NotAuthorized(failed(error)) from error
        except TimeoutError:
            silent = f"it did not end within {options.connect_timeout_ms} ms"
            if not tried.keys() <= {host}:
                silent += f"; its addresses: {listed(tried)}"
            raise self._report_outage(line, failed(silent), away=True) from None
        except ssl.SSLError as error:
            raise self._report_outage(line, failed(error)) from error
        except WrongBroker as error:
            reason = f"{where} is refused, and nothing is read or written there: {error.args[0]}"
            raise self._report_outage(line, reason, away=True) from error
        except (OSError, KafkaError) as error:
            raise self._report_outage(line, failed(error), away=True) from error

    def _login_name(self) -> str:
        if self._options.sasl_mechanism == "GSSAPI":
            return "the Kerberos ticket of this process"
        return repr(self._options.sasl_username) if self.tokens is None else self.tokens.name

    def _drop(self, key: tuple[int, str]) -> None:
        """Close the socket to a broker, even if it is still being opened."""
        connection, opening = self._ready.get(key), self._opening.get(key)
        if connection is not None:
            self._close(key, connection)
        if opening is not None:
            opening.task.cancel()

    def _close(self, key: tuple[int, str], connection: Connection) -> asyncio.Future[None]:
        """Close a connection, even if a newer connection has already replaced it."""
        if self._ready.get(key) is connection:
            del self._ready[key]
        return connection.close()

    def _abort(self, key: tuple[int, str], connection: Connection) -> None:
        """Close the socket to a broker that does not answer.

        Unsent bytes are dropped, also those in the kernel: if the broker resumed, it would act on
        these requests long after another broker has done the work.
        """
        closed = self._close(key, connection)
        transport = self._closing.get(closed)
        if transport is not None:
            plain = transport.get_extra_info("socket")
            # uvloop raises ValueError for a closed socket.
            with suppress(OSError, ValueError):
                # Without this the kernel sends its buffer after the close, for minutes if need be.
                if plain is not None:
                    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()

    def _note_closing(
        self, closed: asyncio.Future[None], transport: asyncio.WriteTransport
    ) -> None:
        self._closing[closed] = transport
        closed.add_done_callback(self._closing.pop)

    def cut(self, channel: str) -> None:
        """Abort the sockets of a channel on which requests wait for answers."""
        for key, connection in tuple(self._ready.items()):
            if key[1] == channel and connection.waiting:
                self._abort(key, connection)

    def disconnect(self, channel: str) -> None:
        """Close the sockets of a channel; requests under way there raise Unavailable."""
        self._drop_all(lambda _, its: its == channel)

    def forget(self, node: int) -> None:
        """Close all sockets to a broker."""
        self._drop_all(lambda its, _: its == node)

    def _drop_all(self, are: Callable[[int, str], bool]) -> None:
        for key in [key for key in (*self._ready, *self._opening) if are(*key)]:
            self._drop(key)

    def leave(self, listed: Iterable[tuple[str, int]]) -> None:
        """Close all sockets to brokers that do not answer and are not at one of these addresses.

        The cluster has fenced such a broker, so its partitions and groups are elsewhere. Requests
        under way there raise Unavailable. Bootstrap servers stay: their configured addresses may
        differ from those that the cluster lists.
        """
        stays = set(map(_where, listed))
        for where, reason in self._unanswered.doubtful().items():
            if where in stays:
                continue
            ready = [
                (key, connection)
                for key, connection in self._ready.items()
                if key[0] >= 0 and _where((connection.host, connection.port)) == where
            ]
            opening = [
                found.task
                for key, found in self._opening.items()
                if key[0] >= 0 and found.where == where
            ]
            if not ready and not opening:
                continue
            _log.info(
                "%s %s, and is no longer in the cluster; its requests go to other brokers",
                where,
                reason,
            )
            for key, connection in ready:
                self._abort(key, connection)
            for task in opening:
                task.cancel()

    async def close(self) -> None:
        """Close all sockets; requests under way raise LogClosed.

        With TLS both sides announce the close, so this waits for brokers, at most a second.
        """
        self._closed = True
        self._unanswered.close()
        self._drop_all(lambda *_: True)
        if self._attempts:
            await asyncio.wait(tuple(self._attempts), timeout=_CLOSE_S)
        if self._closing:
            await asyncio.wait(tuple(self._closing), timeout=_CLOSE_S)
        for transport in tuple(self._closing.values()):
            transport.abort()
        if self._closing:
            await asyncio.wait(tuple(self._closing), timeout=_CLOSE_S)
        self.outages.forget(id(self))


def _others_may(error: BaseException) -> bool:
    """Return whether to try another address of a broker after this error of an address."""
    return isinstance(error, OSError | KafkaError) and not isinstance(
        error, (ssl.SSLError, *_REFUSED)
    )


def name_of_request(request: Any) -> str:
    """Return the name of a request."""
    struct = getattr(request, "struct", None)
    return (type(request) if struct is None else struct).__name__


def name_of_server(node: int, address: tuple[str, int]) -> str:
    """Return the name of a broker; bootstrap servers have no id yet."""
    return f"{f'broker {node}' if node >= 0 else 'bootstrap server'} at {address[0]}:{address[1]}"


def _where(address: tuple[str, int]) -> str:
    return f"broker at {address[0]}:{address[1]}"
