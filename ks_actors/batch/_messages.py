"""What the batch bridge is told, and what it tells."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - messages are read at run time
from typing import Any, TypeAlias

from actors import Message, Ref, Reply

Work: TypeAlias = "Callable[[Any], Any]"
"""What a job does, in a thread: it is given the session of pyspark."""


class JobProgress(Message, frozen=True, tag="PROGRESS"):
    """How far a job is: Spark's tasks that are done, of those that are known by now; both are 0 where Spark does not tell (Spark Connect)."""

    job: str
    done: int
    known: int
    seconds: float


class RunJob(Message, frozen=True, tag="RUN_JOB"):
    """Do `work(session)` in a thread, and answer with what it returns.

    Jobs beyond the settings' `max_jobs` wait for their turn. `deadline_ms` counts from when the job begins; one that is not done by then is
    cancelled. `progress` is told every second how far it is. Answered with JobFailed, JobTimeout, JobCancelled, and SparkUnavailable.
    """

    reply: Reply[Any]
    name: str
    work: Work
    deadline_ms: int | None = None
    progress: Ref[JobProgress] | None = None


class CancelJob(Message, frozen=True, tag="CANCEL"):
    """Cancel a job; answered with whether there was one. The job itself is answered with JobCancelled when it has ended."""

    reply: Reply[bool]
    name: str


class JobEnded(Message, frozen=True, tag="JOB_ENDED"):
    """A job's thread is done with it (internal)."""

    name: str
    result: Any
    error: Exception | None


class JobLate(Message, frozen=True, tag="JOB_LATE"):
    """A job's deadline is over (internal)."""

    name: str


class InterruptJob(Message, frozen=True, tag="INTERRUPT"):
    """A job that is to end may have begun something at Spark since it was last interrupted (internal)."""

    name: str


class LookAtJobs(Message, frozen=True, tag="LOOK_AT_JOBS"):
    """See how far the jobs are (internal)."""


class JobsSeen(Message, frozen=True, tag="JOBS_SEEN"):
    """How far the jobs are (internal)."""

    progress: dict[str, tuple[int, int]]


BridgeMessage: TypeAlias = RunJob | CancelJob | JobEnded | JobLate | InterruptJob | LookAtJobs | JobsSeen
