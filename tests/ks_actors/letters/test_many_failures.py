"""Handlers when many records fail: few lines in the log, and an end when it is not the records that are wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from actors.testing import VirtualLoop
from ks_actors import ConfigError, HandlerResponse, ProcessingFailed, StreamsConfig, log_and_continue, stop_after
from ks_actors.dsl import StreamsBuilder
from ks_actors.testing import AppHarness, TestRecord, run_app
from tests.ks_actors.letters.test_handlers import RECORD, context, raised
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, in_virtual_time


async def failures(random: Random, count: int) -> AsyncIterator[tuple[float, str, Exception]]:
    """Let time pass; return the time (s), node and error of each failure."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    for _ in range(count):
        await loop.clock.advance(random.choice((0, 0.5, 1, 5, 40, 70)))
        yield loop.time(), random.choice("ab"), random.choice((ValueError, KeyError))("no")


@pytest.mark.parametrize("seed", range(20))
@in_virtual_time
async def test_of_a_kind_of_failures_one_line_a_minute_is_logged(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """The first has its traceback; later lines count those between, of each node and type of error; each record has its letter."""
    lines: dict[tuple[str, type], tuple[float, int]] = {}
    async for now, node, error in failures(Random(seed), 20):
        caplog.clear()
        answer = log_and_continue(context(processor_node_id=node), RECORD, raised(error))
        assert (answer.result, len(answer.dead_letter_queue_records)) == (HandlerResponse.RESUME, 1)
        kind = (node, type(error))
        due, more = lines.get(kind, (None, 0))
        told = [(record.exc_info is not None, record.getMessage()) for record in caplog.records]
        if due is None:
            assert [(traced, "are told once a minute" in text) for traced, text in told] == [(True, True)]
        elif now < due:
            assert told == []
        else:
            assert [(traced, f"{more} more since the last line" in text) for traced, text in told] == [(False, True)]
        lines[kind] = (due, more + 1) if due is not None and now < due else (now + 60, 0)


@pytest.mark.parametrize("seed", range(20))
@in_virtual_time
async def test_stop_after_ends_at_the_failure_behind_too_many(seed: int) -> None:
    """It goes on while fewer than so many others failed within the time; the failure that ends has no letter."""
    random = Random(seed)
    most, seconds = random.randrange(1, 5), random.choice((1, 60))
    handler = stop_after(most, per_seconds=seconds)
    went_on: list[float] = []
    async for now, node, error in failures(random, 30):
        answer = handler(context(processor_node_id=node), RECORD, raised(error))
        stops = len([one for one in went_on if now - one < seconds]) >= most
        assert (answer.result, len(answer.dead_letter_queue_records)) == ((HandlerResponse.FAIL, 0) if stops else (HandlerResponse.RESUME, 1))
        if not stops:
            went_on.append(now)


def test_stop_after_is_a_setting_like_the_words() -> None:
    """Files and the environment spell it as Python does; each setting has a handler of its own, which can be copied."""
    config = StreamsConfig.of(
        {
            "application_id": "a",
            "processing_exception_handler": "stop_after(10, per_seconds=60)",
            "deserialization_exception_handler": " stop_after( 10,per_seconds=60 )",
            "production_exception_handler": stop_after(3, per_seconds=0.5),
        }
    )
    assert repr(config.processing_exception_handler) == repr(config.deserialization_exception_handler) == "stop_after(10, per_seconds=60)"
    assert config.processing_exception_handler is not config.deserialization_exception_handler
    assert repr(deepcopy(config).production_exception_handler) == "stop_after(3, per_seconds=0.5)"
    for wrong in ("stop_after(0, per_seconds=60)", "stop_after(1, per_seconds=0)", "stop_after(10)", "stop_after"):
        with pytest.raises(ConfigError, match="processing_exception_handler"):
            StreamsConfig.of({"application_id": "a", "processing_exception_handler": wrong})


def test_an_app_whose_dependency_is_down_ends_and_loses_no_record() -> None:
    """The app ends at the eleventh failure since the last commit: it takes back the ten letters, and a restart processes all of them again."""
    builder = StreamsBuilder()

    def down(_: str) -> str:
        raise ConnectionError("nobody answers")

    builder.stream("in", STRINGS).map_values(down).to("out", STRINGS_OUT)

    async def test(harness: AppHarness) -> tuple[Any, int]:
        await harness.produce_all("in", [TestRecord("k", str(number), 1) for number in range(50)])
        error = await harness.ended()
        return error, len(await harness.read("dead"))

    error, letters = run_app(
        test,
        builder.build(),
        topics={"in": 1, "out": 1, "dead": 1},
        processing_exception_handler="stop_after(10, per_seconds=60)",
        errors_dead_letter_queue_topic_name="dead",
    )
    assert isinstance(error, ProcessingFailed)
    assert error.offset == 10
    assert letters == 0
