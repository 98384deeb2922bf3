"""Remove dead members from a group before their sessions time out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors._errors import LogError, LogTimeout
from ks_actors.lifecycle import component_log
from ks_actors.log.kafka.client import GROUP
from ks_actors.log.kafka.group._local_members import LocalMembers
from ks_actors.log.kafka.transactions import HangingTransactions, TransactionCoordinator
from ks_actors.log.kafka.wire import NONE, DescribeGroupsRequest, leave_group
from ks_actors.system import current_member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.log._types import TransactionScope
    from ks_actors.log.kafka.client import KafkaClient
    from ks_actors.log.kafka.group._local_members import Dead

# A separate channel: while the group waits, a pending join response blocks the others.
_CHANNEL: Final = "group-burials"
_LOOK_SECONDS: Final = 0.3
_ANSWER_MS: Final = 3_000
_END_S: Final = 10
_TRANSACTION_MS: Final = 60_000
_log = component_log(__name__)


@final
class DeadMembers:
    """Remove members of dead processes, and abort their open transactions.

    Otherwise a rebalance would last until their sessions time out. At the start, `remove_former`
    removes earlier incarnations of this process, known by their client id, which no other process
    can have. Later, members on this machine are removed when they die: the lock of a dead process
    is free, and its file has the member id. Members that a supervisor starts again are left alone.
    """

    def __init__(
        self,
        client: KafkaClient,
        group_id: str,
        transactional_id: str | None,
        scope: TransactionScope | None,
    ) -> None:
        self._client: KafkaClient = client
        self._group_id: str = group_id
        self._scope: TransactionScope | None = scope
        own = current_member()
        self._local_members: LocalMembers = LocalMembers(
            client.bootstrap_servers,
            group_id,
            client.client_id,
            transactional_id or "",
            awaited=None if own is None else own.lock,
        )
        self._watching: asyncio.Task[None] | None = None
        self._former_gone = False

    @property
    def begun(self) -> bool:
        """Return whether local members are watched."""
        return self._watching is not None

    async def begin(self) -> None:
        """Register, and watch local members until `end`."""
        self._register()
        self._watching = asyncio.create_task(
            self._watch(), name=f"local members of group {self._group_id}"
        )

    async def remove_former(self, own: str) -> None:
        """Remove earlier incarnations of this process from the group, once; `own` is its member id.

        Do so between the two requests of a join: the group has given the id, and ends no rebalance
        before that member has joined. So the former member's tasks are assigned once, with this
        member. Raises LogError; after that you may call it again.
        """
        if self._former_gone:
            return
        found = await self._ask(
            DescribeGroupsRequest([self._group_id]),
            lambda answer: [each[0] for each in answer.groups],
        )
        for member_id, client_id, *_ in found.groups[0][5]:
            # A client id belongs to one instance: this member is an earlier process of the
            # instance, and its session may last long.
            if client_id == self._client.client_id and member_id != own:
                await self._remove(member_id)
        self._former_gone = True

    def know(self, member_id: str) -> None:
        """Record the id that the group has given this member."""
        try:
            self._local_members.know(member_id)
        except LogError as error:
            _log.debug(
                "could not register this member; if it dies, others notice after the session "
                "timeout: %s",
                error,
            )

    async def end(self, *, known: bool) -> None:
        """Unregister.

        If the group does not know that this member leaves (not `known`), other local members report
        it as dead.
        """
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])
        self._local_members.leave(known=known)

    def _register(self) -> None:
        """Register among the local members.

        If that is impossible, the session timeout alone reveals this process's death.
        """
        try:
            if not self._local_members.entered:
                self._local_members.enter()
        except LogError as error:
            _log.debug(
                "could not register this member; if it dies, others notice after the session "
                "timeout: %s",
                error,
            )

    async def _watch(self) -> None:
        logged = ""
        while True:
            try:
                # Register again, in case that has failed: the disk may have been full.
                self._register()
                for dead in self._local_members.dead():
                    await self._remove_local(dead)
            except Exception as error:  # noqa: BLE001 - the group finds out by itself, but later
                if logged != (logged := repr(error)):  # not three times a second
                    _log.warning(
                        "could not look for dead members of group %s on this machine: %s",
                        self._group_id,
                        logged,
                    )
            await asyncio.sleep(_LOOK_SECONDS)

    async def _remove_local(self, dead: Dead) -> None:
        try:
            if dead.member_id:
                await self._remove(dead.member_id, _ANSWER_MS)
            # An open transaction would block readers until its timeout.
            if dead.transactional_id:
                await self._end(dead.transactional_id)
            # Forget the member last: if an earlier step fails, the next check finds it again.
            dead.forget()
        except LogError as error:
            _log.debug(
                "could not remove the dead member %s from group %s yet: %s",
                dead.member_id,
                self._group_id,
                error,
            )
        finally:
            dead.release()

    async def _remove(self, member_id: str, timeout_ms: int | None = None) -> bool:
        """Remove a member; return whether the group had it. Raises LogTimeout."""
        answer = await self._ask(
            leave_group(self._group_id, member_id, None),
            lambda answer: (answer.error_code,),
            timeout_ms,
        )
        was_there = answer.error_code == NONE and all(code == NONE for *_, code in answer.members)
        if was_there:
            _log.info(
                "the process of member %s of group %s has died; the member is removed from the "
                "group",
                member_id,
                self._group_id,
            )
        return was_there

    async def _ask(
        self, request: Any, codes: Callable[[Any], Iterable[int]], timeout_ms: int | None = None
    ) -> Any:
        return await self._client.send_to_coordinator(
            GROUP, self._group_id, request, codes, channel=_CHANNEL, timeout_ms=timeout_ms
        )

    async def _end(self, transactional_id: str) -> None:
        """Abort the open transaction, so that its next owner need not wait for the timeout.

        Does nothing once another producer has the id. Also completes a transaction that did not end
        on all brokers. Raises LogTimeout.
        """
        coordination = TransactionCoordinator(self._client, transactional_id, _TRANSACTION_MS)
        try:
            async with asyncio.timeout(_END_S):
                last = await coordination.describe()
                await HangingTransactions(self._client, coordination, self._scope).complete_last(
                    last, last.identity
                )
        except TimeoutError:
            raise LogTimeout(
                f"could not end the last transaction of {transactional_id} within {_END_S} s"
            ) from None
        except LogTimeout:
            raise
        except LogError as error:
            # Another process does the same, or Kafka lacks this request, or this user may not send
            # it.
            _log.debug(
                "could not end the transaction of %s, whose process has died; Kafka aborts it "
                "after its timeout: %r",
                transactional_id,
                error,
            )
