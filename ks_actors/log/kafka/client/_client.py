"""A client of a Kafka cluster: leaders, coordinators, retries and deadlines."""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING, Any, Self, TypeVar, final

from actors.loop import ThreadLane
from ks_actors._errors import LogClosed, LogError, LogTimeout, UnknownTopicOrPartition
from ks_actors.lifecycle import component_log
from ks_actors.log.kafka._aiokafka import check_aiokafka, collect_hosts
from ks_actors.log.kafka.client._any_server import ask_any
from ks_actors.log.kafka.client._backoff import Backoff
from ks_actors.log.kafka.client._calls import end_of_step
from ks_actors.log.kafka.client._cluster import Cluster
from ks_actors.log.kafka.client._connections import (
    COORDINATION,
    MAIN,
    Connections,
    Unavailable,
    name_of_request,
    name_of_server,
)
from ks_actors.log.kafka.client._coordinators import (
    Coordinators,
    name_of_coordinator,
    raise_retriable,
)
from ks_actors.log.kafka.client._known_topics import KnownTopics
from ks_actors.log.kafka.client._leader_epochs import LeaderEpochs
from ks_actors.log.kafka.client._outages import Outages, Refusals
from ks_actors.log.kafka.client._rounds import Rounds
from ks_actors.log.kafka.client._young_topics import YoungTopics
from ks_actors.log.kafka.wire import (
    WRONG_COORDINATOR,
    MetadataRequest,
    cluster_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from ks_actors.log.kafka.client._known_topics import TopicMetadata
    from ks_actors.log.kafka.client._options import KafkaOptions
    from ks_actors.records import TopicPartition

T = TypeVar("T")

_log = component_log(__name__)

_SOON_S = 0.003
# The fewest brokers with which to look for a removed broker: it cannot report its own removal.
_BROKERS_TO_ASK = 2
# Lookups of leaders within the maximum age of metadata.
_LOOKS = 3
# More threads would not decompress faster, and each has a piece in memory.
_THREADS = min(8, os.cpu_count() or 1)


@final
class KafkaClient:
    """One user's connections to a cluster, on one event loop.

    A `send…` method retries temporary failures until its `timeout_ms` (default: `api_timeout_ms`)
    has passed. Then it raises LogTimeout with the last failure. `codes` returns the error codes of
    a response; codes that remain in a returned response are final. Requests of different channels
    do not wait for each other. Every method raises LogClosed after `close`, and NotAuthorized when
    the cluster rejects the user.
    """

    def __init__(self, bootstrap_servers: str, options: KafkaOptions, *, client_id: str) -> None:
        self.options: KafkaOptions = options
        self.client_id: str = client_id
        self._bootstrap: dict[int, tuple[str, int]] = {
            -1 - index: (host, port)
            for index, (host, port, _) in enumerate(
                collect_hosts(bootstrap_servers, randomize=False)
            )
        }
        self.bootstrap_servers: str = bootstrap_servers
        self.outages: Outages = Outages(
            pause_ms=max(options.reconnect_backoff_max_ms, options.retry_backoff_max_ms)
        )
        self.epochs: LeaderEpochs = LeaderEpochs()
        self._cluster: Cluster = Cluster()
        self._connections: Connections = Connections(
            options, client_id, self.outages, self._cluster, self._look_for_unlisted
        )
        self._topics: KnownTopics = KnownTopics(
            options.metadata_max_age_ms / 1000, options.missing_topic_wait_s
        )
        # The order of brokers for lookups of leaders, and for listings of all topics.
        self._lookups = Rounds()
        self._listings = Rounds()
        self.young: YoungTopics = YoungTopics(self, self._topics)
        self._coordinators: Coordinators = Coordinators()
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed: frozenset[str] = frozenset()
        self._keeping_up: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        # Only for short work, such as decompression: calls that may hang have their own threads.
        self.threads: ThreadLane = ThreadLane(f"{client_id} work", _THREADS)
        self._closed = False

    def __repr__(self) -> str:
        return f"<KafkaClient {self.client_id} of {self.bootstrap_servers}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self, *, timeout_ms: int | None = None) -> None:
        """Find the brokers, if they are unknown. Raises LogTimeout, NotAuthorized, ConfigError."""
        check_aiokafka()

        async def attempt() -> None:
            await self._connections.start()
            if not self._cluster.brokers:
                await self.ask_metadata([])

        what = f"to find Kafka at {self.bootstrap_servers}"
        await self.retry(what, attempt, timeout_ms=timeout_ms)
        if self._keeping_up is None:
            self._keeping_up = asyncio.create_task(self._keep_up(), name="keep up with leaders")
        # From here on the brokers are known by their own ids, so close bootstrap connections.
        for node in self._bootstrap:
            self._connections.forget(node)

    def begin_like(self, other: KafkaClient) -> None:
        """Copy the leaders that another client of the same cluster knows.

        `start` then sends no request. Both clients share the list of brokers, outages, TLS
        contexts, and tokens.
        """
        self._cluster = self._connections.cluster = other._cluster
        self._topics.begin_like(other._topics)
        self.outages = self._connections.outages = other.outages
        self._connections.tls = other._connections.tls
        self._connections.tokens = other._connections.tokens

    def share_coordinators(self, other: KafkaClient) -> None:
        """Share coordinators and leader epochs of read records with a client on the same loop."""
        self._coordinators = other._coordinators
        self.epochs = other.epochs

    async def close(self) -> None:
        """Close all connections. A second call does nothing."""
        self._closed = True
        tasks = [task for task in (self._refreshing, self._leaving, self._keeping_up) if task]
        for task in tasks:
            task.cancel()
        self.threads.retire()
        await self._connections.close()
        if tasks:
            await asyncio.wait(tasks)

    # --- retries ----------------------------------------------------------------------------------

    async def retry(
        self, what: str, attempt: Callable[[], Awaitable[T]], *, timeout_ms: int | None = None
    ) -> T:
        """Await `attempt()` repeatedly until it does not raise Unavailable.

        Raises LogTimeout, which names `what` as not done, and any other error of the attempt.
        """
        limit_ms = self.options.api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = end_of_step(limit_ms)
        backoff = Backoff()
        refusals = Refusals(what)
        soon = _SOON_S
        last: LogError | None = None
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    self._check()
                    try:
                        return await attempt()
                    except Unavailable as error:
                        last = error
                        if not error.reported:
                            refusals.note(error, asyncio.get_running_loop().time())
                        if error.soon:
                            # Such errors usually pass within milliseconds, so start with short
                            # pauses.
                            await asyncio.sleep(soon)
                            soon = max(
                                _SOON_S, min(soon * 1.5, self.options.retry_backoff_ms / 1000)
                            )
                            continue
                    pause = backoff.pause_s(self.options, away=last.away)
                    # Clients that failed at the same time should not all retry at the same time.
                    await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
                    if last.refresh:
                        last = await self._try_refresh(last)
        except TimeoutError:
            raise LogTimeout(f"failed {what} within {limit_ms} ms: {last or 'no answer'}") from last

    async def _try_refresh(self, last: LogError) -> LogError:
        try:
            await self.refresh()
        except Unavailable as error:
            return error
        return last

    def _check(self) -> None:
        if self._closed:
            raise LogClosed(f"client {self.client_id} is closed")

    @property
    def lost(self) -> int:
        """The number of requests so far with an unknown outcome.

        A broker may still process them.
        """
        return self._connections.lost

    @property
    def cluster_id(self) -> str:
        """The id of the cluster; empty until a broker has reported it."""
        return self._cluster.id

    @property
    def nodes(self) -> tuple[int, ...]:
        """The ids of the brokers, as of the last metadata."""
        return tuple(self._cluster.brokers)

    # --- sending ----------------------------------------------------------------------------------

    async def send(
        self, node: int, request: Any, *, channel: str = MAIN, timeout_ms: int | None = None
    ) -> Any:
        """Send to one broker, once.

        Raises Unavailable; in that case the broker may or may not have acted.
        """
        self._check()
        address = self._cluster.brokers.get(node) or self._bootstrap.get(node)
        if address is None:
            raise Unavailable(f"the cluster does not list broker {node} at this time")
        limit_ms = self.options.request_timeout_ms if timeout_ms is None else timeout_ms
        return await self._connections.send(node, address, channel, request, limit_ms / 1000)

    async def send_to_any(
        self,
        request: Any,
        codes: Callable[[Any], Iterable[int]] = lambda _: (),
        *,
        channel: str = MAIN,
        timeout_ms: int | None = None,
    ) -> Any:
        """Send to any broker that answers.

        If a broker refuses a request temporarily, another broker gets the request.
        """
        rounds = Rounds()

        async def attempt() -> Any:
            node, response = await self._ask_next(rounds, request, channel)
            raise_retriable(codes(response), "a broker" if node < 0 else f"broker {node}")
            return response

        return await self.retry(
            f"to send {name_of_request(request)}", attempt, timeout_ms=timeout_ms
        )

    async def _ask_next(self, rounds: Rounds, request: Any, channel: str) -> tuple[int, Any]:
        """Ask in the order of the rounds; return the first broker to answer, and its response."""
        brokers = self._cluster.brokers
        nodes = list(brokers)
        random.shuffle(nodes)

        address = {**self._bootstrap, **brokers}

        def preference(node: int) -> tuple[bool, float, bool]:
            return (
                self._connections.silent(node, address[node], channel),
                rounds.place(node),
                not self._connections.connected(node, channel),
            )

        node, response = await ask_any(
            # Servers with unanswered requests come last: each may take the whole request timeout.
            # If the whole cluster has moved, all listed addresses may be wrong: then try the
            # bootstrap servers.
            (*sorted(nodes, key=preference), *sorted(self._bootstrap, key=preference)),
            lambda node: self.send(node, request, channel=channel),
            name=lambda node: name_of_server(node, address[node]),
            connected=lambda node: self._connections.connected(node, channel),
        )
        rounds.note(node)
        return node, response

    async def ask_controller(self, request: Any) -> Any:
        """Send to the controller, once.

        Raises Unavailable; in that case the controller may or may not have acted.
        """
        controller = self._cluster.controller
        if controller is None:
            raise Unavailable("the cluster has no controller at this time")
        return await self.send(controller, request)

    async def send_to_controller(
        self, request: Any, codes: Callable[[Any], Iterable[int]], *, timeout_ms: int | None = None
    ) -> Any:
        """Send to the controller."""

        async def attempt() -> Any:
            response = await self.ask_controller(request)
            raise_retriable(codes(response), "the controller")
            return response

        return await self.retry(
            f"to send {name_of_request(request)} to the controller", attempt, timeout_ms=timeout_ms
        )

    async def send_to_leader(
        self,
        partition: TopicPartition,
        request: Any,
        codes: Callable[[Any], Iterable[int]],
        *,
        channel: str = MAIN,
        timeout_ms: int | None = None,
    ) -> Any:
        """Send to the leader of a partition. Raises UnknownTopicOrPartition."""

        async def attempt() -> Any:
            response = await self.send(await self.find_leader(partition), request, channel=channel)
            raise_retriable(codes(response), f"the leader of {partition}")
            return response

        return await self.retry(
            f"to send {name_of_request(request)} to the leader of {partition}",
            attempt,
            timeout_ms=timeout_ms,
        )

    async def send_to_coordinator(
        self,
        kind: int,
        key: str,
        request: Any,
        codes: Callable[[Any], Iterable[int]],
        *,
        channel: str = COORDINATION,
        timeout_ms: int | None = None,
        request_timeout_ms: int | None = None,
    ) -> Any:
        """Send to the coordinator of a group (`GROUP`) or transactional id (`TRANSACTION`).

        `request_timeout_ms` limits a single request (default: `request_timeout_ms` of the options).
        """
        who = name_of_coordinator(kind, key)

        async def attempt() -> Any:
            node = await self.coordinator(kind, key)
            try:
                response = await self.send(
                    node, request, channel=channel, timeout_ms=request_timeout_ms
                )
            except Unavailable:
                # If a broker cannot be reached, another broker may have taken over this role.
                self._coordinators.lose(kind, key)
                raise
            found = list(codes(response))
            if not WRONG_COORDINATOR.isdisjoint(found):
                self._coordinators.lose(kind, key)
            raise_retriable(found, who)
            return response

        try:
            return await self.retry(
                f"to send {name_of_request(request)} to {who}", attempt, timeout_ms=timeout_ms
            )
        except LogTimeout:
            # A broker that is cut off from its cluster refuses for as long as that lasts: it cannot
            # end a transaction, and does not know its successor.
            self._coordinators.lose(kind, key)
            raise

    async def coordinator(self, kind: int, key: str) -> int:
        """Return the broker of the coordinator, from the cache if known.

        Raises Unavailable, NotAuthorized.
        """
        node = self._coordinators.known(kind, key)
        if node is not None:
            return node
        found = await self._coordinators.find(
            kind, key, lambda rounds, request: self._ask_next(rounds, request, COORDINATION)
        )
        # The broker may be newer than the last list of brokers.
        self._cluster.add(found.coordinator_id, (found.host, found.port))
        return int(found.coordinator_id)

    def connect_ahead(self, topics: Iterable[str], channel: str) -> None:
        """Start connecting to the known leaders of these topics.

        The first request then need not wait for the connection.
        """
        for node in {
            node
            for topic in topics
            if topic in self._topics.found
            for node in self._topics.found[topic].leaders.values()
        }:
            address = self._cluster.brokers.get(node)
            if address is not None:
                self._connections.open_ahead(node, address, channel)

    def name(self, client_id: str) -> None:
        """Use this client id from now on."""
        self.client_id = client_id
        self._connections.name(client_id)

    def name_channel(self, channel: str, client_id: str | None) -> None:
        """Use this client id on a channel's new sockets; None: the client's own."""
        self._connections.name_channel(channel, client_id)

    def watch_late(self, tell: Callable[[], object]) -> Callable[[], None]:
        """Call `tell` every second while a request is late; return a function that ends it."""
        return self._connections.watch_late(tell)

    def late(self, node: int, channel: str) -> bool:
        """Return whether an answer or a connection is late, and no byte arrives any more."""
        address = self._cluster.brokers.get(node)
        return address is not None and self._connections.late(node, address, channel)

    def cut(self, channel: str) -> None:
        """Abort the sockets of a channel on which requests wait for answers.

        Bytes that have not reached the broker are dropped. The requests raise Unavailable.
        """
        self._connections.cut(channel)

    def disconnect(self, channel: str) -> None:
        """Close the sockets of a channel; requests under way there raise Unavailable."""
        self._connections.disconnect(channel)

    # --- metadata ---------------------------------------------------------------------------------

    def leader(self, partition: TopicPartition) -> int | None:
        """Return the known leader; None if there is none or it was never looked up.

        From this call on, every refresh checks whether the leader has moved.
        """
        return self._topics.leader(partition)

    def known(self, topic: str) -> TopicMetadata | None:
        """Return the known metadata of a topic; None if it was missing or never looked up."""
        return self._topics.found.get(topic)

    async def find_leader(self, partition: TopicPartition) -> int:
        """Return the leader; look it up if unknown.

        Raises Unavailable. Raises UnknownTopicOrPartition when no broker, asked in turn for
        `missing_topic_wait_ms`, knows the partition.
        """
        node = self.leader(partition)
        if node is None:
            await self.refresh([partition.topic])
            node = self.leader(partition)
            if node is None:
                node = await self._find_in_turn(partition)
        return node

    async def _find_in_turn(self, partition: TopicPartition) -> int:
        """Return the leader of a partition that a broker does not know."""
        why = self.why_no_leader(partition)
        if isinstance(why, UnknownTopicOrPartition):
            found = await self.young.find({partition.topic: partition.partition + 1})
            if partition.topic in found:
                node = found[partition.topic].leaders.get(partition.partition, -1)
                if node >= 0:
                    return node
            why = self.why_no_leader(partition)
        raise why

    async def look_for(self, topics: Iterable[str]) -> None:
        """Refresh once; ignore temporary failures. Raises NotAuthorized, LogClosed."""
        try:
            await self.refresh(topics)
        except Unavailable as error:
            _log.debug("could not look up leaders: %s", error)

    def why_no_leader(self, partition: TopicPartition, *, since: float | None = None) -> LogError:
        """Return the error for a partition without a leader at the last lookup.

        Unavailable means that this may change. To a caller that waits `since` a loop time, an
        absence may change, too, until brokers have told it for `missing_topic_wait_s` of the wait.
        """
        return self._topics.why_no_leader(partition, since=since)

    async def metadata(
        self,
        topics: Collection[str] | None,
        *,
        timeout_ms: int | None = None,
        patient: bool = False,
    ) -> Mapping[str, TopicMetadata]:
        """Look up topics (None: all), and return those that exist.

        Each listing of all topics comes from another broker, as a broker may not know the newest
        topics. With `patient`, a topic is missing when no broker, asked in turn for
        `missing_topic_wait_ms`, knows it; otherwise when the first broker does not know it. Raises
        LogTimeout, NotAuthorized.
        """
        names = None if topics is None else sorted(set(topics))
        if patient and names is not None:
            return await self.young.find(dict.fromkeys(names, 1), timeout_ms)

        rounds = self._listings if names is None else Rounds()

        async def attempt() -> Mapping[str, TopicMetadata]:
            _, found = await self.ask_metadata(names, rounds)
            self._topics.raise_refused(names or ())
            return found

        return await self.retry("to list topics", attempt, timeout_ms=timeout_ms)

    async def refresh(self, topics: Iterable[str] = ()) -> None:
        """Look up again the leaders of all topics tracked so far, and of `topics`.

        One request serves all concurrent calls. Raises Unavailable, NotAuthorized.
        """
        self._check()
        wanted = set(topics)
        # The lookup of a new topic may use the broker that already has a connection.
        rounds = self._lookups if wanted <= self._topics.tracked else Rounds()
        self._topics.tracked |= wanted
        task = self._refreshing
        if task is not None and not wanted <= self._refreshed:
            # The current request does not include the new topics.
            await asyncio.wait([task])
            task = self._refreshing
        if task is None or task.done():
            self._refreshed = frozenset(self._topics.tracked)
            task = self._refreshing = asyncio.create_task(
                self._refresh(rounds), name="refresh Kafka metadata"
            )
        try:
            # Callers share the task: the cancellation of one caller must not end it for the others.
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise LogClosed(f"client {self.client_id} is closed") from None
            raise

    async def _refresh(self, rounds: Rounds) -> None:
        await self.ask_metadata(sorted(self._refreshed), rounds)

    async def _keep_up(self) -> None:
        """Look up the leaders periodically: a leader that is cut off does not know its successor.

        Any minority of the brokers may be cut off, so several brokers are asked within the maximum
        age of metadata.
        """
        while True:
            await asyncio.sleep(self.options.metadata_max_age_ms / _LOOKS / 1000)
            if self._topics.tracked:
                try:
                    await self.refresh()
                except LogError as error:
                    _log.debug("could not look up leaders: %s", error)

    def watch_leaders(self, tell: Callable[[], object]) -> Callable[[], None]:
        """Call `tell` when a lookup finds other leaders; return a function that ends the calls."""
        self._topics.watchers.add(tell)
        return lambda: self._topics.watchers.discard(tell)

    def _look_for_unlisted(self) -> None:
        """Ask the other brokers whether those that do not answer are still in the cluster."""
        # Another client of the log may already have the new list.
        self._connections.leave(self._cluster.brokers.values())
        if self._leaving is not None and not self._leaving.done():
            return
        if self._closed or len(self._cluster.brokers) < _BROKERS_TO_ASK:
            return
        self._leaving = asyncio.create_task(
            self._leave_unlisted(), name="look for brokers that have left"
        )

    async def _leave_unlisted(self) -> None:
        try:
            # `refresh` would join the current request, which may be at the broker in question.
            await self.ask_metadata(sorted(self._topics.tracked))
        except LogError as error:
            _log.debug("could not look for brokers that have left: %s", error)
        else:
            self._connections.leave(self._cluster.brokers.values())

    async def ask_metadata(
        self, topics: list[str] | None, rounds: Rounds | None = None
    ) -> tuple[int, Mapping[str, TopicMetadata]]:
        """Ask once, cache the result, and return the broker, and the topics that exist."""
        try:
            node, response = await self._ask_next(rounds or Rounds(), MetadataRequest(topics), MAIN)
        except Unavailable:
            self._topics.fall_silent()
            raise
        if not response.brokers:
            raise Unavailable("the cluster has no brokers at this time")
        if not self._cluster.list(
            cluster_of(response),
            {each: (host, port) for each, host, port, *_ in response.brokers},
            response.controller_id,
        ):
            # The connection is older than the known cluster id: the next connection is refused.
            self._connections.forget(node)
            raise Unavailable(f"cluster {cluster_of(response)!r} is not {self._cluster.id!r}")
        return node, self._topics.note(response)
