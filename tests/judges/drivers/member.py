"""The command line of a member of an app that a driver judges."""

from __future__ import annotations

import argparse
import logging
from typing import Any

from ks_actors import StreamsConfig


def config(description: str | None, application: str, **settings: Any) -> StreamsConfig:
    """Begin to log, and return the settings of the command line, with those of the app."""
    parser = argparse.ArgumentParser(description=description)
    for name in ("bootstrap", "guarantee", "state-dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--standbys", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--session-timeout", type=float, required=True, help="seconds")
    parser.add_argument("--hours-back", type=int, default=0, help="how much older records are taken for than they are")
    options = parser.parse_args()
    if options.hours_back:
        # What the app reads again from a topic of its own is older once more: no windows are behind those.
        settings["default_timestamp_extractor"] = lambda record, _: record.timestamp - options.hours_back * 3_600_000
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    return StreamsConfig(
        application_id=application,
        bootstrap_servers=options.bootstrap,
        processing_guarantee=options.guarantee,
        state_dir=options.state_dir,
        num_stream_threads=options.workers,
        num_standby_replicas=options.standbys,
        session_timeout_ms=int(options.session_timeout * 1000),
        **settings,
    )
