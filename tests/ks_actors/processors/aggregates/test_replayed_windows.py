"""Windows when records are done again."""

from __future__ import annotations

import pytest

from ks_actors import LogError, serdes
from ks_actors.dsl import Materialized, Produced, StreamsBuilder, TimeWindows
from ks_actors.log import IsolationLevel
from ks_actors.runtime import UncaughtResponse
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import ALOS, EOS, STRINGS, by_key, in_virtual_time


@pytest.mark.parametrize("wipe", [False, True])
@pytest.mark.parametrize(
    ("guarantee", "retention_ms", "results", "dropped"),
    [
        (ALOS, 100, [1, 2, 1, 1], 2),  # the window is gone: each record is the first of an empty one, that is not kept
        (ALOS, 1_000_000, [1, 2, 3, 4], 0),  # it is there, with what had reached the changelog
        (EOS, 100, [1, 2], 0),
    ],
)
@in_virtual_time
async def test_windows_that_are_too_old_when_they_are_done_again(
    guarantee: str, retention_ms: int, results: list[int], dropped: int, wipe: bool
) -> None:
    """At least once, a repeated record for a window behind the retention is dropped from the store, and counted, as in Kafka Streams."""
    builder = StreamsBuilder()
    windows = builder.stream("in", STRINGS).group_by_key().windowed_by(TimeWindows.of_size_and_grace(100, 0))
    counts = windows.count(Materialized("counts", serdes.STRING, serdes.LONG, retention_ms=retention_ms))
    counts.to_stream(lambda key, _: f"{key.key}@{key.window.start}").to("out", Produced(serdes.STRING, serdes.LONG))
    async with AppHarness(
        builder.build(),
        topics={"in": 1, "out": 1},
        processing_guarantee=guarantee,
        commit_interval_ms=9_000,
        uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER,
    ) as harness:
        for time in (10, 20, 100_000):
            await harness.produce("in", "a", "v", time)
        # The changelog is written, the offsets are not.
        harness.fail("commit_offsets" if guarantee == ALOS else "commit", LogError("away"), 100)
        await harness.kit.clock.advance(0.5)
        # Without fetches nothing is processed again before the crash.
        fetches = harness.log.hold("fetch")
        await harness.kit.clock.advance(0.5)
        with pytest.raises(LogError, match="away"):
            await harness.app.commit()
        await harness.crash()
        fetches.set()
        harness.log._faults._before.clear()
        if wipe:
            harness.wipe_state()
        await harness.restart()
        await harness.caught_up()
        isolation = IsolationLevel.READ_UNCOMMITTED if guarantee == ALOS else IsolationLevel.READ_COMMITTED
        assert by_key(await harness.read("out", isolation=isolation))["a@0"] == results
        assert harness.app.metrics()["dropped-records-total"] == dropped
