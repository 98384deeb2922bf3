"""History has no wall clock: its records are there, however long the silences between them were."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.ks_actors.batch.histories import filled_back, streamed
from tests.ks_actors.task.times.idle_stories import KINDS, topology

SETTINGS = {"application_id": "app", "commit_interval_ms": 1_000_000}
TOPICS = {"in": 2, "out": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_backfill_closes_windows_by_their_records(kind: str, tmp_path: Path) -> None:
    """It is not refused, and gives what a stream gives that reads all of them at once: the last windows are left to the app."""
    random = Random(7)
    records = [("in", random.choice((b"a", b"b", b"c")), str(number).encode(), 10_000 + 700 * number) for number in range(60)]
    written, _ = streamed(topology(kind, "in_memory", 3_600_000), SETTINGS, TOPICS, records)
    for idle in (1, None):
        made = topology(kind, "in_memory", idle)
        got, _ = filled_back(made, SETTINGS, TOPICS, records, tmp_path / str(idle), allow=("order_after_rekey", "incomplete_snapshot"))
        assert {where: sorted(rows) for where, rows in got.items()} == {where: sorted(rows) for where, rows in written.items()}
