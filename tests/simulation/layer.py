"""The layer `kafka` of the liveness test: each seed is a run of a part of the client."""

from __future__ import annotations

from tests.simulation.reading import read_seed


def run_kafka_seed(seed: int) -> None:
    """Run a seed. Raises the error found."""
    read_seed(seed)
