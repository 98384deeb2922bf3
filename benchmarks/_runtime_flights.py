"""The flights job with its defaults: exactly once, log and stores on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ks_actors import tune_gc


async def flights(limit: int) -> dict[str, float]:
    """Run the job over the first `limit` flights."""
    from examples.flights.job import Options, run  # noqa: PLC0415 - it needs the data, which other cases do not

    tune_gc()  # as the job's program does
    with tempfile.TemporaryDirectory(prefix="ks-bench-") as directory:
        outcome = await run(Options(Path(directory), "exactly_once_v2", limit), lambda *_: None)
    return {"per_s": outcome.flights / outcome.seconds}
