"""Orders to a running app; each has a deadline, after which it has no effect."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar, final

from actors import ActorsError, AskTimeout
from ks_actors._errors import KsActorsError, LogError, NotRunning, SnapshotFailed, TaskTimeout
from ks_actors.app._checks import NOT_STARTED
from ks_actors.app._queries import AppQueries
from ks_actors.lifecycle import check_loop, check_timeout
from ks_actors.runtime import messages as m
from ks_actors.runtime.instance import consumer_lag
from ks_actors.runtime.shared import InstanceState
from ks_actors.topology import checked_queries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

    from actors import Ask, Ref
    from ks_actors.runtime.instance import Instance
    from ks_actors.runtime.shared import Metrics
    from ks_actors.snapshots import SnapshotManifest

T = TypeVar("T")
ENDS = {InstanceState.NOT_RUNNING, InstanceState.ERROR}
_LOOK_AGAIN = 0.02
_LOOK_AT_OTHERS = 0.1
# The time between two commits during a wait, as a share of the time waited so far.
_SHARE = 0.25


class Lag(NamedTuple):
    """The number of offsets left to process and commit, with a description.

    `here` says whether this instance can reduce it.
    """

    offsets: int
    text: str
    here: bool = True


@final
class CommitPace:
    """The times of commits while a caller waits until records are processed.

    Each commit pauses the workers, so the longer the wait, the longer the time between two commits.
    When nothing more is processed, a commit follows at once. `clock` returns seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Callable[[], float] = clock
        self._began: float = clock()
        self._next: float = self._began
        self._seen: int = -1
        self._committed: int = -1

    def due(self, processed: int) -> bool:
        """Return whether to commit now; `processed` counts all records processed so far."""
        now = self._clock()
        settled = processed == self._seen != self._committed
        self._seen = processed
        if now < self._next and not settled:
            return False
        self._committed, self._next = processed, now + (now - self._began) * _SHARE
        return True


