"""Commits that wait for tasks of several kinds at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ks_actors import App, StreamsConfig, serdes
from ks_actors.dsl import Produced, StreamsBuilder
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records._batch import Batch
from ks_actors.runtime.commit import _drains
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT
from tests.ks_actors.task.calls.test_threads import gated
from tests.waiting import until

COUNTED, CALLED = TopicPartition("counted", 0), TopicPartition("called", 0)


async def test_calls_are_left_out_when_a_slow_cache_is_at_rest(guarantee: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache is waited for beyond the grace of a commit; calls that are in flight when it is at rest are left out as they are without it."""
    monkeypatch.setattr(_drains, "_GRACE_S", 0.0)
    gate, function = gated()
    called, returns = asyncio.Event(), asyncio.Event()

    async def call(value: str) -> str:
        called.set()
        await returns.wait()
        return value

    builder = StreamsBuilder()
    builder.stream("called", STRINGS).map_values(call).to("out", STRINGS_OUT)
    counts = builder.stream("counted", STRINGS).map_values(function).group_by_key().count()
    counts.to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    config = StreamsConfig(
        application_id="app",
        state_dir=tmp_path,
        processing_guarantee=guarantee,
        num_workers=2,
        statestore_cache_max_bytes=10_000,
        commit_interval_ms=60_000,
        max_drain_ms=60_000,
        transaction_timeout_ms=60_000,
    )
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("called", 1), NewTopic("counted", 1), NewTopic("out", 1)])
        producer = await log.producer(client_id="test")
        await producer.send([Outgoing(one, Batch([b"k"], [b"v"], [0])) for one in (CALLED, COUNTED)])
        async with App(builder.build(), config, log=log) as app:
            await called.wait()
            await until(gate.entered.is_set)
            commit = asyncio.ensure_future(app.commit())
            for _ in range(1000):
                await asyncio.sleep(0)
            gate.opened.set()
            await until(lambda: COUNTED in log._groups.get("app").committed())
            assert CALLED not in log._groups.get("app").committed()
            assert not commit.done()
            returns.set()
            await commit
            assert log._groups.get("app").committed()[CALLED].offset == 1
