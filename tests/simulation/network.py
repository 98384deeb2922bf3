"""Connections without sockets, in virtual time: an event loop's own calls lead here, so that all of the client is real, its framing included."""

from __future__ import annotations

import asyncio
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from random import Random

    from tests.simulation.trace import Trace

PORT: Final = 9092
_LENGTH: Final = Struct(">i")


class Place(NamedTuple):
    """The address of a broker, as the clients of one `site` know it: each process has a site of its own, so that its ways can be cut alone."""

    site: int
    node: int

    @property
    def host(self) -> str:
        return self.host_in(0)

    def host_in(self, subnet: int) -> str:
        """Return its address in a subnet: a cluster may move to another one."""
        return f"10.{self.site}.{subnet}.{self.node}"


class Host:
    """The machine of a broker, as clients see it: it takes connections (`up`), refuses them (`down`), or swallows all (`gone`)."""

    def __init__(self, node: int, accept: Callable[[Line], None]) -> None:
        self.node: int = node
        self.state: str = "up"
        self.accept: Callable[[Line], None] = accept


class Network:
    """The ways between clients and brokers: each message takes a drawn time, and arrives in its order.

    `install` puts it in the place of a loop's sockets. `lines` are the open connections. A cut site or way swallows all that is sent on it.
    """

    def __init__(self, random: Random, trace: Trace) -> None:
        self.hosts: dict[int, Host] = {}
        self.lines: dict[Line, None] = {}
        self.latency: float = random.choice([0.0002, 0.001, 0.001, 0.01])
        self.trace: Trace = trace
        # What takes the connections to an address in the place of its broker.
        self.others: dict[str, Callable[[Line], None]] = {}
        self._random = random
        self._splits: float = random.choice([0.0, 0.0, 0.1, 0.5])
        self._cut: set[Place] = set()
        self._gone: set[int] = set()
        self._connected: dict[Any, tuple[Place, Callable[[Line], None]]] = {}
        self._numbers = 0

    def install(self, loop: Any) -> None:
        """Have a loop connect to this network's hosts, whatever it is told."""
        loop.sock_connect = self._sock_connect
        loop.create_connection = self._create_connection

    # --- what happens to it -------------------------------------------------------------------------------------------------------------

    def cut(self, place: Place) -> None:
        """Swallow all between a site and a broker, on open connections and on new ones."""
        self._cut.add(place)

    def mend(self, place: Place) -> None:
        """Have messages get through again; connections that were used meanwhile have lost some, and break."""
        self._cut.discard(place)
        self._find_out([line for line in self.lines if line.place == place])

    def revive(self, node: int) -> None:
        """Have the machine of a broker be back: it knows none of the old connections, and breaks each as soon as that is used."""
        self.hosts[node].state = "up"
        self._find_out([line for line in self.lines if line.place.node == node])

    def _find_out(self, lines: list[Line]) -> None:
        for line in lines:
            if line.used:
                line.reset()
            else:
                line.stale = line.hollow

    def passes(self, place: Place) -> bool:
        """Return whether messages get through."""
        return place not in self._cut and place.site not in self._gone and self.hosts[place.node].state != "gone"

    def reset_all(self, node: int) -> None:
        """Break all connections of a broker, as the end of its process does."""
        for line in [line for line in self.lines if line.place.node == node]:
            line.reset()

    def hollow_all(self, node: int) -> None:
        """Have all connections of a broker lead nowhere, as the end of its machine does: the clients are not told."""
        self.hosts[node].state = "gone"
        for line in self.lines:
            if line.place.node == node:
                line.hollow = True
                line.drop()

    def leave(self, site: int) -> None:
        """End all connections of a process, as the end of the process does: its tasks are not told."""
        self._gone.add(site)
        for line in [line for line in self.lines if line.place.site == site]:
            line.abandon()

    # --- a loop's calls -----------------------------------------------------------------------------------------------------------------

    def delay(self, size: int = 0) -> float:
        """Return the time that a message takes: 100 MB/s, and now and then a moment more."""
        stall = 40 if self._random.random() < 0.01 else 1
        return self.latency * (0.5 + self._random.random()) * stall + size / 1e8

    async def _sock_connect(self, sock: socket.socket, address: tuple[str, int]) -> None:
        _, site, _, node = map(int, address[0].split("."))
        place = Place(site, node)
        await asyncio.sleep(2 * self.delay())
        host = self.hosts.get(node)
        if host is None or not self.passes(place):
            # No answer, ever: the caller's deadline ends the wait.
            await asyncio.get_running_loop().create_future()
        elif host.state == "down" and address[0] not in self.others:
            raise ConnectionRefusedError(111, "Connect call failed")
        self._connected[sock] = place, self.others.get(address[0]) or self.hosts[node].accept

    async def _create_connection(self, factory: Callable[[], Any], *, sock: socket.socket, **_: Any) -> tuple[Line, Any]:
        place, accept = self._connected.pop(sock)
        sock.close()
        protocol = factory()
        self._numbers += 1
        line = Line(self, place, protocol, self._numbers)
        self.lines[line] = None
        protocol.connection_made(line)
        accept(line)
        return line, protocol

    def pieces(self, data: bytes) -> list[bytes]:
        """Return what is sent as it arrives: at once, or in pieces that end anywhere."""
        if len(data) < 2 or self._random.random() >= self._splits:
            return [data]
        cuts = sorted({self._random.randrange(1, len(data)) for _ in range(self._random.choice([1, 1, 3]))})
        return [data[begin:end] for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True)]


