"""Topics that were created or deleted a moment ago, which not all brokers know yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

from ks_actors._errors import LogError
from ks_actors.lifecycle import component_log
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.client._known_topics import topics_in
from ks_actors.log.kafka.client._rounds import Rounds
from ks_actors.log.kafka.wire import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from ks_actors.log.kafka.client._known_topics import KnownTopics, TopicMetadata
    from ks_actors.log.kafka.client._options import KafkaOptions

T = TypeVar("T")
_log = component_log(__name__)

# Seconds between two checks whether a broker knows of a change: the first and the longest pause.
_PAUSE_S: Final = 0.003
_LONGEST_S: Final = 0.05
# The number of brokers to ask before any broker is asked again.
_ENOUGH: Final = 3


class Asks(Protocol):
    """The methods of a client that the lookups use."""

    options: KafkaOptions

    @property
    def nodes(self) -> tuple[int, ...]: ...

    async def retry(
        self, what: str, attempt: Callable[[], Awaitable[T]], *, timeout_ms: int | None = None
    ) -> T: ...

    async def ask_metadata(
        self,
        topics: list[str] | None,
        rounds: Rounds,
        /,
    ) -> tuple[int, Mapping[str, TopicMetadata]]: ...

    async def send(self, node: int, request: Any, /) -> Any: ...


@final
class YoungTopics:
    """Ask several brokers about topics, as the metadata of a broker may lag behind."""

    __slots__ = ("_client", "_topics")

    def __init__(self, client: Asks, topics: KnownTopics) -> None:
        self._client: Asks = client
        self._topics: KnownTopics = topics

    async def find(
        self, wanted: Mapping[str, int], timeout_ms: int | None = None
    ) -> Mapping[str, TopicMetadata]:
        """Return the topics that exist among `wanted`, which has their least partition counts.

        While a topic or partition is missing, the brokers are asked in turn, for
        `missing_topic_wait_ms`. Raises LogTimeout, NotAuthorized.
        """
        found: dict[str, TopicMetadata] = {}
        turns = Turns(self._client.options.missing_topic_wait_s)

        def lacking() -> list[str]:
            known = {name: len(topic.leaders) for name, topic in found.items()}
            return [name for name, count in wanted.items() if known.get(name, 0) < count]

        async def attempt() -> None:
            try:
                _, topics = await self._client.ask_metadata(lacking(), turns.rounds)
            except Unavailable:
                turns.fall_silent()
                raise
            found.update(topics)
            self._topics.raise_refused(wanted)
            left = lacking()
            if left and turns.go_on(self._client.nodes):
                text = f"no broker that was asked knows {', '.join(left)}"
                raise Unavailable(text, refresh=False, soon=True, reported=True)

        if wanted:
            await self._client.retry("to list topics", attempt, timeout_ms=timeout_ms)
        return found

    async def spread(
        self, names: Iterable[str], heard: Callable[[Mapping[str, TopicMetadata]], bool]
    ) -> None:
        """Wait until each reachable broker knows of a change to topics.

        `heard` gets the topics that a broker knows, and returns whether the change is among them.
        The wait ends after `missing_topic_wait_ms` at the latest.
        """
        nodes = self._client.nodes
        if len(nodes) == 1:
            return  # the only broker made the change
        request = MetadataRequest(sorted(names))

        async def wait_for(node: int) -> None:
            pause = _PAUSE_S
            while not heard(topics_in(await self._client.send(node, request))):
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_S)

        try:
            async with asyncio.timeout(self._client.options.missing_topic_wait_s):
                outcomes = await asyncio.gather(*map(wait_for, nodes), return_exceptions=True)
        except TimeoutError:
            _log.debug("not all brokers have heard of %s yet", ", ".join(request.topics or ()))
            return
        for outcome in outcomes:
            if outcome is not None and not isinstance(outcome, LogError):
                raise outcome


@final
class Turns:
    """One lookup of topics that may be new: it asks several brokers for up to `wait_s` seconds.

    The time begins with the first answer that lacks a topic, since the brokers may have been
    unreachable before.
    """

    __slots__ = ("_left", "_until", "_wait_s", "rounds")

    def __init__(self, wait_s: float) -> None:
        self.rounds: Rounds = Rounds(_ENOUGH)
        self._wait_s: float = wait_s
        self._until: float | None = None
        self._left: int = _ENOUGH

    @property
    def is_over(self) -> bool:
        """Whether the answers so far are enough."""
        return self._until is not None and asyncio.get_running_loop().time() >= self._until

    def fall_silent(self) -> None:
        """Note that no broker has answered: the time begins again with the next answer."""
        self._until = None

    def go_on(self, brokers: Collection[int]) -> bool:
        """After an answer that lacks a topic, return whether to ask another of `brokers`."""
        if self._until is None:
            self._until = asyncio.get_running_loop().time() + self._wait_s
            self._left = min(_ENOUGH, len(brokers))
        self._left -= 1
        return self._left > 0 or not self.is_over
