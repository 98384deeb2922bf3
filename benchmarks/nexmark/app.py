"""One query as an app of ours: prints "running" as soon as it is, and runs until stdin ends. Nexmark.java has the same command line."""

from __future__ import annotations

import argparse
import asyncio
import sys

import uvloop

from benchmarks.nexmark.queries import QUERIES, topology
from ks_actors import App, StreamsConfig, tune_gc

NAMES = ("bootstrap", "bids", "auctions", "persons", "output", "app-id", "state-dir", "threads", "commit-ms", "cache", "guarantee")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--query", choices=list(QUERIES), required=True)
    for name in NAMES:
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(options))


async def _run(options: argparse.Namespace) -> None:
    settings = {
        "application.id": options.app_id,
        "bootstrap.servers": options.bootstrap,
        "state.dir": options.state_dir,
        "num.stream.threads": options.threads,
        "commit.interval.ms": options.commit_ms,
        "statestore.cache.max.bytes": options.cache,
        "processing.guarantee": options.guarantee,
    }
    tune_gc()
    query = topology(options.query, options.bids, options.auctions, options.persons, options.output)
    async with App(query, StreamsConfig.of(settings)):
        print("running", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    main()
