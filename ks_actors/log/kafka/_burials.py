"""Have a group know which of its members have died, before their sessions are over."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors._errors import LogError, LogTimeout
from ks_actors.log.kafka._client import GROUP
from ks_actors.log.kafka._coordination import Coordination
from ks_actors.log.kafka._group_requests import leave_group
from ks_actors.log.kafka._lane import NOBODY
from ks_actors.log.kafka._neighbours import Neighbours
from ks_actors.log.kafka._requests import DescribeGroupsRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.log.kafka._client import KafkaClient
    from ks_actors.log.kafka._neighbours import Dead

# Not that of a member's own requests: while the group waits for others, its answer to who joins keeps what comes behind it waiting.
_CHANNEL: Final = "group-burials"
_LOOK_SECONDS: Final = 0.3
_ANSWER_MS: Final = 3_000
_PATIENCE_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 0.02
_ONGOING: Final = "Ongoing"
_log = logging.getLogger("ks_actors")


@final
class Burials:
    """Make members leave whose process has died, and abort what they left open: former selves at the start, and then neighbours, as they die.

    No rebalance of the group would be over before the sessions of those are. Of a former self the client id tells, since nobody else can have it;
    of neighbours that they have let go of their locks.
    """

    def __init__(self, client: KafkaClient, group_id: str, transactional_id: str | None) -> None:
        self._client: KafkaClient = client
        self._group_id: str = group_id
        self._neighbours: Neighbours = Neighbours(client.bootstrap_servers, group_id, client.client_id, transactional_id or "")
        self._watching: asyncio.Task[None] | None = None

    @property
    def begun(self) -> bool:
        """Return whether former selves are buried, and neighbours looked after."""
        return self._watching is not None

    async def begin(self) -> None:
        """Bury former selves, be seen by neighbours, and look after them until `end`. Raises LogError; then it may be called again."""
        # A neighbour that is about to bury the former self would take this one with it.
        await self._enter()
        await self._bury(self._client.client_id)
        self._watching = asyncio.create_task(self._watch(), name=f"neighbours in group {self._group_id}")

    async def end(self, *, known: bool) -> None:
        """Be seen no more; unless it is `known` to the group that this member leaves, neighbours tell it."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])
        self._neighbours.leave(known=known)

    async def _enter(self) -> None:
        deadline = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
        while not self._entered() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - locks of files tell nobody
            await asyncio.sleep(_RETRY_SECONDS)

    def _entered(self) -> bool:
        """Return whether neighbours see this member, or never will."""
        try:
            if not self._neighbours.entered:
                self._neighbours.enter()
        except LogError as error:
            _log.debug("others find out by the session timeout when this process dies: %s", error)
            return True
        return self._neighbours.entered

    async def _watch(self) -> None:
        while True:
            try:
                self._entered()
                for dead in self._neighbours.dead():
                    await self._bury_neighbour(dead)
            except LogError as error:
                _log.debug("who of group %s has died on this machine is looked for again: %s", self._group_id, error)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _bury_neighbour(self, dead: Dead) -> None:
        try:
            # Who died before it had said who it is was no member.
            if dead.client_id:
                await self._bury(dead.client_id, _ANSWER_MS)
            if dead.transactional_id:
                await self._abort(dead.transactional_id)
            dead.forget()
        finally:
            dead.release()

    async def _bury(self, client_id: str, timeout_ms: int | None = None) -> None:
        async def ask(request: Any, codes: Callable[[Any], Iterable[int]]) -> Any:
            return await self._client.send_to_coordinator(GROUP, self._group_id, request, codes, channel=_CHANNEL, timeout_ms=timeout_ms)

        found = await ask(DescribeGroupsRequest([self._group_id]), lambda answer: [each[0] for each in answer.groups])
        for member_id, its_client_id, *_ in found.groups[0][5]:
            if its_client_id == client_id:
                _log.info("the member %s of group %s is of a process that has died, and is made to leave", member_id, self._group_id)
                await ask(leave_group(self._group_id, member_id, None), lambda answer: (answer.error_code,))

    async def _abort(self, transactional_id: str) -> None:
        """End the transaction that is open: whoever takes over would wait until it times out. One that has come again has none as yet."""
        coordination = Coordination(self._client, transactional_id, _ANSWER_MS)
        try:
            async with asyncio.timeout(_ANSWER_MS / 1000):
                if (await coordination.look()).state == _ONGOING:
                    await coordination.begin(NOBODY)
        except TimeoutError as late:
            raise LogTimeout(f"the transaction of {transactional_id} could not be ended within {_ANSWER_MS} ms") from late
        except LogTimeout:
            raise
        except LogError as error:
            # Somebody else is at it; or a Kafka that cannot be asked, or not by this user.
            _log.debug("the transaction of %s, whose process has died, is left to Kafka: %s", transactional_id, error)
