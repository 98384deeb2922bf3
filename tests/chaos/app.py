"""The application under chaos: a running count per key, every update to the output. One process is one member of its group.

Runs until SIGTERM, which closes it: exit code 0. An error that the app does not survive: exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NoReturn

from ks_actors import App, Consumed, InstanceState, Materialized, Produced, StreamsBuilder, StreamsConfig, tune_gc
from ks_actors.log.kafka import KafkaLog
from ks_actors.serdes import BYTES, LONG
from ks_actors.topology import Topology

_TOPICS = "CHAOS_TOPICS"
_log = logging.getLogger("tests.chaos.app")


def count_topology(source: str, sink: str, look: Callable[[bytes | None, bytes | None], object] = lambda *_: None) -> Topology:
    """Count per key; `look` is called with each record before."""
    builder = StreamsBuilder()
    (
        builder.stream(source, Consumed(BYTES, BYTES))
        .peek(look)
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
    parser.add_argument("--transaction-ms", type=int, default=10_000)
    parser.add_argument("--instance-id", help="be a static member of the group, by this id")
    parser.add_argument("--standbys", type=int, default=0, help="of each task")
    parser.add_argument("--processes", type=int, default=0, help="be a supervisor with so many members")
    parser.add_argument("--page", type=int, help="the port of the supervisor's page")
    return parser.parse_args(arguments)


def note_state(new: InstanceState, old: InstanceState) -> None:
    """Log each change of state."""
    _log.info("%s, was %s", new.name, old.name)


def settings(options: argparse.Namespace) -> dict[str, object]:
    """Return the settings of an app."""
    return {
        "application_id": options.app_id,
        "state_dir": options.state_dir,
        "processing_guarantee": options.guarantee,
        "commit_interval_ms": options.commit_ms,
        "session_timeout_ms": int(options.session_timeout * 1000),
        "transaction_timeout_ms": options.transaction_ms,
        "group_instance_id": options.instance_id,
        "num_standby_replicas": options.standbys,
    }


def supervised(config: StreamsConfig) -> App:
    """Return the app of a supervisor's member."""
    source, sink = json.loads(os.environ[_TOPICS])
    return App(count_topology(source, sink), config, on_state=note_state)


def supervise(options: argparse.Namespace) -> NoReturn:
    """Become `ks-actors run --processes`."""
    os.environ[_TOPICS] = json.dumps([options.input, options.output])
    words = ["run", "tests.chaos.app:supervised", f"--processes={options.processes}", f"--page={options.page}", "--log-level=info", "--quiet"]
    given = {"bootstrap_servers": options.bootstrap, **settings(options)}
    words += [f"--conf={name}={value}" for name, value in given.items() if value is not None]
    os.execv(sys.executable, [sys.executable, "-m", "ks_actors", *words])  # noqa: S606 - no shell


async def run(options: argparse.Namespace, on_state: Callable[[InstanceState, InstanceState], None] = note_state) -> None:
    """Be a member until cancelled."""
    config = StreamsConfig.of(settings(options))
    async with KafkaLog(options.bootstrap, client_id=config.client_id) as log:
        await App(count_topology(options.input, options.output), config, log=log, on_state=on_state).run()


async def run_until_signal(work: Coroutine[Any, Any, None]) -> int:
    """Do the work until SIGINT or SIGTERM, which cancel it; return the exit code."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    # What it is cancelled by is the end that is asked for; what it fails by is not.
    if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
        _log.error("the member ends by an error", exc_info=outcome)
        return 1
    _log.info("bye")
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run one member; return its exit code."""
    options = parse(arguments)
    if options.processes:
        supervise(options)
    log_to_stderr()
    tune_gc()
    return asyncio.run(run_until_signal(run(options)))


def log_to_stderr() -> None:
    """Have all that is worth a line written."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
