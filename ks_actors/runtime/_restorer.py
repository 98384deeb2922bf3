"""Who reads changelogs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, assert_never

from actors import Actor, Mailbox, Signal, Stopping
from ks_actors.log._types import IsolationLevel
from ks_actors.runtime import _messages as m
from ks_actors.runtime._messages import RestorerMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors import Ref
    from ks_actors._task_id import TaskId
    from ks_actors.log import Fetcher, Log
    from ks_actors.log._types import Fetched, TopicPartition

RESTORER_MAILBOX = Mailbox(capacity=10_000, overflow="fail_system")
_ANY = -1


class Restorer(Actor[RestorerMessage]):
    """Read the changelogs of tasks from where their stores are to the ends there were at the start, and pass the records on as they are.

    What somebody who had the task has written and not committed is not seen, but waited for: until it is committed after all, or aborted.
    """

    def __init__(self, log: Log, fetcher: Fetcher, state: Ref[m.StateManagerMessage], *, poll_ms: int) -> None:
        self._log = log
        self._fetcher = fetcher
        self._state = state
        self._poll_ms = poll_ms
        self._missing: dict[TaskId, set[TopicPartition]] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._epoch: int = 0
        self._fetching: bool = False

    async def signal(self, signal: Signal) -> None:
        """Close the reader at the end."""
        if isinstance(signal, Stopping):
            await self._fetcher.close()

    def receive(self, message: RestorerMessage) -> None:
        """Read until all ends are reached."""
        match message:
            case m.Restore():
                self._missing[message.task] = set(message.changelogs)
                self.ctx.pipe(self._look(message), _ends_known, partial(_failed, _ANY))
            case m.ChangelogEnds():
                self._begin(message)
            case m.Arrived():
                self._fetching = False
                if message.epoch == self._epoch:
                    self._pass_on(message.fetched)
            case m.FetchFailed():
                self._fetching = self._fetching and message.epoch == _ANY
                if message.epoch in {self._epoch, _ANY}:
                    self._state.tell(m.RestoreFailed(message.error))
                    return
            case m.StopRestoring():
                self._stop(message.tasks)
                message.reply.tell(None)
            case _:
                assert_never(message)
        self._fetch()

    async def _look(self, message: m.Restore) -> m.ChangelogEnds:
        begins = await self._log.begin_offsets(message.changelogs)
        # All that is there, whether it is decided about or not. A transaction that the committed offsets are from may not be marked as committed in
        # every partition yet, and where it is not, the end of what is committed is still before it.
        ends = await self._log.end_offsets(message.changelogs, IsolationLevel.READ_UNCOMMITTED)
        return m.ChangelogEnds(message.task, begins, ends, message.changelogs)

    def _begin(self, found: m.ChangelogEnds) -> None:
        missing = self._missing.get(found.task)
        if missing is None:
            return  # closed meanwhile
        beyond = [
            f"{one} ends at {found.ends[one]}, the store is at {at}" for one, at in found.positions.items() if at is not None and at > found.ends[one]
        ]
        if beyond:
            del self._missing[found.task]
            self._state.tell(m.Corrupted(found.task, "; ".join(beyond)))
            return
        for changelog, position in found.positions.items():
            start = found.begins[changelog] if position is None else position
            if start >= found.ends[changelog]:
                missing.discard(changelog)
            else:
                self._positions[changelog] = max(start, found.begins[changelog])
                self._ends[changelog] = found.ends[changelog]
        self._assign()
        self._tell_restored(found.task)

    def _pass_on(self, fetched: Sequence[Fetched]) -> None:
        known = [one for one in fetched if one.partition in self._positions]
        if known:
            self._state.tell(m.RestoredRecords(known))
        reached = False
        for one in known:
            self._positions[one.partition] = one.next_offset
            if one.next_offset >= self._ends[one.partition]:
                del self._positions[one.partition]
                reached = True
                for missing in self._missing.values():
                    missing.discard(one.partition)
        if reached:
            self._assign()
            for task in list(self._missing):
                self._tell_restored(task)

    def _tell_restored(self, task: TaskId) -> None:
        if not self._missing[task]:
            del self._missing[task]
            self._state.tell(m.Restored(task))

    def _stop(self, tasks: frozenset[TaskId] | None) -> None:
        for task in list(self._missing):
            if tasks is None or task in tasks:
                for changelog in self._missing.pop(task):
                    self._positions.pop(changelog, None)
        self._assign()

    def _assign(self) -> None:
        self._epoch += 1
        self._fetcher.assign(self._positions)

    def _fetch(self) -> None:
        if self._positions and not self._fetching:
            self._fetching = True
            self.ctx.pipe(self._fetch_once(), _arrived, partial(_failed, self._epoch))

    async def _fetch_once(self) -> m.Arrived:
        fetched = await self._fetcher.fetch(max_wait_ms=self._poll_ms)
        # The epoch as it is now: what was assigned while the fetch was under way is what it has read.
        return m.Arrived(fetched, self._epoch)


def _ends_known(found: m.ChangelogEnds) -> RestorerMessage:
    return found


def _arrived(message: m.Arrived) -> RestorerMessage:
    return message


def _failed(epoch: int, error: Exception) -> RestorerMessage:
    return m.FetchFailed(error, epoch)