class AppOrders(AppQueries):
    """The part of an App with the orders to a running app.

    An order waits while the app starts or rolls back. At its deadline it raises TaskTimeout, is
    withdrawn, and has no effect afterwards.
    """

    _instance: Instance | None = None
    _ref: Ref[m.InstanceMessage] | None = None
    _metrics: Metrics
    _loop: asyncio.AbstractEventLoop | None = None

    @property
    def state(self) -> InstanceState:
        """The app's state."""
        raise NotImplementedError

    @property
    def error(self) -> Exception | None:
        """The error that ended the app; None until then."""
        return None if self._instance is None else self._instance.error

    def _check_loop(self) -> None:
        """Raise RuntimeError on another event loop than the app's, or on none."""
        if self._loop is not None:
            check_loop(self._loop, f"app {self.config.application_id}")

    async def add_worker(self, timeout_ms: int | timedelta = 60_000) -> str | None:
        """Start one more worker; return its name.

        Returns None when the app is neither RUNNING nor REBALANCING (KIP-663). Raises TaskTimeout
        when the app does not do so within `timeout_ms`; then no worker is started later either.
        """
        timeout_ms = check_timeout(timeout_ms)
        self._check_loop()
        if self._ref is None or self.state in ENDS:
            return None
        return await self._obeyed("add a worker", self._ref.ask(m.AddWorker), timeout_ms)

    async def remove_worker(self, timeout_ms: int | timedelta = 60_000) -> str | None:
        """Stop a worker at the end of its slice; return its name, None without any.

        Without workers the app stays RUNNING, until a worker is added. Raises TaskTimeout when the
        worker does not end within `timeout_ms`. If the app has already told a worker to end, that
        worker still ends when it can, as in Kafka Streams (KIP-663). Otherwise no worker ends.
        The error says which case it is.
        """
        timeout_ms = check_timeout(timeout_ms)
        self._check_loop()
        if self._ref is None or self.state in ENDS:
            return None
        try:
            return await self._obeyed("remove a worker", self._ref.ask(m.RemoveWorker), timeout_ms)
        except TaskTimeout as late:
            if self._instance is not None and self._instance.removes_in_vain:
                text = (
                    f"the worker did not stop within {timeout_ms} ms: a processor does not return, "
                    "or the worker waits for a commit that the log does not answer. "
                    "App.waiting() tells which. The worker stops when that ends"
                )
                raise TaskTimeout(text) from late
            raise

    async def pause(
        self, timeout_ms: int | timedelta = 60_000, *, query: str | None = None
    ) -> None:
        """Process no records and call no punctuators until `resume`; keep membership and state.

        With `query`, pause the tasks of that query alone, and stop fetching their partitions. The
        pause holds for tasks that this instance gets later, and ends with the instance.

        Raises NotRunning, and TopologyError for a query that this instance does not run. Raises
        TaskTimeout when the app does not pause within `timeout_ms`; then it does not pause later
        either.
        """
        await self._set_paused("pause", m.PauseAll, query, timeout_ms)

    async def resume(
        self, timeout_ms: int | timedelta = 60_000, *, query: str | None = None
    ) -> None:
        """Resume processing after `pause`: that of all queries, or of one `query`.

        Raises NotRunning, and TopologyError for a query that this instance does not run. Raises
        TaskTimeout when the app does not resume within `timeout_ms`; then it does not resume later
        either.
        """
        await self._set_paused("resume", m.ResumeAll, query, timeout_ms)

    async def _set_paused(
        self,
        what: str,
        order: type[m.PauseAll | m.ResumeAll],
        query: str | None,
        timeout_ms: int | timedelta,
    ) -> None:
        timeout_ms = check_timeout(timeout_ms)
        running = self._running()
        if query is not None:
            checked_queries((query,), self._topology.queries())
        await self._obeyed(what, running.ask(order, query=query), timeout_ms)

    async def commit(self, timeout_ms: int | timedelta | None = None) -> None:
        """Commit all tasks now.

        Raises NotRunning, and the error of a failed commit: then everything since the last commit
        is rolled back. Raises TaskTimeout after `timeout_ms` (None: four times `task_timeout_ms`).
        A commit that has begun by then still completes, as a periodic commit would; a commit that
        has not begun is dropped.
        """
        if timeout_ms is not None:
            timeout_ms = check_timeout(timeout_ms)
        self._running()
        assert self._instance is not None
        await self._obeyed("commit", self._instance.commit("App.commit was called"), timeout_ms)

    async def snapshot(self, timeout_ms: int | timedelta | None = None) -> SnapshotManifest:
        """Take a snapshot of this instance's active tasks at `snapshot_uri`; return its manifest.

        Processing continues meanwhile. If a snapshot is in progress, waits for that. Raises
        NotRunning, ConfigError when no place is set, and SnapshotFailed. Raises TaskTimeout after
        `timeout_ms` (None: three times `snapshot_timeout_ms`, plus a commit's time); a snapshot
        that has begun by then still completes.
        """
        if timeout_ms is not None:
            timeout_ms = check_timeout(timeout_ms)
        self._running()
        assert self._instance is not None
        asked = self._instance.snapshot()
        try:
            return await self._obeyed("take a snapshot", asked, timeout_ms)
        except NotRunning as ended:
            raise SnapshotFailed(
                f"the app ended while it took a snapshot: {ended.__cause__}"
            ) from ended.__cause__

    async def _obeyed(self, what: str, asked: Ask[T], timeout_ms: int | None) -> T:
        """Wait for the answer to an order.

        Raises TaskTimeout when the answer is late, NotRunning when the app ends meanwhile.
        """
        if timeout_ms is not None:
            asked = asked.within(max(timeout_ms, 1) / 1000)
        try:
            return await asked
        except AskTimeout as late:
            text = (
                f"the app did not start to {what} within {late.seconds * 1000:g} ms and drops the "
                f"request; its state is {self.state.name}"
            )
            raise TaskTimeout(text) from late
        except ActorsError as ended:
            raise NotRunning(
                f"the app ended before it could {what}; its state is {self.state.name}"
            ) from ended

    def _running(self) -> Ref[m.InstanceMessage]:
        self._check_loop()
        if self._ref is None or self.state not in {
            InstanceState.RUNNING,
            InstanceState.REBALANCING,
        }:
            raise NotRunning(
                NOT_STARTED
                if self._ref is None and self.state is InstanceState.CREATED
                else f"the app is {self.state.name}, but this needs a RUNNING app"
            )
        return self._ref

    async def wait_until_caught_up(self, timeout_ms: int | timedelta = 60_000) -> None:
        """Wait until all records of source and repartition topics are processed and committed.

        It commits if necessary. It covers all partitions that the topology reads. Partitions of
        other instances are processed up to their last commits, which come each
        `commit_interval_ms`. A partition that no member of the group reads is behind, even when it
        is empty. Records that come meanwhile count, too: if records never stop coming, the timeout
        may come first.

        Raises TaskTimeout, with the progress so far; the error that ended the app, if one has;
        NotRunning.
        """
        timeout_ms = check_timeout(timeout_ms)
        await self._wait_until_caught_up(timeout_ms, self._lag)

    async def _wait_until_caught_up(
        self, timeout_ms: int, find: Callable[[], Awaitable[Lag]]
    ) -> None:
        lag: Lag | None = None
        scope: asyncio.Timeout | None = None
        pace = CommitPace(asyncio.get_running_loop().time)
        try:
            async with asyncio.timeout(max(timeout_ms, 1) / 1000) as scope:
                while (lag := await find()).offsets > 0:
                    if self.state in ENDS:
                        raise self.error or NotRunning(f"the app is {self.state.name}")
                    if (
                        lag.here
                        and self.state is InstanceState.RUNNING
                        and not self._metrics.committing
                        and pace.due(self._metrics.processed_total)
                    ):
                        # A failed commit is rolled back: the app repeats it, or ends.
                        with suppress(KsActorsError):
                            await self.commit()
                    await asyncio.sleep(_LOOK_AGAIN if lag.here else _LOOK_AT_OTHERS)
        except TimeoutError:
            if scope is None or not scope.expired():
                raise  # the error that ended the app
            how = "the log did not return its end offsets" if lag is None else lag.text
            raise TaskTimeout(f"not caught up within {timeout_ms} ms: {how}") from None

    async def _lag(self) -> Lag:
        """Count the offsets left on this instance, on other instances, and on this instance again.

        The other instances may have written to topics that this instance reads.
        """
        processed = self._metrics.processed_total
        found = await self._local_lag()
        watch = None if self._instance is None else self._instance.watch
        if found.offsets or watch is None:
            return found
        try:
            elsewhere = await watch.coverage.read_elsewhere()
        except LogError as error:
            return Lag(
                1,
                f"the log did not return the offsets of other group members: {error}",
                here=False,
            )
        if elsewhere.behind:
            return Lag(elsewhere.behind, str(elsewhere), here=False)
        found = await self._local_lag()
        return (
            found
            # Records that were processed meanwhile may have caused records for other instances.
            if self._metrics.processed_total == processed
            else Lag(max(found.offsets, 1), found.text)
        )

    async def _local_lag(self) -> Lag:
        """Count the offsets left in the partitions of this instance."""
        self._check_loop()
        if self._log is None or self._instance is None:
            raise NotRunning(NOT_STARTED)
        # While the app starts or rebalances, zero means nothing: partitions may still be missing.
        offsets = await consumer_lag(self._metrics, self._log, self.config) or int(
            self.state is not InstanceState.RUNNING
        )
        parts = self._instance.parts
        paused = "" if parts is None else str(parts.manager.pauses)
        remedy = f"; {paused}: call resume" if paused else ""
        return Lag(offsets, f"{offsets} offsets are not processed or not committed{remedy}")
