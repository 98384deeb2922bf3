"""The layer `kafka` of the liveness test: each seed is a run of a part of the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.members import join_seed
from tests.simulation.naming import name_seed
from tests.simulation.reading import read_seed
from tests.simulation.writing import write_seed

if TYPE_CHECKING:
    from collections.abc import Callable

# Reading has the most to go wrong, and costs least.
PARTS: Final[tuple[Callable[[int], Any], ...]] = (read_seed, write_seed, read_seed, join_seed, read_seed, write_seed, name_seed)


def run_kafka_seed(seed: int) -> Any:
    """Run a seed; return the run. Raises the error found."""
    return PARTS[seed % len(PARTS)](seed)
