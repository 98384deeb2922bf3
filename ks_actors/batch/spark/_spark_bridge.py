"""A batch bridge that lives as long as it has users, and Spark functions that run on it."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Self, TypeVar, final

from actors import ActorsError, AskTimeout, System
from ks_actors._errors import BatchError, ConfigError, JobCancelled, JobTimeout, SparkUnavailable
from ks_actors.batch.spark._bridge import BatchBridge, run_job
from ks_actors.batch.spark._messages import RESTART, RunJob, StartQuery, StopQuery
from ks_actors.batch.spark._settings import SparkSettings
from ks_actors.lifecycle import check_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import timedelta
    from types import TracebackType

    import pyarrow as pa

    from actors import Ref, Restart
    from ks_actors.batch.spark._messages import BridgeMessage, QueryEvent
    from ks_actors.processors import Record

T = TypeVar("T")


async def _in_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine in a loop, which may belong to another thread."""
    if loop is asyncio.get_running_loop():
        return await work
    if not loop.is_running():
        work.close()
        raise BatchError(
            "this SparkBridge is open in an event loop that has stopped: close it in that loop, or "
            "make another one"
        )
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


@final
class _Life:
    """The time from the first user to the last one, in one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self.users: int = 0
        self.changing = asyncio.Lock()
        self.stack = AsyncExitStack()
        self.ref: Ref[BridgeMessage] | None = None

    async def open(self, settings: SparkSettings, timeout_ms: int) -> None:
        async with AsyncExitStack() as stack:
            system = await stack.enter_async_context(System("batch"))
            ref = await system.spawn(BatchBridge.spec(settings), "bridge")
            # Start Spark now: a start takes longer than a commit waits.
            try:
                await ref.ask(RunJob, "start", _started, timeout_ms).within(inf)
            except JobTimeout as late:
                raise SparkUnavailable(
                    f"Spark at {settings.place} did not start and run a small job within "
                    f"{timeout_ms} ms: check that {settings.place} answers and has free resources, "
                    "or raise start_timeout_ms of the SparkBridge"
                ) from late
            self.stack, self.ref = stack.pop_all(), ref

    async def close(self) -> None:
        self.ref = None
        await self.stack.aclose()


@final
class SparkBridge:
    """A Spark session for functions in the middle of topologies.

    For example `stream.batch(bridge.function(scored))`. Create it anywhere; it does nothing until
    entered by `async with`, or by an App or local `backfill` with such a function in its topology.
    Entering starts Spark, in the event loop of the first user. All users share it, also those in
    other loops, such as a local `backfill`, until the last one leaves; then running work is
    cancelled. The first user's loop must run until then.

    Entering raises SparkUnavailable, also when Spark has not started within `start_timeout_ms`. If
    that start cannot be interrupted, entering waits up to 90 s more, then abandons it.
    """

    def __init__(
        self, settings: SparkSettings | None = None, *, start_timeout_ms: int | timedelta = 300_000
    ) -> None:
        try:
            start_timeout_ms = check_timeout(start_timeout_ms, "start_timeout_ms", least=1)
        except (TypeError, ValueError) as wrong:
            raise ConfigError(str(wrong)) from None
        self.settings: SparkSettings = settings or SparkSettings()
        self._start_timeout_ms: int = start_timeout_ms
        self._life: _Life | None = None

    def __reduce__(self) -> Any:
        raise TypeError(
            "a SparkBridge cannot leave its process: backfill a topology that calls Spark with "
            "engine='local'"
        )

    async def __aenter__(self) -> Self:
        life = self._life = self._life or _Life(asyncio.get_running_loop())
        await _in_loop(life.loop, self._enter(life))
        return self

    async def _enter(self, life: _Life) -> None:
        if self._life is not life:
            # The last user has left since this call was sent to the loop of the bridge.
            raise BatchError("this SparkBridge was closed by another event loop: enter it again")
        life.users += 1
        try:
            async with life.changing:
                if life.ref is None:
                    await life.open(self.settings, self._start_timeout_ms)
        except BaseException:
            life.users -= 1
            self._forget(life)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        life = self._life
        assert life is not None
        await _in_loop(life.loop, self._leave(life))

    async def _leave(self, life: _Life) -> None:
        life.users -= 1
        try:
            async with life.changing:
                if life.users == 0:
                    await life.close()
        finally:
            self._forget(life)

    def _forget(self, life: _Life) -> None:
        """Forget the session after its last user."""
        if life.users == 0 and life.ref is None:
            self._life = None

    @property
    def ref(self) -> Ref[BridgeMessage]:
        """The actor that owns the session; send it the messages of a BatchBridge.

        Raises BatchError while the bridge is not open.
        """
        if self._life is None or self._life.ref is None:
            raise BatchError(
                "this SparkBridge is not open: put it into the topology or the services of an "
                "App, which opens it, or use `async with bridge:`"
            )
        return self._life.ref

    async def run(
        self,
        work: Callable[[Any], T],
        *,
        name: str = "job",
        deadline_ms: int | timedelta | None = None,
    ) -> T:
        """Run `work(session)` in a bridge thread, as RunJob does; cancelling cancels the job.

        May be awaited in any event loop.
        """
        if deadline_ms is not None:
            deadline_ms = check_timeout(deadline_ms, "deadline_ms")
        ref, life = self.ref, self._life
        assert life is not None
        name = f"{name}-{uuid.uuid4().hex[:8]}"
        return await _in_loop(life.loop, run_job(ref, name, work, deadline_ms))

    async def start_query(
        self,
        name: str,
        query: Callable[[Any], Any],
        checkpoint: str,
        *,
        listener: Ref[QueryEvent] | None = None,
        restart: Restart = RESTART,
        stop_ms: int | timedelta = 30_000,
        timeout_ms: int | timedelta = 300_000,
    ) -> None:
        """Run a streaming query, as StartQuery does, and return when it runs.

        The query runs until it is stopped or the bridge is closed. `query(spark)` returns an
        unstarted `DataFrame.writeStream`. If the query does not run within `timeout_ms`, stops it
        and raises JobTimeout.
        """
        timeout_ms = check_timeout(timeout_ms)
        stop_ms = check_timeout(stop_ms, "stop_ms")
        ref = self.ref
        try:
            await ref.ask(StartQuery, name, query, checkpoint, listener, restart, stop_ms).within(
                max(1, timeout_ms) / 1000
            )
        except AskTimeout as late:
            ref.ask(StopQuery, name)
            raise JobTimeout(
                f"query {name} did not run within {timeout_ms} ms and is stopped: find out why "
                "Spark is slow, or raise timeout_ms"
            ) from late
        except ActorsError as ended:
            raise JobCancelled("the batch bridge has ended") from ended

    async def stop_query(self, name: str, *, timeout_ms: int | timedelta = 300_000) -> bool:
        """Stop a streaming query, and return once it has ended; the result is whether it existed.

        Raises JobTimeout after `timeout_ms`; the query then ends later.
        """
        timeout_ms = check_timeout(timeout_ms)
        try:
            return await self.ref.ask(StopQuery, name).within(max(1, timeout_ms) / 1000)
        except AskTimeout as late:
            raise JobTimeout(f"query {name} did not stop within {timeout_ms} ms") from late
        except ActorsError as ended:
            raise JobCancelled("the batch bridge has ended") from ended

    def function(
        self,
        function: Callable[[Any, Any], Any],
        *,
        key_type: str | None = None,
        value_type: str | None = None,
    ) -> SparkFunction:
        """Turn `function(spark, rows)`, from DataFrame to DataFrame, into one for `stream.batch`.

        `rows` have `key`, `value`, `timestamp` and `headers`, in record order. `key_type` and
        `value_type` are Spark types, such as `struct<name: string, size: int>`; without them, the
        records of each batch determine the types. The function returns a DataFrame or an Arrow
        table with `key` and `value`. Rows without `timestamp` (a timestamp, or ms) get the latest
        timestamp of the batch; rows without `headers` have none. Rows are forwarded in the returned
        order, so sort them if the order matters.
        """
        return SparkFunction(self, function, key_type, value_type)


@final
class SparkFunction:
    """A Spark function for `stream.batch`, made by `SparkBridge.function`.

    Raises JobFailed with the original error as its cause.
    """

    def __init__(
        self,
        bridge: SparkBridge,
        function: Callable[[Any, Any], Any],
        key_type: str | None,
        value_type: str | None,
    ) -> None:
        self.service: SparkBridge = bridge
        self._function = function
        self._types = (key_type, value_type)

    async def __call__(self, records: list[Record[Any, Any]]) -> list[Record[Any, Any]]:
        """Send records to Spark, and return the result."""
        name = getattr(self._function, "__name__", "function").replace("<", "").replace(">", "")
        return await self.service.run(partial(self._work, records), name=name)

    def _work(self, records: list[Record[Any, Any]], spark: Any) -> list[Record[Any, Any]]:
        from ks_actors.batch.tables import records_of, table_of  # noqa: PLC0415 - optional package

        key, value = (None if kind is None else _arrow_type(kind) for kind in self._types)
        rows = self._function(spark, spark.createDataFrame(table_of(records, key, value)))
        table = rows.toArrow() if hasattr(rows, "toArrow") else rows
        if not hasattr(table, "column_names"):
            raise BatchError(
                f"{self._function!r} returned {rows!r}: return a DataFrame, or an Arrow table"
            )
        return records_of(table, max(record.timestamp for record in records))


def _started(spark: Any) -> None:
    """Run a small Spark job, as the first job takes seconds."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    spark.createDataFrame(pa.table({"n": [0]})).toArrow()


def _arrow_type(kind: str) -> pa.DataType:
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415 - as above
    from pyspark.sql.types import DataType  # noqa: PLC0415 - as above

    return to_arrow_type(DataType.fromDDL(kind), timezone="UTC")
