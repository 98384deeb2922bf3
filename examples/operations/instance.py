"""One instance of the flights job with its page; the token comes in the environment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from examples.flights import topology
from examples.flights.job import APPLICATION, complete
from ks_actors import App, HealthBounds, StreamsConfig, tune_gc
from ks_actors.web import serve_page

SECOND_MS = 1_000
MOST_LAG = 5_000
TOKEN = "KS_OPS_TOKEN"  # noqa: S105 - the name of a variable


def settings(name: str, bootstrap: str, directory: Path) -> dict[str, object]:
    """Return the settings: as those of the demo, but on Kafka, and with a standby of each store."""
    return {
        "application_id": APPLICATION,
        "client_id": f"{APPLICATION}-{name}",
        "bootstrap_servers": bootstrap,
        "state_dir": directory / "state",
        "snapshot_uri": f"file://{directory / 'snapshots'}",
        "processing_guarantee": "exactly_once_v2",
        "commit_interval_ms": SECOND_MS,
        "num_standby_replicas": 1,
        "session_timeout_ms": 10 * SECOND_MS,
    }


def app(config: StreamsConfig) -> App:
    """Return the app of an instance, or of one member of an instance."""
    return App(topology.build(), complete(config))


async def run(name: str, bootstrap: str, directory: Path, port: int, token: str) -> None:
    """Run the app and its page until SIGINT or SIGTERM; the page is there before the app has started."""
    here = asyncio.current_task()
    assert here is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, here.cancel)
    made = app(StreamsConfig.of(settings(name, bootstrap, directory)))
    async with serve_page(made, port=port, token=token, bounds=HealthBounds(max_lag=MOST_LAG)):
        await made.run()


def main() -> None:
    """Run until a signal."""
    name, bootstrap, directory, port = sys.argv[1:]
    token = os.environ[TOKEN]
    tune_gc()
    with suppress(asyncio.CancelledError):
        asyncio.run(run(name, bootstrap, Path(directory), int(port), token))


if __name__ == "__main__":
    main()
