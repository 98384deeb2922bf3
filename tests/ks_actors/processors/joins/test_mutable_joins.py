"""An app on a log joins streams with values that change in place, and with keys that are identified by their bytes."""

from __future__ import annotations

from typing import Any

import pytest

from ks_actors import Consumed, Produced, serdes
from ks_actors.dsl import JoinWindows, StreamJoined, StreamsBuilder
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import feed, in_virtual_time

ROWS = serdes.json(dict)
PLAIN = serdes.Serde.of(str.encode, bytes.decode)
"""Text whose serde promises nothing."""


@pytest.mark.parametrize("store_type", ["rocksdb", "in_memory"])
@pytest.mark.parametrize("key", [serdes.STRING, PLAIN])
@pytest.mark.parametrize("method", ["join", "left_join", "outer_join"])
@in_virtual_time
async def test_rows_are_committed_and_met_after_a_restart(method: str, key: serdes.Serde[Any], store_type: Any, guarantee: str) -> None:
    """Waiting records in the stores of both sides are in their changelogs, and are there again when the task has begun anew without its state."""
    builder = StreamsBuilder()
    rows = Consumed(key, ROWS)
    options = StreamJoined(key, ROWS, ROWS, store_name="met", store_type=store_type)
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    joined = getattr(builder.stream("in", rows), method)(
        builder.stream("other", rows), lambda left, right: {"left": left, "right": right}, windows, options
    )
    joined.to("out", Produced(key, ROWS))
    async with AppHarness(builder.build(), topics=dict.fromkeys(["in", "other", "out"], 1), processing_guarantee=guarantee) as harness:
        await harness.produce("in", "a", {"n": 1}, 0)
        await feed(harness, "in", "b", {"n": 2}, 0)
        await harness.crash()
        harness.wipe_state()
        await harness.start()
        await feed(harness, "other", "a", {"m": 1}, 1)
        await harness.produce("other", "c", {"m": 2}, 40)
        await feed(harness, "in", "c", {"n": 3}, 40)
        found = [(record.key, record.value) for record in await harness.read("out", key=key, value=ROWS)]
        met = [("a", {"left": {"n": 1}, "right": {"m": 1}}), ("c", {"left": {"n": 3}, "right": {"m": 2}})]
        alone = [] if method == "join" else [("b", {"left": {"n": 2}, "right": None})]
        assert found == [met[0], *alone, met[1]]
