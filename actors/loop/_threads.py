"""Threads for blocking jobs."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
P = ParamSpec("P")


class ThreadLane(Executor):
    """Run jobs in at most `threads` daemon threads, first come, first served.

    The standard pool joins its threads when the interpreter exits, so one hanging job keeps the
    process alive. This framework promises to abandon such a job, and so needs daemon threads. A job
    that finds no idle thread starts one; `shutdown` ends them.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._limit = threads
        self._threads: list[threading.Thread] = []
        self._jobs: deque[tuple[Future[object], Callable[[], object]]] = deque()
        self._idle = 0
        self._at_work = 0
        self._closed = False
        self._work = threading.Condition()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a job; raise RuntimeError after `shutdown`."""
        future: Future[T] = Future()
        with self._work:
            if self._closed:
                raise RuntimeError(f"the threads of {self._name} are shut down")
            # Each queued job already claims an idle thread.
            if self._idle <= len(self._jobs) and len(self._threads) < self._limit:
                # Start the thread first, as that may fail: a refused job must not be in the queue.
                thread = threading.Thread(
                    target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True
                )
                thread.start()
                self._threads.append(thread)
            # The queue holds futures of all types.
            self._jobs.append((future, lambda: fn(*args, **kwargs)))  # type: ignore[arg-type]
            self._work.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs; cancel queued jobs if asked; join the threads if `wait`."""
        self._close(cancel_futures=cancel_futures)
        if wait:
            self._join()

    def retire(self) -> None:
        """Take no more jobs, cancel queued jobs, and join the threads unless a job is running.

        Call this on the loop's thread, which must not wait for a job.
        """
        if self._close(cancel_futures=True):
            self._join()

    def _close(self, *, cancel_futures: bool) -> bool:
        with self._work:
            self._closed = True
            dropped = tuple(self._jobs) if cancel_futures else ()
            if cancel_futures:
                self._jobs.clear()
            idle = self._at_work == 0
            self._work.notify_all()
        for future, _ in dropped:
            future.cancel()
        return idle

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._work:
                self._idle += 1
                while not self._jobs and not self._closed:
                    self._work.wait()
                self._idle -= 1
                if not self._jobs:
                    return
                future, job = self._jobs.popleft()
                self._at_work += 1
            self._work_at(future, job)
            # An idle thread must not keep the last job's result alive.
            del future, job

    def _work_at(self, future: Future[object], job: Callable[[], object]) -> None:
        result: object = None
        failure: BaseException | None = None
        goes_on = future.set_running_or_notify_cancel()
        if goes_on:
            try:
                result = job()
            except BaseException as error:
                failure = error
        # Do this before the future is resolved: its receiver may rely on this thread being idle.
        with self._work:
            self._at_work -= 1
        if failure is not None:
            future.set_exception(failure)
        elif goes_on:
            future.set_result(result)
