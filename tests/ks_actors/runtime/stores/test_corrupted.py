"""The faults that cost a task its state, and those that do not (KIP-892): each case wipes and restores its own store, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ks_actors import LogError, LogTimeout
from ks_actors.log.embedded._faults import Operation
from ks_actors.state import SharedResources, write_checkpoint
from ks_actors.state.disk._rocksdb import RocksEngine
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import EOS, by_key, counting, feed_all, in_virtual_time, replace
from tests.ks_actors.runtime.stores.test_restoring import Heard, records
from tests.layouts import OWN

TOPICS = {"in": 2, "out": 1}
KEYS = tuple(f"k{number}" for number in range(200))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("operation", ["send", "commit", "commit_offsets"])
@in_virtual_time
async def test_a_timeout_wipes_nothing(operation: Operation, after: bool) -> None:
    """Under exactly once a write or a commit without an end costs the uncommitted work, and at most a read of the changelog's tail."""
    heard = Heard()
    async with AppHarness(counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS, restore_listener=heard, uncaught_handler=replace) as harness:
        await feed_all(harness, "in", records(*KEYS))
        await harness.close()  # all of it is on disk
        await harness.restart()
        heard.told.clear()
        error = LogTimeout("no answer within the time") if operation != "send" else LogError("no answer within the time")
        harness.fail(operation, error, after=after and operation != "send")
        await harness.produce_all("in", records(*KEYS[:20]))
        await asyncio.sleep(1)
        await harness.caught_up()
        assert all(start is not None and start > 0 for what, *_, start in heard.told if what == "start")
        assert sum(count or 0 for what, *_, count in heard.told if what == "batch") <= 20
        assert by_key(await harness.read("out")) == {key: [1, 2] if key in KEYS[:20] else [1] for key in KEYS}


def without_offset(database: Path) -> None:
    """Take away a store's knowledge of its changelog, in the database and beside it."""
    engine = RocksEngine("0", database, SharedResources())
    engine.write([(b"\0offset:counts", None)])
    engine.flush(wait=True)
    engine.close()
    write_checkpoint(database.parent, {})


def beyond(database: Path) -> None:
    """Say that the state is further than its changelog."""
    engine = RocksEngine("0", database, SharedResources())
    engine.write([(b"\0offset:counts", (1 << 40).to_bytes(8, "big"))])
    engine.flush(wait=True)
    engine.close()


def damaged(database: Path) -> None:
    """Leave a file of it that is none."""
    (database / "CURRENT").write_text("nothing")


@OWN
@pytest.mark.parametrize("harm", [without_offset, beyond, damaged])
@in_virtual_time
async def test_untrusted_stores_are_restored_alone(harm: Callable[[Path], None]) -> None:
    """No offset, one that is out of range, or damage: that task is restored from the beginning of its changelog, the other one from where it is."""
    heard = Heard()
    async with AppHarness(counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS, restore_listener=heard) as harness:
        await feed_all(harness, "in", records(*KEYS))
        await harness.close()
        harm(harness.state_dir / "0_0" / "rocksdb")
        heard.told.clear()
        await harness.restart()
        await feed_all(harness, "in", records(*KEYS[:20]))
        restored = {partition: total for what, partition, _, total in heard.told if what == "end"}
        assert (restored["app-counts-changelog-0"] or 0) > 50
        assert restored["app-counts-changelog-1"] == 0
        assert by_key(await harness.read("out")) == {key: [1, 2] if key in KEYS[:20] else [1] for key in KEYS}
