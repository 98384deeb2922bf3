"""The state of an app over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, Response

from ks_actors.metrics.exporters import prometheus_text
from ks_actors.system import current_member
from ks_actors.web._answers import Refusal, answer
from ks_actors.web._group import look_at_group
from ks_actors.web._security import check_token
from ks_actors.web._store_query import query_store, store_views
from ks_actors.web._view import health_view, task_view

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from ks_actors.app import App
    from ks_actors.runtime import HealthBounds
    from ks_actors.web._graph import Layout

    Handler = Callable[[Request], Awaitable[Response]]


def live(app: App, bounds: HealthBounds) -> Handler:
    """Return the handler of liveness: 200, or 503 when only a restart helps."""

    async def handle(_: Request) -> Response:
        view = health_view(app.health(bounds))
        return answer(view, 200 if view.live else 503)

    return handle


def ready(app: App, bounds: HealthBounds) -> Handler:
    """Return the handler of readiness: 200, or 503 with the reasons."""

    async def handle(_: Request) -> Response:
        view = health_view(app.health(bounds))
        return answer(view, 200 if view.ready else 503)

    return handle


def metrics(app: App) -> Handler:
    """Return the handler of the metrics, in Prometheus' text format."""
    member = current_member()
    constant = {} if member is None else {"member": str(member.number)}

    async def handle(_: Request) -> Response:
        text = prometheus_text(app, constant=constant)
        return Response(text, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    return handle


def topology(app: App, layout: Layout) -> Handler:
    """Return the handler of the topology: as text, json, mermaid, or a graph of the log's names."""

    async def handle(request: Request) -> Response:
        form = request.query_params.get("format") or "json"
        described = app.topology.describe()
        if form == "text":
            return PlainTextResponse(str(described))
        if form == "mermaid":
            return PlainTextResponse(described.mermaid())
        if form == "graph":
            return answer(layout.graph())
        if form != "json":
            raise Refusal(400, f"parameter 'format' is {form!r}: give json, text, mermaid or graph")
        return Response(described.to_json(), media_type="application/json")

    return handle


def tasks(app: App) -> Handler:
    """Return the handler of the tasks of this instance."""

    async def handle(_: Request) -> Response:
        bound = app.config.stall_warning_ms
        return answer([task_view(task, bound) for task in app.tasks()])

    return handle


def members(app: App, layout: Layout) -> Handler:
    """Return the handler of the members of the group, with their tasks."""

    async def handle(_: Request) -> Response:
        group = await look_at_group(app, layout)
        if group.error is not None:
            raise Refusal(502, group.error)
        return answer(group.members)

    return handle


def lag(app: App, layout: Layout) -> Handler:
    """Return the handler of the group's lag, by partition."""

    async def handle(_: Request) -> Response:
        group = await look_at_group(app, layout)
        if group.error is not None:
            raise Refusal(502, group.error)
        return answer(
            {"lag": sum(one.lag for one in group.partitions), "partitions": group.partitions}
        )

    return handle


def stores(app: App) -> Handler:
    """Return the handler of the list of stores."""

    async def handle(_: Request) -> Response:
        return answer(store_views(app))

    return handle


def rows(app: App, token: str | None) -> Handler:
    """Return the handler of the query box; rows of other instances need the token of the page."""
    reason = "rows of other instances need the token of the page, which has to be served with one"

    async def handle(request: Request) -> Response:
        # The instances know each other by a secret, which must not serve all callers of the page.
        if "everywhere" in request.query_params:
            check_token(request, token, reason)
        return answer(await query_store(app, request))

    return handle
