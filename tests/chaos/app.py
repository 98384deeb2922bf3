"""The application under chaos: a running count per key, every update to the output. One process is one member of its group.

Runs until SIGTERM, which closes it: exit code 0. An error that the app does not survive: exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from typing import TYPE_CHECKING

from ks_actors import App, Consumed, Materialized, Produced, StreamsBuilder, StreamsConfig, tune_gc
from ks_actors.log.kafka import KafkaLog
from ks_actors.serdes import BYTES, LONG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors import InstanceState
    from ks_actors.topology import Topology

_log = logging.getLogger("tests.chaos.app")


def count_topology(source: str, sink: str) -> Topology:
    """Count per key."""
    builder = StreamsBuilder()
    (
        builder.stream(source, Consumed(BYTES, BYTES))
        .group_by_key()
        .count(Materialized("counts", BYTES, LONG))
        .to_stream()
        .to(sink, Produced(BYTES, LONG))
    )  # fmt: skip
    return builder.build()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of a member."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.app", description=__doc__)
    for name in ("bootstrap", "input", "output", "app-id", "state-dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--guarantee", required=True, choices=["exactly_once_v2", "at_least_once"])
    parser.add_argument("--session-timeout", type=float, default=6, help="in seconds")
    parser.add_argument("--commit-ms", type=int, default=100)
    return parser.parse_args(arguments)


def _note_state(new: InstanceState, old: InstanceState) -> None:
    _log.info("%s, was %s", new.name, old.name)


async def run(options: argparse.Namespace) -> None:
    """Be a member until cancelled."""
    config = StreamsConfig(
        application_id=options.app_id,
        state_dir=options.state_dir,
        processing_guarantee=options.guarantee,
        commit_interval_ms=options.commit_ms,
        session_timeout_ms=int(options.session_timeout * 1000),
    )
    async with KafkaLog(options.bootstrap, client_id=config.client_id) as log:
        await App(count_topology(options.input, options.output), config, log=log, on_state=_note_state).run()


async def _run_until_signal(options: argparse.Namespace) -> None:
    task = asyncio.create_task(run(options))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    # What it is cancelled by is the end that is asked for; what it fails by is not.
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
        raise outcome


def main(arguments: Sequence[str]) -> int:
    """Run one member; return its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    tune_gc()
    try:
        asyncio.run(_run_until_signal(parse(arguments)))
    except Exception:  # noqa: BLE001 - whatever it is, the exit code tells of it
        _log.exception("the member ends by an error")
        return 1
    _log.info("bye")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
