"""The actor that owns the Spark session and runs jobs on it."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar, assert_never, final

from actors import HANDLED, Actor, ActorsError, Spec, Stopping, Terminated
from actors.loop import ThreadLane
from ks_actors._errors import BatchError, JobCancelled, JobTimeout
from ks_actors.batch._task_errors import died, translated
from ks_actors.batch.spark._messages import (
    BridgeMessage,
    CancelJob,
    InterruptJob,
    JobEnded,
    JobLate,
    JobProgress,
    JobsSeen,
    LookAtJobs,
    QueryAllowed,
    QueryRefused,
    RunJob,
    StartQuery,
    StopQuery,
)
from ks_actors.batch.spark._queries import Queries
from ks_actors.batch.spark._session import SparkSession, new_tag
from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors import Handled, Hook, Ref, Signal
    from ks_actors.batch.spark._connect import Stages
    from ks_actors.batch.spark._settings import SparkSettings

T = TypeVar("T")
_LOOK_SECONDS = 1.0
_INTERRUPT_SECONDS = 0.5
_GIVE_UP_SECONDS = 30.0
_STOP_SECONDS = 60.0
_log = component_log(__name__)


@final
class _Job:
    """A running job with its own thread, so that Spark's thread-local state ends with it."""

    def __init__(self, order: RunJob, began: float) -> None:
        self.order: RunJob = order
        self.tag: str = new_tag(order.name)
        self.began: float = began
        self.refusal: BatchError | None = None
        self.answered: bool = False
        self.stages: Stages = {}
        # Threads of the standard pool would keep the process until the job ends, if it ever does.
        self.thread: ThreadLane = ThreadLane(f"ks-batch-{order.name}", 1)

    def run(self, session: SparkSession, connects: bool) -> Any:
        """Run the work in the job's thread. Raises BatchError for every failure."""
        if self.refusal is not None:
            raise self.refusal
        spark = session.spark
        try:
            if connects:
                spark.addTag(self.tag)
            else:
                spark.sparkContext.setJobGroup(self.tag, self.order.name, True)
                spark.sparkContext.addJobTag(self.tag)
            with session.operations.into(self.stages):
                return self.order.work(spark)
        except BatchError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a user's code raised, or Spark
            failed = (
                died(self.order.name)
                if session.has_lost(spark, error)
                else translated(error, self.order.name)
            )
            raise failed from failed.__cause__

    def answer(self, result: Any, error: BatchError | None) -> None:
        """Answer the caller, once."""
        if self.answered:
            return
        self.answered = True
        if error is None:
            self.order.reply.tell(result)
        else:
            self.order.reply.fail(error)


