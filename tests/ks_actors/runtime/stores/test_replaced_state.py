"""Local state that others take the place of, or that nobody uses any more: it is told of, and the only copy of a store stays."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ks_actors import StateError
from ks_actors.runtime.snapshots import _from_snapshot
from ks_actors.state import Ingest, SharedResources
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import feed, in_app, in_virtual_time
from tests.ks_actors.runtime.stores.standbys import active, all_caught_up, other
from tests.ks_actors.runtime.stores.test_discarded_state import TOPICS, counted, counting, edit, given_up, store
from tests.ks_actors.snapshots.helpers import in_memory

LATE_MS = 4_000_000_000_000  # behind the times of any file


@in_virtual_time
async def test_a_snapshot_replaces_no_store_without_a_changelog(guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """The stores beside it, which have changelogs, are restored where a crash has left no offset of them."""
    uri = in_memory()

    topology = counting(store("a"), store("local", logging=False))
    async with AppHarness(topology, topics=TOPICS, processing_guarantee=guarantee, snapshot_uri=uri) as harness:
        await counted(harness)
        await harness.app.snapshot()
        await counted(harness)
        await harness.crash()
        edit(harness.state_dir / "0_0", b"\0offset:a", None)
        await harness.restart()
        assert await counted(harness) == "3,3"
        (line,) = given_up(caplog)
        assert line.startswith("the local state of store a of task 0_0, in ")


@in_virtual_time
async def test_a_snapshot_that_takes_the_place_of_a_database_is_told_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """One warning names the stores, the task, the directory and the snapshot."""
    monkeypatch.setattr(_from_snapshot, "WORTH", 0)
    uri = in_memory()
    async with AppHarness(counting(store("a")), topics=TOPICS, snapshot_uri=uri) as harness:
        await counted(harness)
        await counted(harness)
        await harness.app.snapshot()
        await harness.close()
        edit(harness.state_dir / "0_0", b"\0offset:a", (1).to_bytes(8, "big"))
        await harness.restart()
        assert await counted(harness) == "3"
        (line,) = given_up(caplog)
        directory = re.escape(str(harness.state_dir / "0_0"))
        assert re.fullmatch(
            f"the local state of store a of task 0_0, in {directory}, is deleted, and replaced: snapshot .* has newer state of it", line
        )


def test_rows_from_elsewhere_replace_no_only_copy(tmp_path: Path) -> None:
    """The error names task, store and directory, before anything is written."""
    (tmp_path / "rocksdb").mkdir()
    with pytest.raises(StateError, match=f"task 0_0 in {re.escape(str(tmp_path))} cannot be replaced: it has the only copy of store local"):
        Ingest("0_0", tmp_path, SharedResources(), [store("a"), store("local", logging=False)])
    assert [path.name for path in tmp_path.iterdir()] == ["rocksdb"]


@pytest.mark.parametrize("logging", [True, False])
@in_virtual_time
async def test_directories_that_nobody_uses_are_given_up_or_kept(caplog: pytest.LogCaptureFixture, *, logging: bool) -> None:
    """When the delay is over, with a warning for each; one with a store that has no changelog is kept, with one warning."""
    async with AppHarness(counting(store("a", logging=logging)), topics={"in": 2, "out": 1}, state_cleanup_delay_ms=10_000) as harness:
        await harness.produce("in", "k", "v", partition=0)
        await feed(harness, "in", "k", "v", partition=1)
        async with other(harness) as second:
            await all_caught_up(harness)
            (gone,) = active(second)
            for _ in range(3):
                await harness.kit.clock.advance(25)
            place, reason = str(harness.state_dir / gone), "it has not been used for 10 s (state_cleanup_delay_ms)"
            assert (harness.state_dir / gone).exists() is not logging
            if logging:
                told = f"the local state of store a of task {gone}, in {place}, is deleted; its changelog has all of it: {reason}"
                assert given_up(caplog) == [told]
            else:
                kept = f"{place}, the local state of task {gone}, is kept, although {reason}: it has the only copy of store a, which has no changelog"
                assert caplog.text.count(kept) == 1
                assert given_up(caplog) == []


@pytest.mark.parametrize("logging", [True, False])
@in_virtual_time
async def test_directories_that_are_too_old_at_the_start_are_given_up_or_kept(caplog: pytest.LogCaptureFixture, *, logging: bool) -> None:
    """As those are that nobody has used while the app ran."""
    topology = counting(store("a", logging=logging))
    async with AppHarness(topology, topics=TOPICS, wall_clock_ms=LATE_MS, state_cleanup_dir_max_age_ms=3_600_000) as harness:
        await counted(harness)
        await harness.close()
        await harness.restart()
        assert await counted(harness) == "2"
        assert len(given_up(caplog)) == logging
        assert ("longer than state_cleanup_dir_max_age_ms" in caplog.text) is True
        assert ("is kept, although" in caplog.text) is not logging


@in_app(counting(store("a")), topics=TOPICS, wall_clock_ms=LATE_MS, state_cleanup_dir_max_age_ms=3_600_000)
async def test_directories_of_tasks_that_the_topology_does_not_have_are_told_of(harness: AppHarness, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing tells which stores these had."""
    await harness.close()
    (harness.state_dir / "7_0").mkdir()
    os.utime(harness.state_dir / "7_0", (0, 0))
    await harness.restart()
    assert not (harness.state_dir / "7_0").exists()
    assert f"{harness.state_dir / '7_0'}, the local state of task 7_0, which the topology does not have, is deleted" in caplog.text
