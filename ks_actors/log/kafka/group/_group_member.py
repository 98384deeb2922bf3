"""The group protocol of one member."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from ks_actors._errors import LogClosed, LogError, LogTimeout
from ks_actors.lifecycle import component_log, in_thread
from ks_actors.log._lease import Lease
from ks_actors.log._types import GroupMetadata, MemberAssignment
from ks_actors.log.kafka.client import GROUP
from ks_actors.log.kafka.group._dead_members import DeadMembers
from ks_actors.log.kafka.wire import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    decode_assignment,
    decode_member,
    encode_member,
    error_of,
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence

    from ks_actors.log._port import Assignor, NewMember
    from ks_actors.log._types import MemberInfo
    from ks_actors.log.kafka.client import KafkaClient

HEARTBEAT_MS: Final = 300
_JOIN: Final = "group-join"
_BEAT: Final = "group-heartbeat"
_RETRY_SECONDS: Final = 0.1
_LEAVE_MS: Final = 3_000
# The least time between two checks of the progress of the owner's loop: a check wakes the loop.
_CHECK_MS: Final = 1_000
_ANSWER_MS: Final = 5_000
# The heartbeats that the next generation refuses before the answer to a join counts as lost.
_REFUSALS: Final = 4
# Seconds between the leader's checks for changed partition counts; shorter while a topic is
# missing.
_WATCH_SECONDS: Final = 5.0
_WATCH_MISSING_SECONDS: Final = 0.5
_log = component_log(__name__)


@final
class GroupMember:
    """One member of a group: it joins, sends heartbeats, revokes, and joins again.

    The member lives on a loop free of user code, so its heartbeats continue. It reports events by
    `post`, which calls the owner on the owner's loop while that loop is `there`. Call all methods
    of the member on the member's loop.
    """

    def __init__(
        self,
        client: KafkaClient,
        owner: Owner,
        post: Callable[..., None],
        there: Callable[[], bool],
        *,
        group_id: str,
        new: NewMember,
    ) -> None:
        self._client: KafkaClient = client
        self._owner: Owner = owner
        self._post: Callable[..., None] = post
        self._owner_is_open: Callable[[], bool] = there
        self._topics: frozenset[str] = frozenset(new.topics)
        self._user_data: bytes = new.user_data
        self._session_ms: int = new.session_timeout_ms
        self._rebalance_ms: int = new.rebalance_timeout_ms
        self._instance_id: str | None = new.instance_id
        self._assignor: Assignor = new.assignor
        self._lease: Lease = new.lease or Lease()
        self._dead_members: DeadMembers | None = (
            DeadMembers(client, group_id, new.transactional_id, new.transaction_scope)
            if new.takes_over
            else None
        )
        self._beat_seconds: float = (
            # At least three heartbeats in a session, as Kafka advises, and four in the rebalance
            # timeout: the member must learn of a rebalance early enough to take part.
            min(HEARTBEAT_MS, new.session_timeout_ms / 3, new.rebalance_timeout_ms / 4) / 1000
        )
        # A time, by the lease's clock, at which the group waited for nothing from this member. It
        # may remove the member when it has waited for the rebalance timeout, whatever the
        # heartbeats: for a member to join, and then for its SyncGroup.
        self._calm_at: float = float("-inf")
        self._synced = False
        self._check_ms: float = min(_CHECK_MS, new.rebalance_timeout_ms / 20)
        self._group: GroupMetadata = GroupMetadata(group_id, -1, "")
        # The generation of the last assignment; -1 before the first one, and after a removal.
        self._assigned: int = -1
        self._counter = 0
        # The time of the owner's last progress, whether its answer is outstanding, and whether its
        # last answer reported a callback that had not returned.
        self._owner_well_at: float = 0.0
        self._asked = self._owner_stuck = False
        # The state from the owner and from the coordinator; after any change, `_changed` is set.
        self._changed: asyncio.Event = asyncio.Event()
        self._rebalances = 0
        self._released = False
        self._back = False
        self._rebalance = False
        self._removal: Exception | None = None
        self._main: asyncio.Task[None] | None = None
        self._helpers: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Connect, and join the group. Raises LogTimeout, NotAuthorized."""
        await self._client.start()
        self._main = asyncio.create_task(
            self._live(), name=f"member of group {self._group.group_id}"
        )

    # --- calls from the owner ---------------------------------------------------------------------

    def continue_rebalance(
        self, turn: int, user_data: bytes | None = None, topics: Collection[str] | None = None
    ) -> None:
        """Continue the rebalance: the owner has released its partitions."""
        # A late answer to an earlier rebalance must not end the current rebalance.
        if turn == self._rebalances and not self._released:
            if user_data is not None:
                self._user_data = user_data
            if topics is not None:
                self._topics = frozenset(topics)
            self._released = True
            self._changed.set()

    def rejoin(self, user_data: bytes | None = None, topics: Collection[str] | None = None) -> None:
        """Ask for a new assignment; join again after a removal."""
        if topics is not None:
            self._topics = frozenset(topics)
        if user_data is not None:
            self._user_data = user_data
            # The group ignores an unchanged subscription. The counter is part of the subscription,
            # and changes it.
            self._counter += 1
        self._rebalance = self._back = True
        self._changed.set()

    def owner_is_well(self, stuck_seconds: float) -> None:
        """Note that the owner's loop runs, and for how long a callback on it has not returned."""
        # Subtract the time inside the callback, which is no progress.
        self._asked, self._owner_stuck = False, stuck_seconds > 0
        self._owner_well_at = asyncio.get_running_loop().time() - stuck_seconds

    async def end(self, *, leave: bool) -> None:
        """End; with `leave`, leave the group, so that others need not wait for the session timeout.

        Never raises: if the group is unreachable, the session timeout ends the membership.
        """
        main, self._main = self._main, None
        if main is not None:
            # Cancel the main loop first: the member must not join again after it has left.
            main.cancel()
            try:
                await asyncio.wait([main])
            except asyncio.CancelledError:
                # The log closes and ends this loop: close the member's sockets first.
                await self._finish(leave=False)
                raise
        await self._finish(leave=leave)

    async def _finish(self, *, leave: bool) -> None:
        # End the lease first: from here on the group may give the partitions to others.
        self._lease.end()
        try:
            await self._stop_helpers()
            left = not self._group.member_id or (leave and await self._leave())
            if self._dead_members is not None:
                await self._dead_members.end(known=left)
        finally:
            # Close also when this task is cancelled, as the log closes and ends this thread.
            await self._client.close()

    async def _leave(self) -> bool:
        request = leave_group(self._group.group_id, self._group.member_id, self._instance_id)
        try:
            await self._client.send_to_coordinator(
                GROUP, self._group.group_id, request, _codes, channel=_BEAT, timeout_ms=_LEAVE_MS
            )
        except LogError as error:
            _log.warning(
                "could not tell group %s that its member leaves; it notices after the session "
                "timeout: %s",
                self._group.group_id,
                error,
            )
            return False
        return True

    # --- the main loop ----------------------------------------------------------------------------

    async def _live(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            if self._main is not None:
                # `end` has not cancelled this task: the whole loop ends.
                await self._finish(leave=False)
            raise
        except LogClosed as error:
            # The owner's loop ended without `close`: release the owner's partitions to others.
            _log.warning(
                "the member %s leaves group %s: %s",
                self._group.member_id,
                self._group.group_id,
                error,
            )
            await self._finish(leave=self._instance_id is None)

    async def _run(self) -> None:
        """Follow the group. Raises LogClosed when the owner's loop has ended."""
        while True:
            try:
                # `_join` starts heartbeats as soon as the member has an id, because the assignment
                # may take long.
                await self._join()
                await self._until(lambda: self._rebalance)
                self._rebalances += 1
                self._released = False
                # Pass the number of the rebalance: a late answer must not end the next rebalance.
                self._post(self._owner.on_revoke, self._rebalances)
                await self._until(lambda: self._released)
            except MemberRemoved as removal:
                _log.warning(
                    "the member %s was removed from group %s: %s",
                    self._group.member_id,
                    self._group.group_id,
                    removal,
                )
                # Do this before the owner is told: another member may already have its partitions.
                await self._out(removal)
                self._post(partial(self._owner.on_lost, fenced=removal.fenced))
                await self._until(lambda: self._back)
            except LogClosed:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the owner has to hear of it
                await self._out(None)
                self._post(
                    self._owner.on_failed,
                    error if isinstance(error, LogError) else self._unexpected(error),
                )
                await self._until(lambda: self._back)

    def _unexpected(self, error: Exception) -> LogError:
        failed = LogError(
            f"the membership of group {self._group.group_id!r} failed: "
            f"{type(error).__name__}: {error}"
        )
        failed.__cause__ = error
        return failed

    async def _out(self, removal: MemberRemoved | None) -> None:
        self._lease.end()
        await self._stop_helpers()
        self._back = False
        if removal is not None:
            self._assigned = -1
            if removal.forget:
                # The group has forgotten this id, so it joins as a new member.
                self._group = GroupMetadata(self._group.group_id, -1, "")

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition. Raises the error for the member's removal."""
        while not condition():
            if self._removal is not None:
                raise self._removal
            self._changed.clear()
            await self._changed.wait()

    async def _join(self) -> None:
        """Join the next generation.

        Retries failures while the group knows the member.
        """
        while True:
            # Errors of the last generation must not end this join.
            await self._stop_helpers()
            try:
                assignment = await self._join_once()
            except MemberRemoved as removal:
                if removal.forget or removal.missed:
                    # The owner relies on its released partitions until the rebalance assigns them,
                    # but they may already belong to other members.
                    raise
                _log.debug("joining group %s again: %s", self._group.group_id, removal)
                await asyncio.sleep(_RETRY_SECONDS)
            except LogTimeout as error:
                _log.warning(
                    "could not join group %s; the member retries: %s",
                    self._group.group_id,
                    error,
                )
            else:
                if assignment is not None:
                    self._assigned = self._group.generation
                    self._post(self._owner.on_assigned, self._group, assignment)
                return

    async def _join_once(self) -> MemberAssignment | None:
        if self._dead_members is not None and not self._dead_members.begun:
            await self._dead_members.begin()
        returns = self._instance_id is not None and not self._group.member_id
        if self._group.generation >= 0:
            # The group waits for its slowest member, which may take longer than this session.
            self._begin(self._beat_meanwhile(self._group))
        self._synced, sent = False, self._lease.time()
        response = await self._while_member(self._send_join())
        # From here on the heartbeats are those of the new generation.
        await self._stop_helpers()
        # This generation is younger than each heartbeat of the last one that was answered.
        self._calm_at = max(self._calm_at, sent, self._lease.heard)
        if not response.leader_id:
            # The coordinator then assigns partitions by itself, without regard to tasks.
            raise LogError(
                f"group {self._group.group_id!r} has no leader: a member with "
                "group.protocol=consumer (KIP-848) is in it; does another program use the group's "
                "name? Give this app another application_id, or end that program"
            )
        before, generation = self._group.generation, response.generation_id
        self._group = GroupMetadata(self._group.group_id, generation, response.member_id)
        check_generation(generation, before, self._assigned)
        # Post this before the sync: transactions are committed during the sync, and the group
        # refuses the old generation.
        self._post(self._owner.on_joined, self._group)
        # The leader's assignor may take longer than the session, too.
        self._begin(self._beat(self._group))
        assignments: Mapping[str, MemberAssignment] = {}
        leads = response.leader_id == response.member_id
        if leads:
            assignments = await self._lead(response.members)
        elif returns:
            # The returning member may be the leader without knowing it; no other member would then
            # watch the topics.
            self._begin(self._watch(self._topics, await self._partition_counts(self._topics)))
        request = sync_group(self._group, self._instance_id, assignments)
        sent = self._lease.time()
        response = await self._while_member(
            self._client.send_to_coordinator(
                GROUP,
                self._group.group_id,
                request,
                _codes,
                channel=_JOIN,
                timeout_ms=self._join_ms,
                request_timeout_ms=self._answer_ms,
            )
        )
        check_member_error(response.error_code, self._group.group_id, "get an assignment of")
        self._synced, self._calm_at = True, max(self._calm_at, sent)
        if leads and not assignments:
            # The assignor has failed; the owner gets its error.
            return None
        return decode_assignment(response.member_assignment)

    async def _while_member(self, request: Coroutine[Any, Any, Any]) -> Any:
        """Return the response to the request.

        If a heartbeat meanwhile reports that the member was removed, raises that error: brokers do
        not answer the other requests of members that they remove.
        """
        asked = asyncio.create_task(request)
        asked.add_done_callback(lambda _: self._changed.set())
        try:
            await self._until(asked.done)
            return await asked
        finally:
            if not asked.done():
                asked.cancel()
                self._client.disconnect(_JOIN)  # a late response would block the next one

    @property
    def _join_ms(self) -> int:
        # The slowest member decides, and may have a longer timeout than this member.
        return self._rebalance_ms + self._client.options.api_timeout_ms

    @property
    def _answer_ms(self) -> int:
        # The coordinator answers when all members have joined, or when this member's time is over.
        return max(self._client.options.request_timeout_ms, self._rebalance_ms + _ANSWER_MS)

    async def _send_join(self) -> Any:
        while True:
            # This request includes all changes so far.
            self._rebalance = False
            group = self._group
            if self._dead_members is not None and group.member_id:
                await self._dead_members.remove_former(group.member_id)
            request = join_group(
                group.group_id,
                group.member_id,
                self._instance_id,
                encode_member(self._topics, self._counter, self._user_data),
                session_timeout_ms=self._session_ms,
                rebalance_timeout_ms=self._rebalance_ms,
            )
            response = await self._client.send_to_coordinator(
                GROUP,
                group.group_id,
                request,
                _codes,
                channel=_JOIN,
                timeout_ms=self._join_ms,
                request_timeout_ms=self._answer_ms,
            )
            if response.error_code != MEMBER_ID_REQUIRED:
                check_member_error(
                    response.error_code,
                    group.group_id,
                    "join",
                    f"session_timeout_ms is {self._session_ms}"
                    if response.error_code == INVALID_SESSION_TIMEOUT
                    else None,
                )
                return response
            # KIP-394: the coordinator first gives the id. If the answer to a join is lost, the
            # repeated join then adds no second member.
            self._group = GroupMetadata(group.group_id, -1, response.member_id)
            if self._dead_members is not None:
                # Record the id before the join: if this process dies during the join, another
                # process on this machine finds the id and removes the member.
                self._dead_members.know(response.member_id)

    # --- leading ----------------------------------------------------------------------------------

    async def _lead(self, members: Sequence[Any]) -> Mapping[str, MemberAssignment]:
        # Use the same order on every leader, so that equal members get equal assignments.
        infos = sorted(
            (decode_member(member_id, metadata) for member_id, *_, metadata in members),
            key=lambda info: info.member_id,
        )
        topics = frozenset[str]().union(*(info.topics for info in infos))
        # Ask several brokers: if a topic seemed to be missing, all members would end.
        counts = await self._partition_counts(topics, patient=True)
        assignments = await self._assign(infos, counts)
        # Watch from the counts that the assignor has seen, to notice a topic that has grown since.
        self._begin(self._watch(topics, counts))
        return (
            {
                info.member_id: assignments.get(info.member_id, MemberAssignment(()))
                for info in infos
            }
            if assignments
            else {}
        )

    async def _assign(
        self, members: Sequence[MemberInfo], counts: Mapping[str, int]
    ) -> Mapping[str, MemberAssignment]:
        """Call the assignor in a thread of its own, since the whole group waits for it.

        The assignor must not wait for the owner's loop. If it fails, returns an empty mapping.
        """
        name = f"assignor of group {self._group.group_id}"
        assigning = in_thread(self._assignor, members, counts, name=name)
        # Either the assignor or the member's removal ends the wait: `_until` checks both.
        assigning.add_done_callback(lambda _: self._changed.set())
        try:
            async with asyncio.timeout(self._rebalance_ms / 1000):
                await self._until(assigning.done)
        except TimeoutError:
            why = (
                f"the assignor of group {self._group.group_id!r} has not returned for "
                f"{self._rebalance_ms} ms (max_poll_interval_ms)"
            )
            error: Exception = LogTimeout(
                f"{why}, so no member gets partitions until one joins again: find out why the "
                "assignor blocks"
            )
        else:
            try:
                return assigning.result()
            except Exception as raised:  # noqa: BLE001 - whatever it is, it is the leader's
                error = raised
        finally:
            # The thread cannot be stopped, but nothing waits for its result any more.
            assigning.cancel()
        self._post(self._owner.on_not_assigned, error)
        return {}

    async def _partition_counts(
        self, topics: frozenset[str], *, patient: bool = False
    ) -> dict[str, int]:
        known = await self._client.metadata(topics, patient=patient) if topics else {}
        return {topic: len(known[topic].leaders) for topic in sorted(topics) if topic in known}

    async def _watch(self, topics: frozenset[str], counts: Mapping[str, int]) -> None:
        """Request a rebalance when topics appear, disappear, or get more partitions."""
        now = counts
        while now == counts:
            await asyncio.sleep(
                _WATCH_SECONDS if len(counts) == len(topics) else _WATCH_MISSING_SECONDS
            )
            with suppress(LogTimeout):
                if await self._partition_counts(topics) != counts:
                    now = await self._partition_counts(topics, patient=True)
        self._rebalance = True
        self._changed.set()

    # --- heartbeats -------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._guard(work))
        self._helpers.add(task)
        task.add_done_callback(self._helpers.discard)
        # If the task is cancelled before its first step, it has never awaited the coroutine.
        task.add_done_callback(lambda _: work.close())

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - who waits for the rebalance raises it
            self._removal = error
            self._changed.set()

    async def _stop_helpers(self) -> None:
        """Stop heartbeats and watchers, and drop their errors."""
        helpers = tuple(self._helpers)
        for task in helpers:
            task.cancel()
        if helpers:
            await asyncio.wait(helpers)
        self._removal = None

    async def _beat(self, group: GroupMetadata) -> None:
        """Send heartbeats, also while the owner revokes; the response reports a rebalance."""
        self.owner_is_well(0.0)
        while True:
            if not self._owner_is_open():
                raise LogClosed("the event loop of its owner has ended")
            await self._check_owner()
            if await self._beat_once(group) == REBALANCE_IN_PROGRESS:
                self._rebalance = True
                self._changed.set()
            await asyncio.sleep(self._beat_seconds)

    async def _beat_meanwhile(self, group: GroupMetadata) -> None:
        """Send heartbeats of the last generation until the next generation.

        The member keeps its partitions and its lease until then.
        """
        refusals = 0
        while True:
            try:
                await self._beat_once(group)
            except MemberRemoved as removal:
                # There is a new generation, maybe without this member. If its answer to the join is
                # lost, only heartbeats tell the member later that it was removed.
                self._lease.end()
                if removal.forget:
                    raise
                refusals += 1
                if refusals == _REFUSALS:
                    # Send the join again, once: its answer may be lost in a half-open connection.
                    # The group answers an equal join in the same way again.
                    self._client.disconnect(_JOIN)
            await asyncio.sleep(self._beat_seconds)

    async def _beat_once(self, group: GroupMetadata) -> int:
        """Return the group's error code. Raises MemberRemoved if it ends the membership."""
        sent = self._lease.time()
        request = heartbeat(group, self._instance_id)
        try:
            response = await self._client.send_to_coordinator(
                GROUP, group.group_id, request, _codes, channel=_BEAT, timeout_ms=self._session_ms
            )
        except LogTimeout as error:
            # Keep the membership: a restarted coordinator still knows the member, or removes it.
            _log.warning("heartbeats to group %s fail: %s", group.group_id, error)
            self._client.disconnect(_BEAT)
            return NONE
        if response.error_code != REBALANCE_IN_PROGRESS:
            check_member_error(response.error_code, self._group.group_id, "be a member of")
        # Count from the time of the request: the coordinator's timer may have started that early.
        self._lease.heard = max(self._lease.heard, sent)
        if response.error_code == NONE and self._synced:
            self._calm_at = max(self._calm_at, sent)
        self._lease.extend(
            min(sent + self._session_ms / 1000, self._calm_at + self._rebalance_ms / 1000)
        )
        return int(response.error_code)

    async def _check_owner(self) -> None:
        """Leave when the owner makes no progress, so that others get its partitions."""
        now = asyncio.get_running_loop().time()
        if not self._asked and (now - self._owner_well_at) * 1000 >= self._check_ms:
            self._asked = True
            if not self._owner_stuck:
                # The owner has answered the last check, so it was making progress until this check.
                self._owner_well_at = now
            self._post(self._owner.on_check)
        stuck_ms = round((now - self._owner_well_at) * 1000)
        if stuck_ms > self._rebalance_ms:
            # Others get the partitions as soon as the group knows: answer for none by then.
            self._lease.end()
            if self._instance_id is None:
                await self._leave()
            raise MemberRemoved(
                "its event loop, or a function that is marked as blocking, has not returned for "
                f"{stuck_ms} ms, and the limit is {self._rebalance_ms} ms (max_poll_interval_ms)",
                forget=True,
            )


def _codes(response: Any) -> tuple[int]:
    return (response.error_code,)


class MemberRemoved(Exception):
    """The group has removed the member.

    With `forget` the group no longer knows the member's id; with `fenced` another member has
    replaced it; with `missed` the group had a generation without it.
    """

    def __init__(
        self, why: str, *, forget: bool, fenced: bool = False, missed: bool = False
    ) -> None:
        super().__init__(why)
        self.forget: bool = forget
        self.fenced: bool = fenced
        self.missed: bool = missed


def check_member_error(code: int, group_id: str, what: str, detail: str | None = None) -> None:
    """Raise MemberRemoved or another error for an error code.

    `what` names the failed action, `detail` the values that the coordinator may have refused.
    """
    if code in (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID):
        fenced = code == FENCED_INSTANCE_ID
        raise MemberRemoved(
            "another member has the same instance id"
            if fenced
            else "the group has removed the member",
            forget=True,
            fenced=fenced,
        )
    if code in (ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS):
        raise MemberRemoved("the group is in a new generation", forget=False)
    if code:
        raise error_of(code, f"failed to {what} group {group_id!r}", detail)


def check_generation(generation: int, before: int, assigned: int) -> None:
    """Raise MemberRemoved if the group may have had a generation without a member that has joined.

    A static member that is late stays in the group, but the leader did not know all of its
    partitions and may have given them to others, which have committed since. `before` is the
    generation that the member had joined before this one; `assigned` is that of its last
    assignment, or -1. Coordinators store a generation with its assignment, so a new coordinator may
    repeat generations that were only joined. If it goes back behind the last assignment, the group
    has lost this assignment, and others may have had the partitions since.
    """
    if assigned >= 0 and not assigned <= generation <= before + 1:
        raise MemberRemoved(
            f"the group went from generation {before} to {generation} without it, so others may "
            "have its partitions",
            forget=False,
            missed=True,
        )


class Owner(Protocol):
    """The receiver of membership events, on the owner's loop. No method blocks."""

    def on_revoke(self, turn: int) -> None:
        """Release all partitions; then call `let_go(turn)`."""
        ...

    def on_joined(self, group: GroupMetadata) -> None:
        """Note the generation that the member has joined; its assignment comes later."""
        ...

    def on_assigned(self, group: GroupMetadata, assignment: MemberAssignment) -> None:
        """Take these partitions."""
        ...

    def on_lost(self, *, fenced: bool) -> None:
        """Note the loss of the membership; `rejoin` joins again."""
        ...

    def on_check(self) -> None:
        """Report by `owner_is_well` the time without progress."""
        ...

    def on_failed(self, error: LogError) -> None:
        """Note the end of the membership by a lasting error; `rejoin` tries again."""
        ...

    def on_not_assigned(self, error: Exception) -> None:
        """Note, as the leader, that no member gets partitions: the assignor failed or hangs."""
        ...
