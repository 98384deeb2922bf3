"""The test driver shows the same dead letters of failed records as an app writes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import ProcessingFailed, StreamsError, UncaughtResponse
from ks_actors.dsl import Consumed, Produced, StreamsBuilder
from ks_actors.serdes import BYTES, LONG, STRING
from ks_actors.testing import AppHarness, AsyncTopologyTestDriver, TopologyTestDriver, run_app
from ks_actors.topology import Topology
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import GUARANTEES, feed, in_app

CONTINUE: dict[str, Any] = {
    "errors_dead_letter_queue_topic_name": "letters",
    "deserialization_exception_handler": "continue",
    "processing_exception_handler": "continue",
    "production_exception_handler": "continue",
}
GOOD, NO_KEY, NO_VALUE, RAISES, TOO_LARGE = "good", "no key", "no value", "raises", "too large"
RECORDS: dict[str, tuple[bytes, bytes]] = {
    GOOD: (b"a", (7).to_bytes(8)),
    NO_KEY: (b"\xff", (7).to_bytes(8)),
    NO_VALUE: (b"a", b"x"),
    RAISES: (b"a", (0).to_bytes(8)),
    TOO_LARGE: (b"a", (1).to_bytes(8)),
}


def dividing() -> Topology:
    """Divide by the value; one result is more than a long can be."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, LONG)).map_values(lambda value: 7 // value if value != 1 else 1 << 70).to("out", Produced(STRING, LONG))
    return builder.build()


@pytest.mark.parametrize("kind", [NO_KEY, NO_VALUE, RAISES, TOO_LARGE])
def test_a_dead_letter_is_there_when_the_call_returns(kind: str) -> None:
    """At any place where the record fails: no other record has to be piped first; the asynchronous driver does as the other one."""
    key, value = RECORDS[kind]
    with TopologyTestDriver(dividing(), CONTINUE) as driver:
        driver.create_input_topic("in", BYTES, BYTES).pipe_raw(key, value, 5)
        letters = driver.create_output_topic("letters", BYTES, BYTES)
        assert [(letter.key, letter.value) for letter in letters.read_records_to_list()] == [(key, value)]
        assert driver.metrics()["dropped-records-total"] == 1

    async def other() -> None:
        async with AsyncTopologyTestDriver(dividing(), CONTINUE) as driver:
            await driver.pipe_input("in", key, value)
            assert driver.count("letters") == 1

    asyncio.run(other())


@pytest.mark.parametrize("guarantee", GUARANTEES)
@given(kinds=st.lists(st.sampled_from(sorted(RECORDS)), max_size=12))
@settings(max_examples=examples(15))
def test_the_driver_shows_the_output_of_an_app(guarantee: str, kinds: list[str]) -> None:
    """After each record: as many results and dead letters, of the same bytes, as an app has written when it has caught up with that record."""
    steps: list[tuple[int, list[bytes | None]]] = []
    with TopologyTestDriver(dividing(), CONTINUE) as driver:
        source, letters = driver.create_input_topic("in", BYTES, BYTES), driver.create_output_topic("letters", BYTES, BYTES)
        seen: list[bytes | None] = []
        for number, kind in enumerate(kinds):
            source.pipe_raw(*RECORDS[kind], number)
            seen += [letter.value for letter in letters.read_records_to_list()]
            steps.append((driver.count("out"), [*seen]))

    async def test(harness: AppHarness) -> None:
        found: list[tuple[int, list[bytes | None]]] = []
        for number, kind in enumerate(kinds):
            await feed(harness, "in", *RECORDS[kind], number)
            found.append((len(await harness.read("out")), [letter.value for letter in await harness.read("letters")]))
        assert found == steps

    run_app(test, dividing(), topics={"in": 1, "out": 1, "letters": 1}, processing_guarantee=guarantee, **CONTINUE)


@pytest.mark.parametrize("kind", [NO_KEY, NO_VALUE, RAISES, TOO_LARGE])
@pytest.mark.parametrize("before", [0, 1, 70])
def test_the_letter_of_a_record_that_ends_processing(kind: str, guarantee: str, before: int) -> None:
    """At least once it is written, once per attempt; exactly once it is void with the transaction. Drivers show the same as an app writes."""
    handling: dict[str, Any] = {"errors_dead_letter_queue_topic_name": "letters", "processing_guarantee": guarantee}
    expected = [] if guarantee == "exactly_once_v2" else [RECORDS[kind]]
    with TopologyTestDriver(dividing(), handling) as driver:
        source = driver.create_input_topic("in", BYTES, BYTES)
        with pytest.raises(StreamsError):
            source.pipe_raw(*RECORDS[kind], 5)
        letters = driver.create_output_topic("letters", BYTES, BYTES)
        assert [(letter.key, letter.value) for letter in letters.read_records_to_list()] == expected

    async def test(harness: AppHarness) -> None:
        for _ in range(before):
            await harness.produce("in", *RECORDS[GOOD])
        await harness.produce("in", *RECORDS[kind])
        await harness.produce("in", *RECORDS[GOOD])
        await harness.start()
        assert isinstance(await harness.ended(), StreamsError)
        assert [(letter.key, letter.value) for letter in await harness.read("letters")] == expected * len(asked)

    asked: list[Exception] = []

    def twice(error: Exception) -> UncaughtResponse:
        asked.append(error)
        return UncaughtResponse.REPLACE_WORKER if len(asked) == 1 else UncaughtResponse.SHUTDOWN_CLIENT

    run_app(test, dividing(), topics={"in": 1, "out": 1, "letters": 1}, start=False, uncaught_handler=twice, **handling)


@in_app(dividing(), topics={"in": 1, "out": 1, "letters": 1}, errors_dead_letter_queue_topic_name="letters")
async def test_letters_that_cannot_be_written_are_told_with_the_error(harness: AppHarness) -> None:
    """The error of the record stays the error of the app; a note says why there is no letter."""
    harness.delete_topics("letters")
    await harness.produce("in", *RECORDS[RAISES])
    error = await harness.ended()
    assert isinstance(error, ProcessingFailed)
    assert any("its dead letters could not be written: the log refused dead letters" in note for note in error.__notes__)
