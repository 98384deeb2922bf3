"""The ASGI application of an app's HTTP API and page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import FileResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ks_actors.runtime import HealthBounds
from ks_actors.web import _history_routes as history
from ks_actors.web import _letter_routes as letters
from ks_actors.web import _order_routes as orders
from ks_actors.web import _status_routes as status
from ks_actors.web._answers import answer, told
from ks_actors.web._events import Events
from ks_actors.web._graph import Layout
from ks_actors.web._sampler import Sampler
from ks_actors.web._security import SecureHeaders, checked, writes
from ks_actors.web._trends import Begins, Trends

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from ks_actors.app import App

    Handler = Callable[[Request], Awaitable[Response]]

_STATIC: Final = Path(__file__).parent / "static"


def create_app(
    app: App,
    *,
    token: str | None = None,
    bounds: HealthBounds | None = None,
    dead_letter_topics: Collection[str] | None = None,
    allowed_hosts: Sequence[str] | None = None,
) -> Starlette:
    """Return the HTTP API and page of an app, to be served or mounted in its event loop.

    Mount it into another application under any prefix: `Mount("/ops", create_app(app))`. Orders
    that change something need the `token`: `Authorization: Bearer …`. Without a token there are no
    such orders. Everything else is open to all callers, stores and dead letters included: put your
    own authentication in front, unless you serve it on loopback.

    `bounds` are the limits of `/health` and `/ready`. `dead_letter_topics` default to the app's
    setting `errors_dead_letter_queue_topic_name`. `allowed_hosts` are the host names that requests
    may be for (None: any). `state.events.close()` ends the streams of all readers.

    Spaces and line ends around the token do not count. Raises ValueError for a token that is empty
    or has characters outside ASCII.
    """
    token = None if token is None else checked(token)
    limits = HealthBounds() if bounds is None else bounds
    layout = Layout(app)
    trends = Trends(app, layout)
    events = Events(Sampler(app, layout, limits, trends), trends)
    letters_in = frozenset(
        _letter_topics(app) if dead_letter_topics is None else dead_letter_topics
    )
    routes = [
        *_reads(app, layout, limits, letters_in, events, token),
        # Without a token the orders are left out, not refused, so that there is nothing to guess.
        *([] if token is None else _writes(app, token, letters_in)),
        Route("/api", _about(app, writable=token is not None)),
        Route("/", _page),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]
    hosts = None if allowed_hosts is None else list(allowed_hosts)
    middleware = [
        Middleware(Begins, trends=trends),
        Middleware(SecureHeaders),
        *([] if hosts is None else [Middleware(TrustedHostMiddleware, allowed_hosts=hosts)]),
    ]
    made = Starlette(routes=routes, middleware=middleware)
    made.state.events = events
    return made


def create_probes(app: App, *, bounds: HealthBounds | None = None) -> Starlette:
    """Return an ASGI application of `/health`, `/ready` and `/metrics` alone.

    These routes change nothing and show no records. Serve or mount it in the app's event loop.
    """
    probes = _probes(app, HealthBounds() if bounds is None else bounds)
    return Starlette(routes=list(_routes(probes)), middleware=[Middleware(SecureHeaders)])


def _letter_topics(app: App) -> tuple[str, ...]:
    topic = app.config.errors_dead_letter_queue_topic_name
    return () if topic is None else (topic,)


def _reads(
    app: App,
    layout: Layout,
    bounds: HealthBounds,
    topics: Collection[str],
    events: Events,
    token: str | None,
) -> Iterator[BaseRoute]:
    handlers: dict[str, Handler] = {
        **_probes(app, bounds),
        "/api/topology": status.topology(app, layout),
        "/api/tasks": status.tasks(app),
        "/api/members": status.members(app, layout),
        "/api/lag": status.lag(app, layout),
        "/api/stores": status.stores(app),
        "/api/stores/{name:path}": status.rows(app, token),
        "/api/dead-letters": letters.list_letters(app, topics),
        "/api/history/exceptions": history.exceptions(app, topics),
        "/api/history/commits": history.commits(app),
        "/api/history/rebalances": history.rebalances(app),
        "/api/history/stream-time": history.stream_time(app),
        "/api/history/samples": history.samples(app, token),
        "/api/snapshots": orders.list_snapshots(app),
        "/api/events": events.handler(),
    }
    return _routes(handlers)


def _probes(app: App, bounds: HealthBounds) -> dict[str, Handler]:
    return {
        "/health": status.live(app, bounds),
        "/ready": status.ready(app, bounds),
        "/metrics": status.metrics(app),
    }


def _routes(handlers: Mapping[str, Handler]) -> Iterator[BaseRoute]:
    for path, handler in handlers.items():
        yield Route(path, told(handler), methods=["GET"])


def _writes(app: App, token: str, topics: Collection[str]) -> Iterator[BaseRoute]:
    handlers: dict[str, Handler] = {
        "/api/dead-letters/redrive": letters.redrive_letter(app, topics),
        "/api/dead-letters/redrive-group": letters.redrive_group(app, topics),
        "/api/history/samples": history.take_samples(app),
        "/api/pause": orders.pause(app),
        "/api/resume": orders.resume(app),
        "/api/snapshots": orders.take_snapshot(app),
    }
    for path, handler in handlers.items():
        yield Route(path, writes(token, handler), methods=["POST"])


def _about(app: App, *, writable: bool) -> Handler:
    async def handle(_: Request) -> Response:
        return answer(
            {
                "application_id": app.config.application_id,
                "client_id": app.config.client_id,
                "writable": writable,
            }
        )

    return handle


async def _page(_: Request) -> Response:
    # The page must fit the API of this version, also after an upgrade under the same address.
    return FileResponse(_STATIC / "index.html", headers={"cache-control": "no-cache"})
