"""Five minutes of an app's figures, also of the time without readers."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from ks_actors.lifecycle import component_log
from ks_actors.runtime import InstanceState

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from ks_actors.app import App
    from ks_actors.web._graph import Layout

_EACH_S: Final = 2.0
_LOG_EACH_S: Final = 60.0
_KEPT: Final = 150
_ENDS: Final = frozenset({InstanceState.NOT_RUNNING, InstanceState.ERROR})
_log = component_log(__name__)


class TrendsView(msgspec.Struct, frozen=True):
    """Samples of the last five minutes, every `each_s` seconds, the newest last.

    `rate` and `dropped` are records per second, `lag` is in records. `latency` is the mean age of
    written records in ms. None: unknown, or the app did not run.
    """

    each_s: float
    rate: tuple[float | None, ...] = ()
    lag: tuple[int | None, ...] = ()
    dropped: tuple[float | None, ...] = ()
    latency: tuple[int | None, ...] = ()


_Sample = tuple[float | None, int | None, float | None, int | None]
_UNKNOWN: Final[_Sample] = (None, None, None, None)


class Trends:
    """Take a sample of an app every two seconds, from numbers that the app has anyway.

    Does not read the metrics, which takes time for each task and topic.
    """

    def __init__(self, app: App, layout: Layout) -> None:
        self._app = app
        self._layout = layout
        self._samples: deque[_Sample] = deque(maxlen=_KEPT)
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        # The totals of the last sample: records, dropped records, ages and their number.
        self._before: tuple[float, int, int, tuple[float, int]] | None = None

    def begin(self) -> None:
        """Take samples from now on, until `close` or the end of the app."""
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Take no more samples."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()

    def view(self) -> TrendsView:
        """Return the samples."""
        columns = tuple(zip(*self._samples, strict=True)) or ((), (), (), ())
        return TrendsView(_EACH_S, *columns)

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        due = log_at = clock()
        while self._app.state not in _ENDS:
            try:
                self.sample(clock())
            except Exception:  # noqa: BLE001 - the app goes on, and the log has the error
                if clock() >= log_at:
                    log_at = clock() + _LOG_EACH_S
                    _log.exception("could not sample the figures of the app; retrying")
            due += _EACH_S
            # The loop was blocked: what the figures were meanwhile is not known.
            missed = min(_KEPT, int((clock() - due) / _EACH_S))
            if missed > 0:
                self._samples.extend([_UNKNOWN] * missed)
                due += missed * _EACH_S
            await asyncio.sleep(due - clock())

    def sample(self, now: float) -> None:
        """Take a sample at a time in s."""
        app = self._app
        metrics, instance, parts = app._metrics, app._instance, app._parts
        if instance is None or parts is None:
            self._before = None
            self._samples.append(_UNKNOWN)
            return
        ages = self._ages()
        found = now, metrics.processed_total, metrics.dropped, ages
        before, self._before = self._before, found
        lags = [
            max(0, place.end - place.position)
            for place in parts.places(instance.known_ends)
            if place.end is not None and place.position is not None and place.position >= 0
        ]
        # The ends are old while a broker does not answer.
        lag = sum(lags) if lags and not metrics.unreachable_ms() else None
        if before is None or now <= before[0]:
            self._samples.append((None, lag, None, None))
            return
        seconds = now - before[0]
        total, count = ages[0] - before[3][0], ages[1] - before[3][1]
        self._samples.append(
            (
                round(max(0, found[1] - before[1]) / seconds, 1),
                lag,
                round(max(0, found[2] - before[2]) / seconds, 1),
                # A task that has left takes its counts away.
                round(total / count) if count > 0 and total >= 0 else None,
            )
        )

    def _ages(self) -> tuple[float, int]:
        """Return the sum of the measured ages of records, in ms, and their number.

        The ages are those of records written to topics other than internal ones; if there are none,
        those of processed records.
        """
        app, internal = self._app, self._layout.internal
        written = [
            ages.distribution()
            for topic, ages in tuple(app._telemetry.ages.items())
            if topic not in internal
        ]
        if written:
            return sum(one.total for one in written), sum(one.count for one in written)
        read = [
            queue.ages
            for task in tuple(app._metrics.tasks.values())
            for queue in task.group.queues.values()
        ]
        return sum(one.total for one in read), sum(one.count for one in read)


class Begins:
    """ASGI middleware that lets the samples begin with the first request.

    An application that is mounted has no start of its own.
    """

    def __init__(self, app: ASGIApp, trends: Trends) -> None:
        self._app = app
        self._trends = trends

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._trends.begin()
        await self._app(scope, receive, send)
