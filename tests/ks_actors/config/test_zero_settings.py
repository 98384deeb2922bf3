"""Settings of 0 that Kafka Streams allows: they mean at once, not without rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ks_actors.dsl import StreamsBuilder
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, in_virtual_time

CALL_S = 5.0


@pytest.mark.parametrize("setting", ["poll_ms", "commit_interval_ms"])
@in_virtual_time
async def test_an_app_with_a_setting_of_zero_has_rest_and_works(guarantee: str, setting: str) -> None:
    """An app without records, and one whose only record is in a call, handle some thousand messages a second at most."""
    builder = StreamsBuilder()

    async def call(value: str) -> str:
        await asyncio.sleep(CALL_S)
        return value

    builder.stream("in", STRINGS).map_values(call).to("out", STRINGS_OUT)

    settings: dict[str, Any] = {setting: 0}
    async with AppHarness(builder.build(), topics={"in": 1, "out": 1}, processing_guarantee=guarantee, **settings) as harness:
        for _ in range(2):
            await asyncio.sleep(1.0)
            steps = harness.kit._dispatch.steps
            await asyncio.sleep(1.0)
            assert harness.kit._dispatch.steps - steps < 8_000
            await harness.produce("in", "k", "v")
        await harness.caught_up()
        assert [record.value for record in await harness.read("out")] == ["v", "v"]