class Line(asyncio.Transport):
    """A connection: the client's transport, and what the broker has of it.

    A `hollow` one looks open, and nothing gets through. The broker takes requests with `frame`, and answers with `answer`.
    """

    def __init__(self, network: Network, place: Place, protocol: Any, number: int) -> None:
        super().__init__()
        self.place: Place = place
        self.number: int = number
        self.hollow = False
        # Whether something was lost in it; whether the other side no longer knows it.
        self.used = False
        self.stale = False
        # Whether the broker's side still reads and writes.
        self.served = True
        self._network = network
        self._loop = asyncio.get_running_loop()
        self.protocol = protocol
        self._closing = False
        self._ended = False
        self._paused = False
        self._held: deque[bytes] = deque()
        self._last_to_broker = self._last_to_client = 0.0
        self._buffer = bytearray()
        self._frames: deque[bytes] = deque()
        self._wanted: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<line {self.number} to {self.place}>"

    # --- the client's side --------------------------------------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        """Send bytes to the broker."""
        if self._closing or not data:
            return
        if self._network.passes(self.place):
            if self.stale:
                self.reset()
        else:
            self.hollow = True
        if self.hollow:
            self.used = True
        else:
            self._last_to_broker = max(self._last_to_broker, self._loop.time() + self._network.delay(len(data)))
            self._loop.call_at(self._last_to_broker, self._arrive, bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        """Send bytes to the broker."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """End the connection; the broker hears of it when all has arrived."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._end, None)
            if not self.hollow and self._network.passes(self.place):
                self._loop.call_at(max(self._last_to_broker, self._loop.time() + self._network.delay()), self.drop)

    def abort(self) -> None:
        """End the connection; what is still on its way arrives all the same."""
        self.close()

    def abandon(self) -> None:
        """End it from outside, without a word to the client's side: its process is gone."""
        self._closing = self._ended = True
        self._network.lines.pop(self, None)
        if not self.hollow:
            self._loop.call_at(max(self._last_to_broker, self._loop.time() + self._network.delay()), self.drop)

    def is_closing(self) -> bool:
        return self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.place.host, PORT) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There are none."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_reading(self) -> bool:
        return not self._paused

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._hand_on)

    def _hand_on(self) -> None:
        while self._held and not self._paused and not self._ended:
            self.protocol.data_received(self._held.popleft())

    def _end(self, error: Exception | None) -> None:
        if not self._ended:
            self._closing = self._ended = True
            self._network.lines.pop(self, None)
            self.protocol.connection_lost(error)

    # --- the broker's side --------------------------------------------------------------------------------------------------------------

    def _arrive(self, data: bytes) -> None:
        if not self.served or self.hollow:
            return
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(buffer)
            if len(buffer) < _LENGTH.size + size:
                break
            self._frames.append(bytes(buffer[_LENGTH.size : _LENGTH.size + size]))
            del buffer[: _LENGTH.size + size]
        if self._frames:
            self._wake()

    def _wake(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    async def frame(self) -> bytes | None:
        """Return the next request; None at the end."""
        while not self._frames:
            if not self.served:
                return None
            self._wanted = self._loop.create_future()
            await self._wanted
        return self._frames.popleft()

    def drop(self) -> None:
        """Give up the broker's side; requests that have arrived are still read."""
        self.served = False
        self._wake()

    def answer(self, data: bytes) -> None:
        """Send bytes to the client."""
        if not self._network.passes(self.place):
            self.hollow = True
        if self.hollow or self._ended:
            self.used = True
            return
        for piece in self._network.pieces(data):
            self._last_to_client = max(self._last_to_client, self._loop.time() + self._network.delay(len(piece)))
            self._loop.call_at(self._last_to_client, self._deliver, piece)

    def _deliver(self, data: bytes) -> None:
        if not self._ended and not self.hollow:
            self._held.append(data)
            self._hand_on()

    def reset(self) -> None:
        """Break it: the client gets an error as soon as it can hear of it."""
        self._frames.clear()
        self.drop()
        if self._network.passes(self.place):
            error = ConnectionResetError(104, "Connection reset by peer")
            self._loop.call_at(max(self._last_to_client, self._loop.time() + self._network.delay()), self._end, error)
        else:
            self.hollow = self.used = True

    def finish(self) -> None:
        """End it in an orderly way."""
        self.drop()
        if not self._network.passes(self.place):
            self.hollow = self.used = True
        if not self.hollow:
            self._loop.call_at(max(self._last_to_client, self._loop.time() + self._network.delay()), self._eof)

    def _eof(self) -> None:
        if not self._ended:
            self.protocol.eof_received()
            self._end(None)
