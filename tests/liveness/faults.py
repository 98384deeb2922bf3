"""Put faults back in, one after the other, and tell at which seed each is found: `python -m tests.liveness.faults [name ...]`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import pytest

from tests.liveness.__main__ import attempt
from tests.liveness.old_faults import OLD_FAULTS

MOST = 200


def find(name: str, seeds: range) -> tuple[int, str] | None:
    """Return the first seed that fails with a fault, and passes without it, with its error; None when none does."""
    fault = OLD_FAULTS[name]
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch:
            fault.put_in(patch)
            error = attempt(fault.layer, seed).error
        if error is not None and attempt(fault.layer, seed).error is None:
            return seed, error
    return None


def main(arguments: Sequence[str]) -> int:
    """Look for all faults, or those that are named; return 1 when one is not found."""
    missed = 0
    for name in arguments or OLD_FAULTS:
        found = find(name, range(MOST))
        missed += found is None
        told = f"not found within {MOST} seeds" if found is None else f"found at seed {found[0]}: {found[1][:150]}"
        print(f"{name} ({OLD_FAULTS[name].what}): {told}", flush=True)  # noqa: T201 - a report for people
    return int(missed > 0)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, "-m", "tests.liveness.faults", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606 - the same program again
    sys.exit(main(sys.argv[1:]))
