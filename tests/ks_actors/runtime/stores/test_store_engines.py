"""Apps whose stores of the DSL are in an engine of the user's own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from ks_actors import App, Batch, JoinWindows, StreamsBuilder, StreamsConfig, TimeWindows, Topology, serdes
from ks_actors.dsl import Consumed, Grouped, Materialized, Produced, StreamJoined
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import EOS, Load, in_virtual_time
from tests.ks_actors.state.sqlite_engine import SqliteEngine

STRINGS = Consumed(serdes.STRING, serdes.STRING)


def counting() -> Topology:
    """Counts, beside windows and a join in stores of the same kind."""
    builder = StreamsBuilder()
    records = builder.stream("in", STRINGS)
    keys = records.group_by_key(Grouped(serdes.STRING, serdes.STRING))
    counts = keys.count(Materialized("counts", serdes.STRING, serdes.LONG, store_type=SqliteEngine))
    counts.to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    keys.windowed_by(TimeWindows.of_size_with_no_grace(1_000)).count(Materialized("windows", serdes.STRING, serdes.LONG, store_type=SqliteEngine))
    joined = StreamJoined(serdes.STRING, serdes.STRING, serdes.STRING, store_type=SqliteEngine)
    records.join(
        builder.stream("other", STRINGS), lambda one, other: f"{one}{other}", JoinWindows.of_time_difference_with_no_grace(1_000), joined
    ).to("joined", Produced(serdes.STRING, serdes.STRING))
    return builder.build()


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_counts_in_an_engine_of_ones_own_survive_crashes(seed: int, guarantee: str) -> None:
    """After crashes at random each count is there, exactly once and in order where that is promised."""
    random = Random(seed)

    topics = {"in": 2, "other": 2, "out": 1, "joined": 1}
    async with AppHarness(counting(), seed=seed, topics=topics, processing_guarantee=guarantee, commit_interval_ms=100) as harness:
        load = Load(harness, random)
        for _ in range(6):
            await load.send(random.randrange(1, 60))
            await harness.produce("other", "k0", "o")
            await asyncio.sleep(random.choice([0.01, 0.1, 0.25]))
            await load.send(random.randrange(1, 30))
            await harness.turns(random.randrange(120))
            if random.random() < 0.5:
                await harness.crash()
                await harness.restart()
        await load.check(guarantee)
        counts = harness.app.store("counts", serdes.STRING, serdes.LONG)
        found = {key: await counts.get(key) or 0 for key in load.sent}
        assert found == dict(load.sent) if guarantee == EOS else all(found[key] >= sent for key, sent in load.sent.items())


async def test_an_engine_is_opened_in_one_thread_and_used_in_another(tmp_path: Path) -> None:
    """An app opens stores in a thread of their own, in real time too; a second start goes on from what the engine has."""
    config = StreamsConfig(application_id="engines", state_dir=tmp_path)
    async with EmbeddedLog() as log:
        for start in (1, 2):
            async with App(counting(), config, log=log, topics={"in": 2, "other": 2, "out": 1, "joined": 1}) as app:
                producer = await log.producer(client_id="test")
                await producer.send([Outgoing(TopicPartition("in", 0), Batch([b"k"] * 3, [b"v"] * 3, [0] * 3))])
                await producer.close()
                await app.wait_until_caught_up()
                assert await app.store("counts", serdes.STRING, serdes.LONG).get("k") == 3 * start
