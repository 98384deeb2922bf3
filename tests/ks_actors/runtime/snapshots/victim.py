"""Processes that are killed: one that hands a snapshot over, one that takes snapshots of an app and begins with them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from ks_actors.log.embedded import EmbeddedLog
from tests.ks_actors.runtime.snapshots.bootstraps import app_of, put

KEYS = 20_000
SETTINGS: dict[str, Any] = {
    "processing_guarantee": "exactly_once_v2",
    "commit_interval_ms": 20,
    "transaction_timeout_ms": 2_000,
    "snapshot_interval_ms": 0,
    "snapshot_keep": 3,
}


def key_of(number: int) -> str:
    """Return the key of a record; all come equally often."""
    return f"k{number * 7919 % KEYS:06d}"


def say(*words: object) -> None:
    """Tell the parent."""
    print(*words, flush=True)  # noqa: T201 - the parent reads it


def settings_of(directory: Path) -> dict[str, Any]:
    """Return the app's settings."""
    return {**SETTINGS, "snapshot_uri": f"file://{directory / 'snapshots'}"}


async def run(directory: Path) -> None:
    """Process each record, and take one snapshot after the other."""
    async with EmbeddedLog(directory / "log") as log:
        app = app_of(log, directory / "state", **settings_of(directory))
        say("begun")
        async with app:
            say("started", int(app.metrics()["snapshot-restored-tasks-total"]))
            while True:
                await put(log, [key_of(number) for number in range(2_000)])
                manifest = await app.snapshot()
                say("snapshot", manifest.name)


async def seed(directory: Path) -> None:
    """Hand over the present state."""
    async with EmbeddedLog(directory / "log") as log:
        say("begun")
        began = perf_counter()
        await app_of(log, directory / "state", **SETTINGS).seed(f"file://{directory / 'history'}", if_seeded="skip")
        say("seeded", perf_counter() - began)


if __name__ == "__main__":
    asyncio.run({"run": run, "seed": seed}[sys.argv[1]](Path(sys.argv[2])))
