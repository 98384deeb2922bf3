"""Count the records of a topic until stdin ends: our contender of benchmarks/latency.py.

Prints "running" when it runs.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import threading
from pathlib import Path

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import uvloop

from benchmarks._peer_apps import Tally, topology
from ks_actors import App, StreamsConfig, tune_gc


def main() -> None:
    """Run the app named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("bootstrap", "app", "input", "output", "app-id", "state-dir", "guarantee", "commit-ms", "cache", "mode"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of StreamsConfig; may be repeated")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    config = StreamsConfig.of(
        {
            "application.id": options.app_id,
            "bootstrap.servers": options.bootstrap,
            "state.dir": options.state_dir,
            "processing.guarantee": options.guarantee,
            "commit.interval.ms": options.commit_ms,
            "statestore.cache.max.bytes": options.cache,
            **dict(each.split("=", 1) for each in options.conf),
        }
    )
    tune_gc()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(App(topology(options.app, [options.input], options.output, Tally()), config)))


async def _run(app: App) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def read() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    await app.start()
    print("running", flush=True)
    # A thread that waits for input costs nothing.
    threading.Thread(target=read, daemon=True).start()
    await ended.wait()
    await app.close()


if __name__ == "__main__":
    main()
