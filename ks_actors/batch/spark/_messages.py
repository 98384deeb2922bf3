"""What the batch bridge is told, and what it tells."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - messages are read at run time
from typing import Any, Final, TypeAlias

from actors import Message, Ref, Reply, Restart

Work: TypeAlias = "Callable[[Any], Any]"
"""What a job does, in a thread: it is given the session of pyspark."""


class JobProgress(Message, frozen=True):
    """How far a job is: Spark's tasks that are done, of those that are known by now. Spark Connect tells of them every two seconds or so."""

    job: str
    done: int
    known: int
    seconds: float


class RunJob(Message, frozen=True):
    """Do `work(session)` in a thread, and answer with what it returns.

    Jobs beyond the settings' `max_jobs` wait for their turn. `deadline_ms` counts from when the job begins; one that is not done by then is
    cancelled, and what cannot be interrupted is not waited for longer than 30 s. `progress` is told every second how far it is. Answered with
    JobFailed, JobTimeout, JobCancelled, and SparkUnavailable.
    """

    reply: Reply[Any]
    name: str
    work: Work
    deadline_ms: int | None = None
    progress: Ref[JobProgress] | None = None


class CancelJob(Message, frozen=True):
    """Cancel a job; answered with whether there was one. The job itself is answered with JobCancelled when it has ended, after 30 s at most."""

    reply: Reply[bool]
    name: str


Streaming: TypeAlias = "Callable[[Any], Any]"
"""What makes a streaming query: it is given the session of pyspark, and returns what `DataFrame.writeStream` gives, not started."""


RESTART: Final = Restart(limit=3, within=600.0, backoff=(1.0, 60.0))
"""How often a streaming query is begun anew, unless it is said otherwise."""


class QueryStarted(Message, frozen=True):
    """A streaming query runs: for the first time, or again, from its checkpoint; `run` is Spark's id of this run."""

    query: str
    run: str
    restarts: int


class QueryProgress(Message, frozen=True):
    """How far a streaming query is: the last micro-batch that Spark has told of, with its rows, and all that Spark says about it in `details`."""

    query: str
    batch: int
    rows: int
    rows_per_second: float
    details: dict[str, Any]


class QueryFailed(Message, frozen=True):
    """A run of a streaming query has failed; whether there is another one is for its `restart` to say. The error's cause is what was raised."""

    query: str
    error: Exception
    restarts: int


class QueryEnded(Message, frozen=True):
    """The last that is heard of a streaming query: it was stopped or has come to its end (None), or has failed too often."""

    query: str
    error: Exception | None


QueryEvent: TypeAlias = QueryStarted | QueryProgress | QueryFailed | QueryEnded
"""What the listener of a streaming query is told."""


class StartQuery(Message, frozen=True):
    """Run a streaming query, and see to it that it runs; answered with None when it does for the first time.

    `query(session)` is called in a thread for each run, which goes on from `checkpoint`, a directory. A run that fails is followed by another as
    `restart` says; one that fails before the query ever ran is not: then the answer is JobFailed, or SparkUnavailable. `listener` is told what
    becomes of it, of its progress once per second at most. When it is stopped, or the bridge is, it has `stop_ms` to end.
    """

    reply: Reply[None]
    name: str
    query: Streaming
    checkpoint: str
    listener: Ref[QueryEvent] | None = None
    restart: Restart = RESTART
    stop_ms: int = 30_000


class StopQuery(Message, frozen=True):
    """Stop a streaming query; answered when it has ended, with whether there was one."""

    reply: Reply[bool]
    name: str


class QueryAllowed(Message, frozen=True):
    """There is a session that a query can run on (internal)."""

    order: StartQuery


class QueryRefused(Message, frozen=True):
    """There is none (internal)."""

    order: StartQuery
    error: Exception


class QueryBegun(Message, frozen=True):
    """Spark runs a query (internal)."""

    run: str


class LookAtQuery(Message, frozen=True):
    """See how far a query is (internal)."""


class QuerySeen(Message, frozen=True):
    """How far a query is (internal)."""

    active: bool
    progress: dict[str, Any] | None
    error: Exception | None


class QueryBroken(Message, frozen=True):
    """A query could not be started, or looked at (internal)."""

    error: Exception


QueryMessage: TypeAlias = QueryBegun | LookAtQuery | QuerySeen | QueryBroken


class JobEnded(Message, frozen=True):
    """A job's thread is done with it (internal)."""

    name: str
    result: Any
    error: Exception | None


class JobLate(Message, frozen=True):
    """A job's deadline is over, or the time that it had to end (internal)."""

    name: str


class InterruptJob(Message, frozen=True):
    """A job that is to end may have begun something at Spark since it was last interrupted (internal)."""

    name: str


class LookAtJobs(Message, frozen=True):
    """See how far the jobs are (internal)."""


class JobsSeen(Message, frozen=True):
    """How far the jobs are (internal)."""

    progress: dict[str, tuple[int, int]]


BridgeMessage: TypeAlias = (
    RunJob | CancelJob | StartQuery | StopQuery | JobEnded | JobLate | InterruptJob | LookAtJobs | JobsSeen | QueryAllowed | QueryRefused
)
