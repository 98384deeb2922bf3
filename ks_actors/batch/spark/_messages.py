"""The messages of the batch bridge."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - messages are read at run time
from typing import Any, Final, TypeAlias

from actors import Message, Ref, Reply, Restart

Work: TypeAlias = "Callable[[Any], Any]"
"""The function of a job; it runs in a thread with the pyspark session as its argument."""


class JobProgress(Message, frozen=True):
    """Progress of a job: Spark's finished tasks, and the tasks known so far.

    Spark Connect reports about every two seconds.
    """

    job: str
    done: int
    known: int
    seconds: float


class RunJob(Message, frozen=True):
    """Run `work(session)` in a thread; the reply is its result.

    Jobs beyond the settings' `max_jobs` wait for their turn. `deadline_ms` counts from the start of
    the job; a job that is late is cancelled. If its thread cannot be interrupted, the reply fails
    30 s later. `progress` gets a JobProgress every second. The reply fails with JobFailed,
    JobTimeout, JobCancelled or SparkUnavailable.
    """

    reply: Reply[Any]
    name: str
    work: Work
    deadline_ms: int | None = None
    progress: Ref[JobProgress] | None = None


class CancelJob(Message, frozen=True):
    """Cancel a job; the reply is whether it existed.

    When the job has ended, after 30 s at most, the job's own reply fails with JobCancelled.
    """

    reply: Reply[bool]
    name: str


Streaming: TypeAlias = "Callable[[Any], Any]"
"""The function that defines a streaming query.

The function gets the pyspark session, and returns an unstarted `DataFrame.writeStream`.
"""


RESTART: Final = Restart(limit=3, within=600.0, backoff=(1.0, 60.0))
"""The default restart policy of a streaming query."""


class QueryStarted(Message, frozen=True):
    """A run of a streaming query has started, for the first time or again from its checkpoint.

    `run` is Spark's id of the run.
    """

    query: str
    run: str
    restarts: int


class QueryProgress(Message, frozen=True):
    """Progress of a streaming query: its last micro-batch and the number of rows.

    `details` is Spark's full report.
    """

    query: str
    batch: int
    rows: int
    rows_per_second: float
    details: dict[str, Any]


class QueryFailed(Message, frozen=True):
    """A run of a streaming query has failed; `restart` decides on another run.

    The cause of the error is the original exception.
    """

    query: str
    error: Exception
    restarts: int


class QueryEnded(Message, frozen=True):
    """The last event of a streaming query.

    `error` is None if the query was stopped or finished, else the error after too many failures.
    """

    query: str
    error: Exception | None


QueryEvent: TypeAlias = QueryStarted | QueryProgress | QueryFailed | QueryEnded
"""An event for the listener of a streaming query."""


class StartQuery(Message, frozen=True):
    """Run a streaming query and supervise it; the reply is None once its first run has started.

    Each run calls `query(session)` in a thread, and continues from `checkpoint`, a directory.
    `restart` decides whether another run follows a failed one. If the first run never starts, there
    is no other run; the reply fails with JobFailed or SparkUnavailable. `listener` gets the events,
    with progress at most once per second. When the query or the bridge is stopped, the query has
    `stop_ms` to end.
    """

    reply: Reply[None]
    name: str
    query: Streaming
    checkpoint: str
    listener: Ref[QueryEvent] | None = None
    restart: Restart = RESTART
    stop_ms: int = 30_000


class StopQuery(Message, frozen=True):
    """Stop a streaming query; when it has ended, the reply is whether it existed."""

    reply: Reply[bool]
    name: str


class QueryAllowed(Message, frozen=True):
    """A session for the query is available (internal)."""

    order: StartQuery


class QueryRefused(Message, frozen=True):
    """No session for the query is available (internal)."""

    order: StartQuery
    error: Exception


class QueryBegun(Message, frozen=True):
    """Spark has started a query (internal)."""

    run: str


class LookAtQuery(Message, frozen=True):
    """Check the progress of a query (internal)."""


class QuerySeen(Message, frozen=True):
    """The progress of a query (internal)."""

    active: bool
    progress: dict[str, Any] | None
    error: Exception | None


class QueryBroken(Message, frozen=True):
    """A query could not be started or checked (internal)."""

    error: Exception


QueryMessage: TypeAlias = QueryBegun | LookAtQuery | QuerySeen | QueryBroken


class JobEnded(Message, frozen=True):
    """A job's thread has finished (internal)."""

    name: str
    result: Any
    error: Exception | None


class JobLate(Message, frozen=True):
    """A job's deadline, or its time to end after a cancel, is over (internal)."""

    name: str


class InterruptJob(Message, frozen=True):
    """Interrupt a cancelled job again, as it may have started more work on Spark (internal)."""

    name: str


class LookAtJobs(Message, frozen=True):
    """Check the progress of the jobs (internal)."""


class JobsSeen(Message, frozen=True):
    """The progress of the jobs (internal)."""

    progress: dict[str, tuple[int, int]]


BridgeMessage: TypeAlias = (
    RunJob
    | CancelJob
    | StartQuery
    | StopQuery
    | JobEnded
    | JobLate
    | InterruptJob
    | LookAtJobs
    | JobsSeen
    | QueryAllowed
    | QueryRefused
)