class BatchBridge(Actor[BridgeMessage]):
    """The actor that owns the Spark session and runs jobs on it in threads.

    The first job starts the session. The event loop never waits for Spark. Create a bridge with
    `BatchBridge.spec(settings)`, and send it RunJob, CancelJob, StartQuery and StopQuery. When the
    bridge stops, it stops queries, cancels jobs, and stops the session and its processes. A session
    that the process already had stays open.
    """

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings
        self._session = SparkSession(settings)
        self._opening = ThreadLane("ks-batch-session", 1)
        self._jobs: dict[str, _Job] = {}
        self._waiting: deque[RunJob] = deque()
        self._looking: bool = False
        self._interrupting: set[str] = set()
        self._queries = Queries(self._session)

    @classmethod
    def spec(cls, settings: SparkSettings) -> Spec[BridgeMessage]:
        """Return the spec of a bridge, with enough time for Spark to stop."""
        return Spec(lambda: cls(settings), stop_within=_STOP_SECONDS)

    async def signal(self, signal: Signal) -> Handled | None:
        """Handle queries that end; clean up on Stopping."""
        if isinstance(signal, Stopping):
            self._queries.close()
            await self._stop()
        elif isinstance(signal, Terminated) and self._queries.ended(signal.ref, signal.cause):
            return HANDLED
        return None

    def receive(self, message: BridgeMessage) -> Hook:
        """Start and end jobs and queries, and report their progress."""
        match message:
            case RunJob():
                self._take_on(message)
            case CancelJob():
                message.reply.tell(
                    self._cancel(message.name, JobCancelled(f"job {message.name} was cancelled"))
                )
            case StartQuery():
                self._prepare(message)
            case QueryAllowed():
                return self._queries.start(message.order, self.ctx)
            case QueryRefused():
                self._queries.refuse(message.order, message.error)
            case StopQuery():
                self._queries.stop(message, self.ctx)
            case JobEnded():
                self._ended(message)
            case JobLate():
                self._late(message.name)
            case InterruptJob():
                self._interrupt(message.name)
            case LookAtJobs():
                self._check_progress()
            case JobsSeen():
                self._tell_progress(message)
            case _:
                assert_never(message)
        return None

    # --- jobs -------------------------------------------------------------------------------------

    def _take_on(self, order: RunJob) -> None:
        if order.name in self._jobs or any(other.name == order.name for other in self._waiting):
            order.reply.fail(
                BatchError(
                    f"job {order.name} already runs: wait for it, or give this one another name"
                )
            )
        elif len(self._jobs) < self._settings.max_jobs:
            self._begin(order)
        else:
            self._waiting.append(order)

    def _begin(self, order: RunJob) -> None:
        job = self._jobs[order.name] = _Job(order, self.ctx.time())
        loop = asyncio.get_running_loop()
        self.ctx.pipe(
            self._run(job, loop), partial(_ended, order.name), partial(_failed, order.name)
        )
        if order.deadline_ms is not None:
            self.ctx.timers.once(
                f"late {order.name}", order.deadline_ms / 1000, JobLate(order.name)
            )
        if order.progress is not None and "look" not in self.ctx.timers:
            self.ctx.timers.every("look", _LOOK_SECONDS, LookAtJobs())

    async def _run(self, job: _Job, loop: asyncio.AbstractEventLoop) -> Any:
        # One thread opens the session; concurrent jobs wait here for it.
        await loop.run_in_executor(self._opening, _opened, self._session)
        return await loop.run_in_executor(
            job.thread, job.run, self._session, self._settings.connects
        )

    def _prepare(self, order: StartQuery) -> None:
        if self._queries.take_on(order):
            opening = asyncio.get_running_loop().run_in_executor(
                self._opening, _opened, self._session
            )
            self.ctx.pipe(
                opening, lambda _: QueryAllowed(order), lambda error: QueryRefused(order, error)
            )

    def _ended(self, ended: JobEnded) -> None:
        job = self._jobs.pop(ended.name)
        job.thread.shutdown(wait=False)
        self.ctx.timers.cancel(f"late {ended.name}")
        self.ctx.timers.cancel(f"interrupt {ended.name}")
        if ended.error is None:
            job.answer(ended.result, None)
        # A cancelled job fails with any error; its caller gets the reason of the cancel instead.
        elif job.refusal is not None:
            job.answer(None, job.refusal)
        else:
            job.answer(
                None,
                ended.error
                if isinstance(ended.error, BatchError)
                else translated(ended.error, ended.name),
            )
        # A slot becomes free only here: a cancelled job keeps its slot until its thread returns.
        if self._waiting:
            self._begin(self._waiting.popleft())
        if not any(other.order.progress is not None for other in self._jobs.values()):
            self.ctx.timers.cancel("look")

    def _late(self, name: str) -> None:
        job = self._jobs.get(name)
        if job is None:
            return
        if job.refusal is None:
            self._cancel(
                name,
                JobTimeout(
                    f"job {name} was not done within {job.order.deadline_ms} ms and was cancelled"
                ),
            )
            return
        # The thread cannot be interrupted, and keeps its slot among the jobs. Stop waiting for it.
        _log.warning(
            "job %s was cancelled %g s ago, and its thread has not returned",
            name,
            _GIVE_UP_SECONDS,
        )
        job.answer(None, job.refusal)

    def _cancel(self, name: str, refusal: BatchError) -> bool:
        job = self._jobs.get(name)
        if job is not None:
            if job.refusal is None:
                job.refusal = refusal
                # Repeat: between two Spark jobs there is nothing to cancel.
                self.ctx.timers.every(f"interrupt {name}", _INTERRUPT_SECONDS, InterruptJob(name))
                self.ctx.timers.once(f"late {name}", _GIVE_UP_SECONDS, JobLate(name))
                self._interrupt(name)
            return True
        for order in self._waiting:
            if order.name == name:
                self._waiting.remove(order)
                order.reply.fail(refusal)
                return True
        return False

    def _interrupt(self, name: str) -> None:
        job = self._jobs.get(name)
        if job is not None and self._session.is_open and job.tag not in self._interrupting:
            tag = job.tag
            self._interrupting.add(tag)
            cancelling = asyncio.get_running_loop().run_in_executor(
                # Run this in the session's thread: py4j blocks, and the job's own thread is busy.
                self._opening,
                self._cancel_tag,
                tag,
            )
            cancelling.add_done_callback(lambda _: self._interrupting.discard(tag))

    def _cancel_tag(self, tag: str) -> None:
        """Cancel Spark's jobs with a tag.

        Spark Connect has a separate call for this, which does nothing without Connect.
        """
        if self._settings.connects:
            self._session.give_up()
        spark = self._session.living()
        if spark is None:
            return
        try:
            if self._settings.connects:
                spark.interruptTag(tag)
            else:
                spark.sparkContext.cancelJobsWithTag(tag)
        except Exception as error:  # noqa: BLE001 - Spark gone ends the job; py4j raises anything
            _log.warning("could not cancel jobs of %s: %s", tag, error)

    # --- progress ---------------------------------------------------------------------------------

    def _check_progress(self) -> None:
        watched = {name: job for name, job in self._jobs.items() if job.order.progress is not None}
        tags = {name: job.tag for name, job in watched.items()}
        if self._settings.connects:  # the job threads receive progress from Spark Connect
            self._tell_progress(JobsSeen({name: _sum(job.stages) for name, job in watched.items()}))
        elif tags and not self._looking and self._session.is_open:
            self._looking = True
            looking = asyncio.get_running_loop().run_in_executor(self._opening, self._seen, tags)
            self.ctx.pipe(looking, JobsSeen, lambda _: JobsSeen({}))

    def _seen(self, tags: dict[str, str]) -> dict[str, tuple[int, int]]:
        spark = self._session.living()
        if spark is None:
            return dict.fromkeys(tags, (0, 0))
        tracker = spark.sparkContext.statusTracker()
        found: dict[str, tuple[int, int]] = {}
        for name, tag in tags.items():
            done = known = 0
            for job in tracker.getJobIdsForGroup(tag):
                info = tracker.getJobInfo(job)
                for stage in () if info is None else map(tracker.getStageInfo, info.stageIds):
                    if stage is not None:
                        done += stage.numCompletedTasks
                        known += stage.numTasks
            found[name] = (done, known)
        return found

    def _tell_progress(self, seen: JobsSeen) -> None:
        self._looking = False
        for name, (done, known) in seen.progress.items():
            job = self._jobs.get(name)
            if job is not None and job.order.progress is not None:
                job.order.progress.tell(JobProgress(name, done, known, self.ctx.time() - job.began))

    # --- the end ----------------------------------------------------------------------------------

    async def _stop(self) -> None:
        ended = JobCancelled("the batch bridge has ended")
        for order in self._waiting:
            order.reply.fail(ended)
        self._waiting.clear()
        for name, job in self._jobs.items():
            self._cancel(name, ended)
            job.answer(None, ended)
        loop = asyncio.get_running_loop()
        # Spark aborts the running jobs. Their threads end with errors, which are ignored.
        await loop.run_in_executor(self._opening, self._session.close)
        for job in self._jobs.values():
            job.thread.shutdown(wait=False)
        self._opening.shutdown(wait=False)


async def run_job(
    ref: Ref[BridgeMessage],
    name: str,
    work: Callable[[Any], T],
    deadline_ms: int | None = None,
    progress: Ref[JobProgress] | None = None,
) -> T:
    """Run `work(session)` on a bridge, as RunJob does; cancelling cancels the job.

    Also raises JobCancelled when the bridge has ended.
    """
    try:
        done: T = await ref.ask(RunJob, name, work, deadline_ms, progress).within(inf)
    except asyncio.CancelledError:
        ref.ask(CancelJob, name)
        raise
    except ActorsError as ended:
        raise JobCancelled("the batch bridge has ended") from ended
    return done


def _opened(session: SparkSession) -> None:
    """Start the session, unless a living one exists."""
    session.open()


def _sum(stages: Stages) -> tuple[int, int]:
    seen = list(stages.values())
    return sum(done for done, _ in seen), sum(known for _, known in seen)


def _ended(name: str, result: Any) -> BridgeMessage:
    return JobEnded(name, result, None)


def _failed(name: str, error: Exception) -> BridgeMessage:
    return JobEnded(name, None, error)
