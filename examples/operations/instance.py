"""One instance of the flights job with its page; the token comes on the standard input."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path

from examples.flights import topology
from examples.flights.job import CENTURY_MS, to_dead_letters
from ks_actors import App, HealthBounds, StreamsConfig, tune_gc
from ks_actors.web import serve_page

SECOND_MS = 1_000
MOST_LAG = 5_000


def configure(name: str, bootstrap: str, directory: Path) -> StreamsConfig:
    """Return the settings: as those of the demo, but on Kafka, and with a standby of each store."""
    return StreamsConfig(
        application_id="flights",
        client_id=f"flights-{name}",
        bootstrap_servers=bootstrap,
        state_dir=directory / "state",
        snapshot_uri=f"file://{directory / 'snapshots'}",
        processing_guarantee="exactly_once_v2",
        commit_interval_ms=SECOND_MS,
        num_standby_replicas=1,
        session_timeout_ms=10 * SECOND_MS,
        deserialization_exception_handler=to_dead_letters,
        errors_dead_letter_queue_topic_name=topology.DEAD_LETTERS,
        windowstore_changelog_additional_retention_ms=CENTURY_MS,
    )


async def run(name: str, bootstrap: str, directory: Path, port: int, token: str) -> None:
    """Run the app and its page until SIGINT or SIGTERM; the page is there before the app has started."""
    here = asyncio.current_task()
    assert here is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, here.cancel)
    app = App(topology.build(), configure(name, bootstrap, directory))
    async with serve_page(app, port=port, token=token, bounds=HealthBounds(max_lag=MOST_LAG)):
        await app.run()


def main() -> None:
    """Run until a signal."""
    name, bootstrap, directory, port = sys.argv[1:]
    token = sys.stdin.readline().strip()
    tune_gc()
    with suppress(asyncio.CancelledError):
        asyncio.run(run(name, bootstrap, Path(directory), int(port), token))


if __name__ == "__main__":
    main()
