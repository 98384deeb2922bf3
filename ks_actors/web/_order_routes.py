"""Orders over HTTP: pause, resume, take a snapshot; and the list of snapshots."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from ks_actors._errors import ConfigError, TopologyError
from ks_actors.config import without_login
from ks_actors.lifecycle import in_thread
from ks_actors.snapshots import find_snapshots
from ks_actors.web._answers import Refusal, answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from ks_actors.app import App
    from ks_actors.snapshots import SnapshotManifest

_ORDER_MS = 10_000
_LOOK_S = 10.0


class SnapshotView(msgspec.Struct, frozen=True):
    """A complete snapshot: its name, its time (ms), and the numbers of tasks and rows."""

    name: str
    created_ms: int
    tasks: int
    rows: int


class Snapshots(msgspec.Struct, frozen=True):
    """The snapshots at `snapshot_uri`, newest first, and why others cannot be used."""

    uri: str | None
    snapshots: tuple[SnapshotView, ...] = ()
    refused: tuple[str, ...] = ()


def pause(app: App) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that pauses the app, or one query."""

    async def handle(request: Request) -> Response:
        return await _ordered(app.pause, request, paused=True)

    return handle


def resume(app: App) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that resumes the app, or one query."""

    async def handle(request: Request) -> Response:
        return await _ordered(app.resume, request, paused=False)

    return handle


async def _ordered(order: Any, request: Request, *, paused: bool) -> Response:
    query = request.query_params.get("query")
    try:
        await order(_ORDER_MS, query=query)
    except TopologyError as error:
        raise Refusal(400, f"parameter 'query' is {query!r}: {error}") from None
    return answer({"paused": paused} if query is None else {"paused": paused, "query": query})


def take_snapshot(app: App) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that takes a snapshot, and answers when it is complete."""

    async def handle(_: Request) -> Response:
        try:
            return answer(_view(await app.snapshot()))
        except ConfigError as error:  # no place is set: nothing is wrong with the server
            raise Refusal(409, str(error)) from None

    return handle


def list_snapshots(app: App) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that lists the snapshots of the application."""
    looking: asyncio.Task[Snapshots] | None = None

    async def handle(_: Request) -> Response:
        nonlocal looking
        uri = app.config.snapshot_uri
        if uri is None:
            return answer(Snapshots(None))
        # One lookup for all callers: a place that does not answer must not use up the app's
        # threads.
        look = looking
        if look is None or look.done():
            look = looking = asyncio.create_task(_find(uri, app.config.application_id))
            # All callers may have disconnected; then no caller retrieves the error.
            look.add_done_callback(lambda done: done.cancelled() or done.exception())
        done, _pending = await asyncio.wait({look}, timeout=_LOOK_S)
        if not done:
            raise Refusal(504, f"the place of snapshots did not answer within {_LOOK_S:g} s")
        try:
            # Not `looking`: another caller may have begun the next lookup.
            return answer(look.result())
        except OSError as error:
            raise Refusal(502, f"the snapshots cannot be listed: {error}") from None

    return handle


async def _find(uri: str, application_id: str) -> Snapshots:
    found, refused = await in_thread(find_snapshots, uri, application_id)
    views = tuple(_view(reader.manifest) for reader in found)
    return Snapshots(without_login(uri), views, tuple(str(error) for error in refused))


def _view(manifest: SnapshotManifest) -> SnapshotView:
    rows = sum(store.rows for task in manifest.tasks.values() for store in task.stores.values())
    return SnapshotView(manifest.name, manifest.created_ms, len(manifest.tasks), rows)
