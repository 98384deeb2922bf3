"""One page, and one set of probes, for all members. Needs the extra `web`."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ks_actors._errors import ConfigError
from ks_actors.cli.processes._child import Child, ChildState
from ks_actors.cli.processes._merged_metrics import merged
from ks_actors.cli.processes._unix_client import asked, fetched
from ks_actors.web import LOOPBACK, SecureHeaders, listen, serving, url_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AsyncExitStack

    from starlette.requests import Request

    from ks_actors.cli.processes._options import Options
    from ks_actors.cli.processes._supervisor import Supervisor

    Handler = Callable[[Request], Awaitable[Response]]

_HOST: Final = "127.0.0.1"
_READY_S: Final = 1.0
_LIVE_S: Final = 5.0
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PASSED: Final = frozenset({b"accept", b"authorization", b"content-type", b"last-event-id"})
# These concern one connection, and the server sets its own.
_OF_CONNECTION: Final = frozenset(
    {b"connection", b"transfer-encoding", b"keep-alive", b"date", b"server"}
)


async def serve_pages(
    stack: AsyncExitStack, supervisor: Supervisor, options: Options, tell: Callable[[str], None]
) -> None:
    """Serve the page and the probes until the stack ends; print their addresses.

    Raises ConfigError when an address is taken.
    """
    places = [] if options.page is None else [(_HOST, options.page, page_of(supervisor))]
    if options.probes is not None:
        places.append((*options.probes, probes_of(supervisor)))
    for host, port, made in places:
        try:
            listening = stack.enter_context(listen(host, port))
        except OSError as error:
            raise ConfigError(f"{host}:{port} cannot be served: {error}") from error
        await stack.enter_async_context(serving(made, listening, lambda: None))
        tell(f"the page or the probes of all members are at {url_of(host, listening)}")


def probes_of(supervisor: Supervisor) -> Starlette:
    """Return an ASGI application of `/health`, `/ready` and `/metrics` of all members."""
    return Starlette(routes=_probes(supervisor), middleware=[Middleware(SecureHeaders)])


def page_of(supervisor: Supervisor) -> Starlette:
    """Return an ASGI application with the probes, a list of members, and the page of each.

    Orders need the token of the members, which check it themselves.
    """
    proxy = partial(_proxy, supervisor)
    routes = [
        *_probes(supervisor),
        Route("/", partial(_list, supervisor)),
        Route("/api/processes", partial(_processes, supervisor)),
        Mount("/static", StaticFiles(packages=[("ks_actors.web", "static")])),
        Route("/members/{number:int}", _to_page),
        Route("/members/{number:int}/{path:path}", proxy, methods=["GET", "POST"]),
    ]
    middleware = [
        Middleware(SecureHeaders),
        Middleware(TrustedHostMiddleware, allowed_hosts=list(LOOPBACK)),
    ]
    return Starlette(routes=routes, middleware=middleware)


def _probes(supervisor: Supervisor) -> list[Route]:
    return [
        Route("/health", partial(_health, supervisor)),
        Route("/ready", partial(_ready, supervisor)),
        Route("/metrics", partial(_metrics, supervisor)),
    ]


async def _health(supervisor: Supervisor, _: Request) -> Response:
    """Answer 200, or 503 when a member hangs, which only a restart of all can end."""
    views = await _views(supervisor, "/health", _LIVE_S)
    live = all(view["live"] for view in views)
    return JSONResponse({"live": live, "members": views}, 200 if live else 503)


async def _ready(supervisor: Supervisor, _: Request) -> Response:
    """Answer 200 when all members are ready, else 503."""
    views = await _views(supervisor, "/ready", _READY_S)
    ready = not supervisor.closing and all(view["ready"] for view in views)
    return JSONResponse({"ready": ready, "members": views}, 200 if ready else 503)


async def _views(supervisor: Supervisor, target: str, within_s: float) -> list[dict[str, Any]]:
    """Return each member with its own answer.

    A member that starts, or waits for its next start, is live: its supervisor sees to it.
    """

    async def view(child: Child) -> dict[str, Any]:
        found = _facts(child)
        runs = child.state is ChildState.RUNNING
        answer = await fetched(child.socket, target, within_s) if runs else None
        told = {} if answer is None else json.loads(answer[1])
        ok = answer is not None and answer[0] == HTTPStatus.OK
        gone = child.state is ChildState.DONE
        return {**found, "live": ok or not runs, "ready": ok or gone, "health": told}

    return list(await asyncio.gather(*map(view, supervisor.children)))


def _facts(child: Child) -> dict[str, Any]:
    return {
        "member": child.number,
        "query": child.query,
        "state": child.state.value,
        "app_state": child.app_state,
        "tasks": child.active,
        "pid": child.pid,
        "restarts": child.restarts,
        "error": child.error,
    }


async def _processes(supervisor: Supervisor, _: Request) -> Response:
    return JSONResponse([_facts(child) for child in supervisor.children])


async def _metrics(supervisor: Supervisor, _: Request) -> Response:
    """Answer the metrics of all members that answer in time, and those of the supervisor."""
    children = supervisor.children
    found = await asyncio.gather(
        *(fetched(child.socket, "/metrics", _READY_S) for child in children)
    )
    answers = [each[1] for each in found if each is not None and each[0] == HTTPStatus.OK]
    own = (
        "# HELP ks_members The processes of this supervisor.\n# TYPE ks_members gauge\n"
        f"ks_members {len(children)}\n"
        "# HELP ks_members_answering The members whose metrics are in this answer.\n"
        f"# TYPE ks_members_answering gauge\nks_members_answering {len(answers)}\n"
        "# HELP ks_member_restarts_total The restarts of a member.\n"
        "# TYPE ks_member_restarts_total counter\n"
    )
    own += "".join(
        f'ks_member_restarts_total{{member="{child.number}"}} {child.restarts}\n'
        for child in children
    )
    text = merged([*answers, own.encode()])
    return Response(text, headers={"content-type": _CONTENT_TYPE})


async def _list(supervisor: Supervisor, _: Request) -> Response:
    """Answer the page of all members, which looks again every 5 s."""
    rows = "".join(
        f'<tr><td><a href="members/{child.number}/">{child.number}</a></td>'
        f"<td>{escape(child.query) or 'all'}</td>"
        f"<td>{child.state.value}</td><td>{escape(child.app_state)}</td><td>{child.active}</td>"
        f"<td>{child.pid or ''}</td><td>{child.restarts}</td><td>{escape(child.error)}</td></tr>"
        for child in supervisor.children
    )
    heads = "".join(
        f"<th>{name}</th>"
        for name in (
            "Member",
            "Query",
            "State",
            "App",
            "Tasks",
            "Process",
            "Restarts",
            "Last error",
        )
    )
    return HTMLResponse(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Members</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta http-equiv="refresh" content="5">'
        '<link rel="stylesheet" href="static/page.css"><header><h1>Members</h1></header>'
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        "</div><p class='faint'>The page of each member has all instances of the group.</p></html>",
        headers={"cache-control": "no-store"},
    )


async def _to_page(request: Request) -> Response:
    # Relative, so that it holds behind a proxy with a prefix.
    return RedirectResponse(f"{request.path_params['number']}/")


async def _proxy(supervisor: Supervisor, request: Request) -> Response:
    """Pass a request on to a member, and its answer back as it comes."""
    number = request.path_params["number"]
    child = next((child for child in supervisor.children if child.number == number), None)
    if child is None:
        return PlainTextResponse(f"there is no member {number}", HTTPStatus.NOT_FOUND)
    raw = request.scope["raw_path"].split(b"/", 3)[3].decode("ascii")
    query = request.scope["query_string"].decode("ascii")
    member = asked(
        child.socket,
        f"/{raw}?{query}" if query else f"/{raw}",
        method=request.method,
        headers=[header for header in request.headers.raw if header[0] in _PASSED],
        content=await request.body(),
    )
    try:
        answer = await member.__aenter__()
    except OSError:
        return JSONResponse(
            {"error": f"member {number} does not answer: it is {child.state.value}"},
            HTTPStatus.SERVICE_UNAVAILABLE,
        )

    async def body() -> AsyncIterator[bytes]:
        try:
            async for part in answer.body:
                yield part
        finally:
            await member.__aexit__(None, None, None)

    response = StreamingResponse(body(), answer.status)
    response.raw_headers = [head for head in answer.headers if head[0] not in _OF_CONNECTION]
    return response
