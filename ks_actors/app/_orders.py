"""Orders to a running app: each has a deadline, and has no effect behind it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from actors import ActorsError, AskTimeout
from ks_actors._errors import KsActorsError, LogError, NotRunning, SnapshotFailed, TaskTimeout
from ks_actors.app._history import AppOverHistory
from ks_actors.runtime import messages as m
from ks_actors.runtime.instance import offsets_behind
from ks_actors.runtime.shared import InstanceState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors import Ask, Ref
    from ks_actors.log import Log
    from ks_actors.runtime.instance import Instance
    from ks_actors.runtime.shared import Metrics
    from ks_actors.snapshots import SnapshotManifest

T = TypeVar("T")
ENDS = {InstanceState.NOT_RUNNING, InstanceState.ERROR}
_LOOK_AGAIN = 0.02
_LOOK_AT_OTHERS = 0.1


class Behind(NamedTuple):
    """How many offsets are to be processed and committed yet, in words, too; and whether this instance can do something about it."""

    offsets: int
    told: str
    here: bool = True


class AppOrders(AppOverHistory):
    """The part of an App that tells it what to do while it runs.

    An order waits while the app starts or rolls back. When its time is over it raises TaskTimeout, is taken out, and does nothing afterwards.
    """

    _log: Log | None = None
    _instance: Instance | None = None
    _ref: Ref[m.InstanceMessage] | None = None
    _metrics: Metrics

    @property
    def state(self) -> InstanceState:
        """Where the app is in its life."""
        raise NotImplementedError

    @property
    def error(self) -> Exception | None:
        """The error that the app ended by; None as long as it did not."""
        return None if self._instance is None else self._instance.error

    async def add_worker(self, timeout_ms: int = 60_000) -> str | None:
        """Start one more worker; return its name, None when the app is neither RUNNING nor REBALANCING (KIP-663).

        Raises TaskTimeout when the app does not come to it in `timeout_ms`; then there is no new worker, and none comes later.
        """
        if self._ref is None or self.state in ENDS:
            return None
        return await self._obeyed("add a worker", self._ref.ask(m.AddWorker), timeout_ms)

    async def remove_worker(self, timeout_ms: int = 60_000) -> str | None:
        """Stop a worker when it is done with its slice; return its name, None when there is none.

        The app stays RUNNING without workers, until one is added. Raises TaskTimeout when the worker does not end in `timeout_ms`. One that has been
        told to end by then still ends when it can, as in Kafka Streams (KIP-663); else no worker is told any more. The error says which it is.
        """
        if self._ref is None or self.state in ENDS:
            return None
        try:
            return await self._obeyed("remove a worker", self._ref.ask(m.RemoveWorker), timeout_ms)
        except TaskTimeout as late:
            if self._instance is not None and self._instance.removes_in_vain:
                told = f"the worker did not end within {timeout_ms} ms: a processor does not return; the worker ends when it can"
                raise TaskTimeout(told) from late
            raise

    async def pause(self, timeout_ms: int = 60_000) -> None:
        """Process no more records and call no punctuators until `resume`; membership and state are kept.

        Raises NotRunning; TaskTimeout when the app does not come to it in `timeout_ms`, and then it does not pause later either.
        """
        await self._obeyed("pause", self._running().ask(m.PauseAll), timeout_ms)

    async def resume(self, timeout_ms: int = 60_000) -> None:
        """Go on after `pause`.

        Raises NotRunning; TaskTimeout when the app does not come to it in `timeout_ms`, and then it does not resume later either.
        """
        await self._obeyed("resume", self._running().ask(m.ResumeAll), timeout_ms)

    async def commit(self, timeout_ms: int | None = None) -> None:
        """Commit all tasks now. Raises NotRunning, and what the commit fails by: then everything since the last one is rolled back.

        Raises TaskTimeout after `timeout_ms` (None: four times `task_timeout_ms`). A commit that has begun by then comes to its end, as one by the
        clock would; one that has not begun is not done.
        """
        self._running()
        assert self._instance is not None
        await self._obeyed("commit", self._instance.commit("the application asks for it"), timeout_ms)

    async def snapshot(self, timeout_ms: int | None = None) -> SnapshotManifest:
        """Take a snapshot of the tasks that are processed here, at `snapshot_uri`; return what it says of itself. Processing goes on meanwhile.

        One that is being taken serves as well. Raises NotRunning, ConfigError when no place is set, SnapshotFailed; TaskTimeout after `timeout_ms`
        (None: three times `snapshot_timeout_ms`, and a commit's time). One that has begun by then comes to its end.
        """
        self._running()
        assert self._instance is not None
        asked = self._instance.snapshot()
        try:
            return await self._obeyed("take a snapshot", asked, timeout_ms)
        except NotRunning as ended:
            raise SnapshotFailed(f"the app has ended in the middle of a snapshot: {ended.__cause__}") from ended.__cause__

    async def _obeyed(self, what: str, asked: Ask[T], timeout_ms: int | None) -> T:
        """Wait for what was asked for. Raises TaskTimeout when it is late, NotRunning when the app ends meanwhile."""
        if timeout_ms is not None:
            asked = asked.within(max(timeout_ms, 1) / 1000)
        try:
            return await asked
        except AskTimeout as late:
            told = f"the app did not come to the order to {what} within {late.seconds * 1000:g} ms; it is {self.state.name}. The order is dropped"
            raise TaskTimeout(told) from late
        except ActorsError as ended:
            raise NotRunning(f"the app ended before it came to the order to {what}: it is {self.state.name}") from ended

    def _running(self) -> Ref[m.InstanceMessage]:
        if self._ref is None or self.state not in {InstanceState.RUNNING, InstanceState.REBALANCING}:
            raise NotRunning(f"the app is {self.state.name}; this needs it RUNNING")
        return self._ref

    async def wait_until_caught_up(self, timeout_ms: int = 60_000) -> None:
        """Wait until everything that the input topics, and the repartition topics, hold is processed and committed; commits what is not yet.

        That is about all partitions that the topology reads. Those that other instances of the application have count as far as these have committed,
        which they do each `commit_interval_ms`; a partition that no member of the group reads is behind, also when it is empty.

        Raises TaskTimeout, which tells how far it has come; the error that the app has ended by, if it has; NotRunning.
        """
        await self._wait_until_caught_up(timeout_ms, self._behind)

    async def _wait_until_caught_up(self, timeout_ms: int, look: Callable[[], Awaitable[Behind]]) -> None:
        behind: Behind | None = None
        scope: asyncio.Timeout | None = None
        try:
            async with asyncio.timeout(max(timeout_ms, 1) / 1000) as scope:
                while (behind := await look()).offsets > 0:
                    if self.state in ENDS:
                        raise self.error or NotRunning(f"the app is {self.state.name}")
                    if behind.here and self.state is InstanceState.RUNNING and not self._metrics.committing:
                        # One that fails is rolled back: the app does it again, or it ends.
                        with suppress(KsActorsError):
                            await self.commit()
                    await asyncio.sleep(_LOOK_AGAIN if behind.here else _LOOK_AT_OTHERS)
        except TimeoutError:
            if scope is None or not scope.expired():
                raise  # what the app has ended by
            how = "the log did not tell how far its topics go" if behind is None else behind.told
            raise TaskTimeout(f"not caught up within {timeout_ms} ms: {how}") from None

    async def _behind(self) -> Behind:
        """Look at this instance, then at others, and once more at this one: they may have written to what it reads."""
        processed = self._metrics.processed_total
        found = await self._behind_here()
        watch = None if self._instance is None else self._instance._watch
        if found.offsets or watch is None:
            return found
        try:
            elsewhere = await watch.coverage.look()
        except LogError as error:
            return Behind(1, f"the log did not tell how far other members of the group are: {error}", here=False)
        if elsewhere.behind:
            return Behind(elsewhere.behind, str(elsewhere), here=False)
        found = await self._behind_here()
        return found if self._metrics.processed_total == processed else Behind(max(found.offsets, 1), found.told)

    async def _behind_here(self) -> Behind:
        """Look at the partitions that this instance has."""
        if self._log is None or self._instance is None:
            raise NotRunning("the app has not been started")
        offsets = await offsets_behind(self._metrics, self._log, self.config) or int(self.state is not InstanceState.RUNNING)
        return Behind(offsets, f"{offsets} offsets are not processed or not committed")
