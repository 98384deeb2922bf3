"""The layers that a seed can be run on."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.liveness.fetch_plan import draw_fetching
from tests.liveness.fetch_run import fetch_all
from tests.liveness.plan import draw
from tests.liveness.run import live

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def run_app_seed(seed: int) -> None:
    """Run whole apps on the embedded log. Raises what is wrong."""
    with _quiet():
        live(draw(seed))


def run_fetch_seed(seed: int) -> None:
    """Run the fetcher of Kafka against brokers in this process. Raises what is wrong."""
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


LAYERS: dict[str, Callable[[int], None]] = {"app": run_app_seed, "fetch": run_fetch_seed}
