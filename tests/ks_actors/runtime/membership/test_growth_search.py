"""Random days on which topics grow while instances come, go and die."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors.dsl import Consumed, Grouped, Materialized, Produced, Repartitioned, StreamsBuilder
from ks_actors.log import IsolationLevel, TopicPartition
from ks_actors.records._partitioner import partition as default
from ks_actors.serdes import LONG, STRING
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import Topology
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import EOS, GUARANTEES, STRINGS_OUT

MAX_AGE_MS = 1_000
GROW_A, GROW_B, GROW_OUT, FEED, CRASH, RESTART, WAIT = "grow a", "grow b", "grow out", "feed", "crash", "restart", "wait"


def topology() -> Topology:
    """Pass on the records of two topics, and count them by key, in a repartition topic with a given size."""
    builder = StreamsBuilder()
    stream = builder.stream(["a", "b"], Consumed(STRING, STRING))
    stream.to("out", STRINGS_OUT)
    counted = stream.repartition(Repartitioned(STRING, STRING, name="fixed", partitions=2)).group_by_key(Grouped(STRING, STRING))
    counted.count(Materialized("counts", STRING, LONG)).to_stream().to("counted", Produced(STRING, LONG))
    return builder.build()


@pytest.mark.parametrize("guarantee", GUARANTEES)
@given(
    steps=st.lists(st.tuples(st.sampled_from([GROW_A, GROW_B, GROW_OUT, FEED, FEED, FEED, CRASH, RESTART, WAIT]), st.integers(0, 30)), max_size=14),
    seed=st.integers(0, 1000),
)
@settings(max_examples=examples(8))
def test_every_record_of_every_partition_is_processed(guarantee: str, steps: list[tuple[str, int]], seed: int) -> None:
    """At any time of added partitions, and with any fate of the instances: exactly once, each record once, and all are counted."""
    sent: Counter[str] = Counter()

    async def test(harness: AppHarness) -> None:
        sizes = {"a": 1, "b": 2, "out": 1}
        async with harness.another() as other:
            for step, number in steps:
                which = (harness, other)[number % 2]
                if step in {GROW_A, GROW_B, GROW_OUT}:
                    topic = step.removeprefix("grow ")
                    sizes[topic] += 1 + number % 3
                    harness.create_partitions({topic: sizes[topic]})
                elif step == FEED:
                    topic = "ab"[number % 2]
                    for partition in range(sizes[topic]):
                        key = f"{topic}-{partition}-{sum(sent.values())}"
                        await harness.produce(topic, key, "v", partition=partition)
                        sent[key] += 1
                elif step == CRASH:
                    await which.crash()
                    await which.restart()
                elif step == RESTART:
                    await which.restart()
                else:
                    await asyncio.sleep(number / 10)
                await harness.turns(number)
            await asyncio.sleep(60)  # the group has noticed all that has died
            await harness.caught_up()
            await asyncio.sleep(2 * MAX_AGE_MS / 1000)
            await harness.produce("a", "last", "v", partition=0)
            sent["last"] += 1
            await harness.caught_up()
            written = Counter(record.key for record in await harness.read("out"))
            finals: dict[Any, Any] = {record.key: record.value for record in await harness.read("counted")}
            place = default(b"last", sizes["out"])
            found = await harness._batches(TopicPartition("out", place), 0, IsolationLevel.READ_COMMITTED)
            assert any(b"last" in batch.keys for batch in found)
            if guarantee == EOS:
                assert written == sent
                assert finals == sent
            else:
                assert written.keys() == sent.keys()
                assert all(finals[key] >= 1 for key in sent)

    run_app(
        test,
        topology(),
        seed=seed,
        topics={"a": 1, "b": 2, "out": 1, "counted": 1},
        processing_guarantee=guarantee,
        metadata_max_age_ms=MAX_AGE_MS,
        commit_interval_ms=100,
    )
