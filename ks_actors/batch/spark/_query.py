"""A streaming query on Spark, with one actor for all of its runs."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, assert_never, final

from actors import Actor, Spec, Started, Stop, Stopping
from ks_actors._errors import BatchError, JobFailed, JobTimeout
from ks_actors.batch._task_errors import SparkError, died, translated
from ks_actors.batch.spark._messages import (
    LookAtQuery,
    QueryBegun,
    QueryBroken,
    QueryFailed,
    QueryMessage,
    QueryProgress,
    QuerySeen,
    QueryStarted,
)

if TYPE_CHECKING:
    from actors import Decision, Signal
    from ks_actors.batch.spark._messages import QueryEvent, StartQuery
    from ks_actors.batch.spark._session import SparkSession

_LOOK_SECONDS = 1.0
_MORE_SECONDS = 5.0


@final
class Runs:
    """State shared by the runs of a query, and its restart decision."""

    def __init__(self, order: StartQuery, session: SparkSession) -> None:
        self.order: StartQuery = order
        self.session: SparkSession = session
        self.begun: bool = False

    def spec(self) -> Spec[QueryMessage]:
        """Return the spec of the actor."""
        within = self.order.stop_ms / 1000 + _MORE_SECONDS
        return Spec(
            lambda: StreamingQuery(self), supervise=self._decide, executor="own", stop_within=within
        )

    def _decide(self, _: Exception) -> Decision:
        """Restart a query that has run before; a query that never started is faulty."""
        return self.order.restart if self.begun else Stop()

    def tell(self, event: QueryEvent) -> None:
        """Send an event to the listener."""
        if self.order.listener is not None:
            self.order.listener.tell(event)


class StreamingQuery(Actor[QueryMessage]):
    """One run of a query, polled every second.

    The actor fails when the query fails, and ends when it ends; stopping the actor stops the query.
    Calls to Spark run in one thread, in order, so a query never starts after its stop.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._order = runs.order
        self._restarts: int = 0
        self._spark: Any = None
        self._query: Any = None
        self._over: bool = False
        self._looking: bool = False
        self._last_reported: str = ""

    async def signal(self, signal: Signal) -> None:
        """Start the query on Started; stop it on Stopping."""
        if isinstance(signal, Started):
            self._restarts = signal.incarnation
            self.ctx.pipe(self.ctx.blocking(self._begin), QueryBegun, QueryBroken)
        elif isinstance(signal, Stopping) and not self._over:
            await self._end()

    def receive(self, message: QueryMessage) -> None:
        """Follow the query's state."""
        match message:
            case QueryBegun():
                self._runs.begun = True
                self._order.reply.tell(None)
                self._runs.tell(QueryStarted(self._order.name, message.run, self._restarts))
                self.ctx.timers.every("look", _LOOK_SECONDS, LookAtQuery())
            case LookAtQuery():
                if not self._looking:
                    self._looking = True
                    self.ctx.pipe(
                        self.ctx.blocking(self._check_progress), lambda seen: seen, QueryBroken
                    )
            case QuerySeen():
                self._seen(message)
            case QueryBroken():
                self._fail(message.error)
            case _:
                assert_never(message)

    def _seen(self, seen: QuerySeen) -> None:
        self._looking = False
        progress = seen.progress
        if progress is not None and progress["timestamp"] != self._last_reported:
            self._last_reported = progress["timestamp"]
            rows, rate = (
                progress.get("numInputRows") or 0,
                progress.get("processedRowsPerSecond") or 0.0,
            )
            self._runs.tell(
                QueryProgress(self._order.name, progress["batchId"], rows, rate, progress)
            )
        if seen.error is not None:
            self._over = True
            self._fail(seen.error)
        elif not seen.active:
            self._over = True
            self.ctx.stop()

    def _fail(self, failed: Exception) -> None:
        if self._runs.begun:
            self._runs.tell(QueryFailed(self._order.name, failed, self._restarts))
        raise failed

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(self._order.stop_ms / 1000):
                await self.ctx.blocking(self._stop)
        except TimeoutError:
            raise JobTimeout(
                f"query {self._order.name} did not stop within {self._order.stop_ms} ms: Spark may "
                "still run it"
            ) from None

    # --- in the thread ----------------------------------------------------------------------------

    def _begin(self) -> str:
        try:
            self._spark = self._runs.session.open()
            writer = self._order.query(self._spark)
            if not hasattr(writer, "queryName"):
                raise BatchError(
                    f"query {self._order.name} returned {writer!r}: return the DataStreamWriter of "
                    "DataFrame.writeStream, and do not start it"
                )
            self._query = (
                writer.queryName(self._order.name)
                .option("checkpointLocation", self._order.checkpoint)
                .start()
            )
            return str(self._query.runId)
        except BatchError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a user's code raised, or Spark
            failed = self._translated(error)
            raise failed from failed.__cause__

    def _check_progress(self) -> QuerySeen:
        try:
            return self._seen_now()
        except Exception as error:  # noqa: BLE001 - as above
            failed = self._translated(error)
            raise failed from failed.__cause__

    def _seen_now(self) -> QuerySeen:
        query = self._query
        # Read `lastProgress` last: after a query has ended, it is the query's final report.
        active = query.isActive
        failure = None if active else query.exception()
        error = None if failure is None else self._translated(failure)
        last = query.lastProgress
        progress = None if last is None else json.loads(last.json)
        return QuerySeen(active, progress, error)

    def _translated(self, error: Exception) -> JobFailed:
        """Return the failure of a query, without Spark's dump of the plan.

        A Java error becomes text now, as showing it later would need Java again. Call this method
        in the query's thread.
        """
        if self._runs.session.has_lost(self._spark, error):
            return died(self._order.name, "query")
        if type(error).__module__.startswith(("pyspark", "py4j")):
            error = SparkError(str(error).partition("\n=== Streaming Query ===")[0])
        return translated(error, self._order.name, "query")

    def _stop(self) -> None:
        if self._query is not None and self._runs.session.living() is self._spark:
            self._query.stop()
