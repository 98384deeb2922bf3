"""Spark Connect: whether a server answers, whether it knows a session, and how far its operations are. All of it blocks."""

from __future__ import annotations

import os
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, final

from ks_actors._errors import SparkUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Stages: TypeAlias = "dict[int, tuple[int, int]]"
"""Of Spark's stages, by their ids: tasks that are done, and how many there are."""

ANSWER_SECONDS = 20.0
_RETRY_MS = 2_000
_RETRIES = 300
_GONE = ("INVALID_HANDLE.SESSION_", "NO_ACTIVE_SESSION", "Received incorrect server side session identifier")


def check_answers(url: str, shown: str) -> None:
    """Raise SparkUnavailable, after 20 s, unless somebody answers at a URL; `shown` is what may be told of it.

    The client of pyspark itself tries for more than ten minutes, and whoever waits for it cannot be interrupted.
    """
    import grpc  # type: ignore[import-untyped]  # noqa: PLC0415 - nobody pays for it who does not use it
    from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415 - as above

    with closing(DefaultChannelBuilder(url).toChannel()) as channel:
        ready = grpc.channel_ready_future(channel)
        try:
            ready.result(ANSWER_SECONDS)
        except grpc.FutureTimeoutError:
            ready.cancel()
            why = f"nobody has answered for {ANSWER_SECONDS:g} s. Is a Spark Connect server running there, and can it be reached from here?"
            raise SparkUnavailable(f"no Spark session could be had at {shown}: {why}") from None


def try_often(spark: Any) -> None:
    """Have a session wait for a server that is away for as long as ever, but look for it every two seconds, and not every minute in the end."""
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415 - as above

    spark.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES, max_backoff=_RETRY_MS)])


_MODE = "SPARK_CONNECT_MODE_ENABLED"
_changing = threading.Lock()
_connected = 0


def connected(builder: Any) -> Any:
    """Return a new session that a builder of pyspark's makes, to be closed by `disconnected`."""
    global _connected  # noqa: PLW0603 - what pyspark marks is one for the process, too
    with _changing:
        was = _MODE in os.environ
        spark = builder.create()
        _connected += 0 if was and not _connected else 1  # somebody else's mark is left alone
        return spark


def disconnected() -> None:
    """Take back pyspark's mark on the process when the last session is closed: with it no Spark could be started here any more."""
    global _connected  # noqa: PLW0603 - as above
    with _changing:
        if _connected:
            _connected -= 1
            if not _connected:
                os.environ.pop(_MODE, None)


def is_known(spark: Any) -> bool:
    """Return whether the server has a session still: not one that was started again, nor one that has let go of it as nothing was done for long."""
    try:
        return bool(spark.version)
    except Exception:  # noqa: BLE001 - whatever it is: there is no session to be used
        return False


def is_gone(error: BaseException) -> bool:
    """Return whether an error says that the server does not know the session any more."""
    text = str(error)
    return any(name in text for name in _GONE)


@final
class OperationProgress:
    """Hears how far operations are, in the thread that waits for them, and takes note for whoever has begun them there."""

    def __init__(self) -> None:
        self._here = threading.local()

    @contextmanager
    def into(self, stages: Stages) -> Iterator[None]:
        """Take note of what this thread begins."""
        self._here.stages = stages
        try:
            yield
        finally:
            self._here.stages = None

    def __call__(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:  # noqa: ARG002 - pyspark's
        """Take note of stages, as pyspark tells of them."""
        seen: Stages | None = getattr(self._here, "stages", None)
        if seen is not None:
            seen.update({stage.stage_id: (stage.num_completed_tasks, stage.num_tasks) for stage in stages or ()})
