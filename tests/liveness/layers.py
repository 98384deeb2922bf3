"""The layers that a seed can be run on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from tests.liveness.fetch_plan import draw_fetching
from tests.liveness.fetch_run import fetch_all
from tests.liveness.plan import draw
from tests.liveness.run import live
from tests.liveness.wide_plan import draw_wide
from tests.simulation.apps import apps_seed
from tests.simulation.layer import run_kafka_seed


def run_app_seed(seed: int) -> None:
    """Run whole apps on the embedded log. Raises the error found."""
    plan = draw(seed)
    # Members that are killed, or that give up waiting for the log, end in the middle of their work.
    rough = any(fault.kind in {"crash", "outage"} for fault in plan.faults)
    with _quiet(), nullcontext() if rough else _delivered():
        live(plan)


@contextmanager
def _delivered() -> Iterator[None]:
    """Raise when an app has left messages of its actors undelivered: a clean end logs nothing that looks like a failure."""
    left: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: left.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("actors")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
    assert not left, f"the end of an app was not quiet: {left}"


def run_wide_seed(seed: int) -> None:
    """Run apps with further operations and faults on the embedded log. Raises the error found."""
    with _quiet():
        live(draw_wide(seed), "wide")


def run_fetch_seed(seed: int) -> None:
    """Run the fetcher of Kafka against brokers in this process. Raises the error found."""
    with _quiet():
        fetch_all(draw_fetching(seed))


@contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing of the outages that the plan has ordered; other tests read the log."""
    log = logging.getLogger("ks_actors")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


LAYERS: dict[str, Callable[[int], Any]] = {
    "app": run_app_seed,
    "wide": run_wide_seed,
    "fetch": run_fetch_seed,
    "kafka": run_kafka_seed,
    "kafka-apps": apps_seed,
}
