"""Put faults of the client in, and tell at which seed each is found: `python -m tests.simulation.faults_found [NAME[=SEED] …]`.

It hashes texts without chance, as a seed's run depends on the order of sets.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.simulation.apps import apps_seed
from tests.simulation.layer import run_kafka_seed
from tests.simulation.old_faults import CLIENT_FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST: Final = 200
_LAYERS: Final[dict[str, Callable[[int], object]]] = {"kafka": run_kafka_seed, "kafka-apps": apps_seed}


def find(name: str, seeds: range) -> tuple[int, str] | None:
    """Return the first seed that fails with a fault, and passes without it, with its error; None when none does."""
    fault = CLIENT_FAULTS[name]
    run = _LAYERS[fault.layer]
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch:
            fault.put_in(patch)
            error = _error_of(run, seed)
        if error is not None and _error_of(run, seed) is None:
            return seed, error
    return None


def _error_of(run: Callable[[int], object], seed: int) -> str | None:
    try:
        run(seed)
    except Exception as error:  # noqa: BLE001 - whatever it is, the fault has shown itself
        return f"{type(error).__name__}: {error}"
    return None


def main(names: Sequence[str]) -> int:
    """Look for all faults, or those that are named, at one seed or at all; return 1 when one is not found."""
    missed = 0
    for name, _, seed in (each.partition("=") for each in names or CLIENT_FAULTS):
        found = find(name, range(int(seed), int(seed) + 1) if seed else range(MOST))
        missed += found is None
        told = f"found at seed {found[0]}: {found[1][:150]}" if found else f"not found at {seed or f'any of {MOST} seeds'}"
        print(f"{name} ({CLIENT_FAULTS[name].what}): {told}", flush=True)  # noqa: T201 - a report for people
    return int(missed > 0)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation.faults_found", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606 - the same program again
    sys.exit(main(sys.argv[1:]))
