"""Spark Connect: server checks, session checks and progress of operations. All calls block."""

from __future__ import annotations

import os
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, final

from ks_actors._errors import SparkUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Stages: TypeAlias = "dict[int, tuple[int, int]]"
"""Finished and total tasks by the id of Spark's stage."""

ANSWER_SECONDS = 20.0
_RETRY_MS = 2_000
_RETRIES = 300
_GONE = (
    "INVALID_HANDLE.SESSION_",
    "NO_ACTIVE_SESSION",
    "Received incorrect server side session identifier",
)


def check_answers(url: str, shown: str) -> None:
    """Raise SparkUnavailable unless a server answers at a URL within 20 s.

    `shown` is the part of the URL for error messages. The pyspark client itself retries for more
    than ten minutes, and cannot be interrupted.
    """
    import grpc  # type: ignore[import-untyped]  # noqa: PLC0415 - loaded on use
    from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415 - as above

    with closing(DefaultChannelBuilder(url).toChannel()) as channel:
        ready = grpc.channel_ready_future(channel)
        try:
            ready.result(ANSWER_SECONDS)
        except grpc.FutureTimeoutError:
            ready.cancel()
            why = (
                f"no answer for {ANSWER_SECONDS:g} s. Is a Spark Connect server running there, and "
                "can this machine reach it?"
            )
            raise SparkUnavailable(f"could not open a Spark session at {shown}: {why}") from None


def try_often(spark: Any) -> None:
    """Make a session retry an absent server every two seconds instead of up to every minute.

    The total time of retries stays about the same.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415 - as above

    spark.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES, max_backoff=_RETRY_MS)])


_MODE = "SPARK_CONNECT_MODE_ENABLED"
_changing = threading.Lock()
_connected = 0


def connected(builder: Any) -> Any:
    """Return a new session of a pyspark builder; close it with `disconnected`."""
    global _connected  # noqa: PLW0603 - what pyspark marks is one for the process, too
    with _changing:
        was = _MODE in os.environ
        spark = builder.create()
        _connected += 0 if was and not _connected else 1  # keep the mark of another session
        return spark


def disconnected() -> None:
    """Remove pyspark's mark on the process when the last session is closed.

    With the mark, this process could not start a classic Spark session.
    """
    global _connected  # noqa: PLW0603 - as above
    with _changing:
        if _connected:
            _connected -= 1
            if not _connected:
                os.environ.pop(_MODE, None)


def is_known(spark: Any) -> bool:
    """Return whether the server still knows a session.

    A server forgets all sessions when it restarts, and an idle session when that expires.
    """
    try:
        return bool(spark.version)
    except Exception:  # noqa: BLE001 - whatever it is: there is no session to be used
        return False


def is_gone(error: BaseException) -> bool:
    """Return whether an error says that the server no longer knows the session."""
    text = str(error)
    return any(name in text for name in _GONE)


@final
class OperationProgress:
    """Progress handler of operations, called in the thread that waits for them.

    Records the progress in the dict that the calling thread passed to `into`.
    """

    def __init__(self) -> None:
        self._here = threading.local()

    @contextmanager
    def into(self, stages: Stages) -> Iterator[None]:
        """Record the progress of operations that this thread starts."""
        self._here.stages = stages
        try:
            yield
        finally:
            self._here.stages = None

    def __call__(
        self,
        stages: Iterable[Any] | None,
        inflight_tasks: int,  # noqa: ARG002 - pyspark's
        operation_id: str | None,  # noqa: ARG002 - as above
        done: bool,  # noqa: ARG002 - as above
    ) -> None:
        """Record the stages that pyspark reports."""
        seen: Stages | None = getattr(self._here, "stages", None)
        if seen is not None:
            seen.update(
                {
                    stage.stage_id: (stage.num_completed_tasks, stage.num_tasks)
                    for stage in stages or ()
                }
            )
