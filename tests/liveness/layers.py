"""What a seed is run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.liveness.fetch_plan import draw_fetching
from tests.liveness.fetch_run import fetch_all
from tests.liveness.plan import draw
from tests.liveness.run import live

if TYPE_CHECKING:
    from collections.abc import Callable


def run_app_seed(seed: int) -> None:
    """Run whole apps on the embedded log. Raises what is wrong."""
    live(draw(seed))


def run_fetch_seed(seed: int) -> None:
    """Run the fetcher of Kafka against brokers in this process. Raises what is wrong."""
    fetch_all(draw_fetching(seed))


LAYERS: dict[str, Callable[[int], None]] = {"app": run_app_seed, "fetch": run_fetch_seed}
