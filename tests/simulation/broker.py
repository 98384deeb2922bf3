"""A broker: it serves connections, leads partitions as far as it knows, and can be killed, frozen, and cut off from the cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ks_actors.records import TopicPartition
from tests.simulation.coordinators import Shard
from tests.simulation.messages import read_request, write_response
from tests.simulation.network import Host, Line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import TypeAlias

    from tests.simulation.cluster import Cluster, Image, TopicImage
    from tests.simulation.logs import Log
    from tests.simulation.messages import Request

    Handler: TypeAlias = "Callable[[Broker, Call], Awaitable[dict[str, Any] | None]]"

NOT_LEADER: Final = 6
UNKNOWN_TOPIC: Final = 3
_API_VERSIONS: Final = "ApiVersions"


class Call(NamedTuple):
    """A request, and the connection that it came by."""

    request: Request
    line: Line

    @property
    def fields(self) -> dict[str, Any]:
        return self.request.fields


class Led(NamedTuple):
    """A partition that a broker leads, as far as it knows: the id of its topic, its leader epoch, and its log here."""

    topic: bytes
    epoch: int
    log: Log


HANDLERS: Final[dict[str, Handler]] = {}


def answers(name: str) -> Callable[[Handler], Handler]:
    """Have a function answer the requests of a name."""

    def note(handler: Handler) -> Handler:
        HANDLERS[name] = handler
        return handler

    return note


class Broker:
    """A node of the cluster.

    `runs` tells whether its process does, `isolated` whether it can reach no other broker, though clients reach it. While it is frozen it does
    nothing. The controller fences one that it does not hear of; its `era` changes with each start.
    """

    def __init__(self, node: int, cluster: Cluster) -> None:
        self.node: int = node
        self.cluster: Cluster = cluster
        self.host: Host = Host(node, self._accept)
        cluster.network.hosts[node] = self.host
        self.image: Image = cluster.truth
        self.led: dict[TopicPartition, Led] = {}
        self.era: int = 0
        self.runs = True
        self.isolated = False
        self.fenced = False
        self.frozen = False
        # The seconds that each request takes more than usual; how many answers are to be lost, with their connections.
        self.slow: float = 0.0
        self.loses: int = 0
        # What handlers keep here: fetch sessions, coordinators.
        self.sessions: dict[int, Any] = {}
        self.shards: dict[TopicPartition, Shard] = {}
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._tasks: dict[asyncio.Task[None], Line] = {}
        self._changed: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<broker {self.node}>"

    @property
    def connected(self) -> bool:
        """Whether it works, and the others see that."""
        return self.runs and not self.isolated and not self.frozen

    # --- what it knows ------------------------------------------------------------------------------------------------------------------

    def learn(self, image: Image) -> None:
        """Hear of a newer image: begin to lead, and end to lead, what that says."""
        if not self.runs or self.isolated or self.frozen or image.version < self.image.version:
            return
        before, self.image = self.image, image
        begins = not self.led
        for name in {**before.topics, **image.topics}:
            now = image.topics.get(name)
            if begins or now is not before.topics.get(name):
                self._lead(name, now)
        self.wake()

    def _lead(self, name: str, topic: TopicImage | None) -> None:
        led = {} if topic is None else {number: epoch for number, (leader, epoch, _) in enumerate(topic.partitions) if leader == self.node}
        for partition in [each for each in self.led if each.topic == name]:
            held = self.led[partition]
            if topic is None or held.topic != topic.id or held.epoch != led.get(partition.partition):
                del self.led[partition]
                self._end_shard(partition)
        for number, epoch in led.items():
            partition = TopicPartition(name, number)
            truth = self.cluster.partition(partition)
            # What is out of date already is not begun any more.
            if partition not in self.led and topic is not None and truth is not None and truth.epoch == epoch and truth.leader == self.node:
                log = truth.log
                log.wake = self.wake
                self.led[partition] = Led(topic.id, epoch, log)
                if topic.internal:
                    manners = self.cluster.manners
                    loading = manners.loading * self.cluster.random.random() if epoch else 0.0
                    self.shards[partition] = Shard(partition, asyncio.get_running_loop().time() + loading)

    def _end_shard(self, partition: TopicPartition) -> None:
        shard = self.shards.pop(partition, None)
        if shard is not None:
            shard.end()

    def judge(self, partition: TopicPartition) -> int:
        """Return the error code for a request about a partition, 0 if this broker leads it."""
        if partition in self.led:
            return 0
        topic = self.image.topics.get(partition.topic)
        return UNKNOWN_TOPIC if topic is None or not 0 <= partition.partition < len(topic.partitions) else NOT_LEADER

    def wake(self) -> None:
        """Have all that wait for a change look again."""
        if self._changed is not None:
            changed, self._changed = self._changed, None
            if not changed.done():
                changed.set_result(None)

    async def change(self, deadline: float) -> bool:
        """Wait for any change; return False at the deadline."""
        loop = asyncio.get_running_loop()
        if loop.time() >= deadline:
            return False
        if self._changed is None:
            self._changed = loop.create_future()
        await asyncio.wait([self._changed], timeout=deadline - loop.time())
        return True

    # --- what happens to it -------------------------------------------------------------------------------------------------------------

    def kill(self, *, machine: bool = False) -> None:
        """End its process, or its whole machine, of which nobody is told."""
        if not self.runs:
            return
        self.runs = False
        if machine:
            self.cluster.network.hollow_all(self.node)
        else:
            self.host.state = "down"
            self.cluster.network.reset_all(self.node)
        self.end_tasks()
        self._forget()
        self.cluster.lost_sight(self)

    def end_tasks(self) -> None:
        """End what it does."""
        for task in self._tasks:
            task.cancel()

    def _forget(self) -> None:
        self.led.clear()
        self.sessions.clear()
        for partition in tuple(self.shards):
            self._end_shard(partition)
        self.loses = 0

    def start(self) -> None:
        """Start its process again."""
        if self.runs:
            return
        self.runs = True
        self.era += 1
        self.isolated = self.frozen = False
        self._thawed.set()
        self.cluster.network.revive(self.node)
        for partition in self.cluster.partitions():
            if partition.leader == self.node:
                partition.log.restore_producers()
        self.image = self.image._replace(version=-1)
        self.cluster.saw_again(self)

    def isolate(self) -> None:
        """Cut it off from all other brokers, but from no client."""
        if self.runs and not self.isolated:
            self.isolated = True
            self.cluster.lost_sight(self)

    def rejoin(self) -> None:
        """Connect it with the others again."""
        if self.isolated:
            self.isolated = False
            self.era += 1
            if self.connected:
                self.cluster.saw_again(self)

    def freeze(self) -> None:
        """Stop it, with all its connections open."""
        if self.runs and not self.frozen:
            self.frozen = True
            self._thawed.clear()
            self.cluster.lost_sight(self)

    def thaw(self) -> None:
        """Have it go on where it was."""
        if self.frozen:
            self.frozen = False
            self._thawed.set()
            self.era += 1
            if self.connected:
                self.cluster.saw_again(self)

    # --- requests -----------------------------------------------------------------------------------------------------------------------

    def _accept(self, line: Line) -> None:
        self.begin(self._serve(line), line)

    def begin(self, work: Coroutine[Any, Any, None], line: Line) -> None:
        """Run a coroutine that ends with the process."""
        task = self.cluster.begin(work)
        self._tasks[task] = line
        task.add_done_callback(self._tasks.pop)

    async def _serve(self, line: Line) -> None:
        """Answer the requests of a connection, one after the other."""
        trace = self.cluster.trace
        while (frame := await line.frame()) is not None:
            await self._thawed.wait()
            if self.slow:
                await asyncio.sleep(self.slow * self.cluster.random.random())
            request = read_request(frame)
            trace.note_bytes(request.api.name, frame, self.node, line.number)
            response = await HANDLERS[request.api.name](self, Call(request, line))
            await self._thawed.wait()
            if response is None:
                continue
            if self.loses and request.api.name != _API_VERSIONS:
                self.loses -= 1
                trace.note("loses", request.api.name, self.node)
                if self.cluster.random.random() < 0.3:
                    line.hollow = line.used = True
                else:
                    line.reset()
                return
            frame = write_response(request, response)
            trace.note_bytes("answer", frame, request.api.name, self.node, line.number)
            line.answer(frame)
