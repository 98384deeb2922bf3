"""The history of an app over HTTP: exceptions, commits, rebalances, stream time, samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from ks_actors._errors import NotRunning
from ks_actors.history import Done, SampledRecord
from ks_actors.runtime import InstanceState
from ks_actors.runtime.watch import stream_times
from ks_actors.web._answers import answer, number
from ks_actors.web._letter_routes import body
from ks_actors.web._security import check_token

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from starlette.requests import Request
    from starlette.responses import Response

    from ks_actors.app import App

    Handler = Callable[[Request], Awaitable[Response]]

_MOST: Final = 200
_MOST_S: Final = 600
_REASON: Final = "samples show records, so they need the token of the page"
_RUNS: Final = frozenset({InstanceState.RUNNING, InstanceState.REBALANCING})


class SampleOrder(msgspec.Struct, frozen=True):
    """The time (s) for which to take samples; 0 ends them."""

    seconds: Annotated[int, msgspec.Meta(ge=0, le=_MOST_S)] = 60


class EdgeView(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    """The last records on an edge, between ids of the graph."""

    source: str
    target: str
    records: tuple[SampledRecord, ...]


class SamplesView(msgspec.Struct, frozen=True):
    """The samples, and the time (ms) until they end; 0 when they have ended."""

    left_ms: int
    edges: tuple[EdgeView, ...]


def exceptions(app: App, topics: Collection[str]) -> Handler:
    """Return the handler of the last exceptions, the newest first.

    Texts about dead letters are left out unless the page lists the letters.
    """
    listed = app.config.errors_dead_letter_queue_topic_name in topics

    async def handle(request: Request) -> Response:
        limit = number(request, "limit", _MOST, most=_MOST)
        runs = app._metrics.history.exceptions.latest()[:limit]
        # These are copies.
        for run in runs:
            if run.done is Done.DEAD_LETTERED and not listed:
                run.text = None
        return answer(runs)

    return handle


def commits(app: App) -> Handler:
    """Return the handler of the last commits, the newest first, and the slowest of an hour."""

    async def handle(request: Request) -> Response:
        limit = number(request, "limit", _MOST, most=_MOST)
        history = app._metrics.history.commits
        return answer({"commits": history.latest()[:limit], "slowest": history.slowest()})

    return handle


def rebalances(app: App) -> Handler:
    """Return the handler of the last rebalances, the newest first."""

    async def handle(request: Request) -> Response:
        limit = number(request, "limit", _MOST, most=_MOST)
        return answer(app._metrics.history.rebalances.latest()[:limit])

    return handle


def stream_time(app: App) -> Handler:
    """Return the handler of the stream time of each active task."""

    async def handle(_: Request) -> Response:
        return answer(stream_times(app._metrics.tasks.values()))

    return handle


def samples(app: App, token: str | None) -> Handler:
    """Return the handler of the sampled records, for callers with the token alone."""

    async def handle(request: Request) -> Response:
        check_token(request, token, _REASON)
        return answer(_view(app))

    return handle


def take_samples(app: App) -> Handler:
    """Return the handler that begins to sample records for a while, or ends it."""

    async def handle(request: Request) -> Response:
        order = await body(request, SampleOrder)
        if order.seconds:
            if app.state not in _RUNS:
                raise NotRunning(f"the app is {app.state.name}: it has no records to sample")
            app._metrics.history.samples.begin(order.seconds)
        else:
            app._metrics.history.samples.end()
        return answer(_view(app))

    return handle


def _view(app: App) -> SamplesView:
    found = app._metrics.history.samples
    edges = (EdgeView(one.source, one.target, tuple(one.records)) for one in found.edges())
    return SamplesView(found.left_ms, tuple(edges))
