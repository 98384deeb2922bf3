"""Orders over HTTP: pause, resume, and take a snapshot; and the snapshots that there are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from ks_actors.snapshots import find_snapshots
from ks_actors.web._answers import answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from ks_actors.app import App
    from ks_actors.snapshots import SnapshotManifest

_ORDER_MS = 10_000


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
    """Return the handler that pauses the app."""

    async def handle(_: Request) -> Response:
        await app.pause(_ORDER_MS)
        return answer({"paused": True})

    return handle


def resume(app: App) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that resumes the app."""

    async def handle(_: Request) -> Response:
        await app.resume(_ORDER_MS)
        return answer({"paused": False})

    return handle


def take_snapshot(app: App) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that takes a snapshot, and answers when it is complete."""

    async def handle(_: Request) -> Response:
        return answer(_view(await app.snapshot()))

    return handle


def list_snapshots(app: App) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that lists the snapshots of the application."""

    async def handle(_: Request) -> Response:
        uri = app.config.snapshot_uri
        if uri is None:
            return answer(Snapshots(None))
        found, refused = await asyncio.to_thread(find_snapshots, uri, app.config.application_id)
        views = tuple(_view(reader.manifest) for reader in found)
        return answer(Snapshots(uri, views, tuple(str(error) for error in refused)))

    return handle


def _view(manifest: SnapshotManifest) -> SnapshotView:
    rows = sum(store.rows for task in manifest.tasks.values() for store in task.stores.values())
    return SnapshotView(manifest.name, manifest.created_ms, len(manifest.tasks), rows)
