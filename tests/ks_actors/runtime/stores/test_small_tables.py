"""Tables whose topic, which is their changelog, has fewer partitions than there are tasks."""

from __future__ import annotations

from typing import Any

import pytest

from ks_actors import Grouped, Materialized, StreamsBuilder, StreamsConfig, serdes
from ks_actors.testing import AppHarness
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, feed, in_virtual_time
from tests.ks_actors.runtime.stores.test_discarded_state import given_up
from tests.layouts import LAYOUT, database_of

REUSE: Any = "reuse.ktable.source.topics"


def counting() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("small", STRINGS, Materialized("rows", serdes.STRING, serdes.STRING))
    rows: Any = table.to_stream()
    both = rows.merge(builder.stream("large", STRINGS))
    both.group_by_key(Grouped(serdes.STRING, serdes.STRING)).count(Materialized("counts", serdes.STRING, serdes.LONG))
    return builder.build(StreamsConfig(application_id="app", topology_optimization=REUSE))


@in_virtual_time
async def test_an_empty_table_beyond_its_partitions_is_no_only_copy(guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """When the state of such a task is damaged, its other stores are restored, as in every task."""
    options: dict[str, Any] = {"topics": {"small": 1, "large": 3}, "processing_guarantee": guarantee, "topology_optimization": REUSE}
    async with AppHarness(counting(), **options) as harness:
        await harness.produce("small", "k", "v", partition=0)
        await feed(harness, "large", "k", "v", partition=2)
        await harness.close()
        for number in (0, 2):
            (database_of(harness.state_dir / f"0_{number}") / "CURRENT").write_text("nonsense")
        await harness.restart()
        await feed(harness, "large", "k", "v", partition=2)
        assert [await harness.app.store("counts", partition=number).get("k") for number in (0, 2)] == [1, 2]
        assert len(given_up(caplog)) == (2 if LAYOUT == "task" else 1)
        assert await harness.app.store("rows", partition=0).get("k") == "v"
