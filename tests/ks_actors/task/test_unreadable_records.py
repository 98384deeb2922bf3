"""Records that a log cannot read: the deserialization handler is asked about them, and reading goes on behind them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ks_actors import ConfigError, DeserializationFailed, LogCorrupted
from ks_actors.log import NewTopic, TopicPartition
from ks_actors.log.embedded._partition import Partition
from ks_actors.runtime import InstanceState
from ks_actors.runtime.shared._internal_topics import _create
from ks_actors.runtime.shared._topic_configs import AFTER_MAX
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.runtime.helpers import echo, in_app

BAD = TopicPartition("in", 0)


@pytest.fixture(autouse=True)
def _unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have offset 1 of the input be unreadable."""
    read = Partition.read

    def refusing(self: Partition, position: int, most: int, **options: Any) -> Any:
        if self.name != BAD or position > 1:
            return read(self, position, most, **options)
        if position == 1:
            raise LogCorrupted("in-0 cannot be read at offset 1", partition=BAD, offset=1, next_offset=2)
        return read(self, position, 1, **options)

    monkeypatch.setattr(Partition, "read", refusing)


@in_app(echo(), topics={"in": 1, "out": 1, "letters": 1}, deserialization_exception_handler="continue", errors_dead_letter_queue_topic_name="letters")
async def test_a_handler_that_goes_on_has_them_left_out(harness: AppHarness, guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """The records in front and behind are processed, one is counted as dropped, and a dead letter tells where it was."""
    for value in ("a", "b", "c"):
        await harness.produce("in", "k", value, partition=0)
    await harness.caught_up()
    assert [record.value for record in await harness.read("out")] == ["a", "c"]
    assert harness.app.metrics()["dropped-records-total"] == 1
    (letter,) = await harness.read("letters")
    assert (letter.key, letter.value) == (None, None)
    assert dict(letter.headers)["__streams.errors.offset"] == b"1"
    assert "in-0: offsets 1 to 1 cannot be read" in caplog.text


def test_a_handler_that_fails_ends_the_app(guarantee: str) -> None:
    """The error names topic, partition and offset; earlier records are processed."""

    async def test(harness: AppHarness) -> None:
        for value in ("a", "b", "c"):
            await harness.produce("in", "k", value, partition=0)
        with pytest.raises(DeserializationFailed) as raised:
            await harness.caught_up()
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("in", 0, 1)
        assert harness.app.state is InstanceState.ERROR

    with pytest.raises(DeserializationFailed):
        run_app(test, echo(), topics={"in": 1, "out": 1}, processing_guarantee=guarantee)


async def test_brokers_that_do_not_know_bounds_of_times_get_none() -> None:
    """An internal topic is made without the setting that a log refuses."""
    made: list[NewTopic] = []

    class Old:
        async def create_topics(self, topics: Iterable[NewTopic], /) -> None:
            wanted = list(topics)
            if any(AFTER_MAX in topic.configs for topic in wanted):
                raise ConfigError(f"Unknown topic config name: {AFTER_MAX}")
            made.extend(wanted)

    log: Any = Old()
    topics: Any = None
    await _create(log, topics, [NewTopic("t", 1, {AFTER_MAX: "1", "cleanup.policy": "compact"})], {})
    assert made == [NewTopic("t", 1, {"cleanup.policy": "compact"})]
