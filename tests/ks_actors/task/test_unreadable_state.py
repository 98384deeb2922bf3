"""State that its serde cannot read any more is about no record: the one at hand is processed, and the others that wait come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import ProcessingFailed
from ks_actors.dsl import (
    BufferConfig,
    Consumed,
    EmitStrategy,
    Joined,
    JoinWindows,
    Materialized,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
)
from ks_actors.serdes import STRING, Serde
from ks_actors.testing import AppHarness
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, feed
from tests.ks_actors.task.test_record_origins import CLOSING, GROUPED, Asked, run


class Reader:
    """A serde that stops reading some values, as after a change of their class."""

    def __init__(self, *, immutable: bool) -> None:
        self.strict = False
        self.serde: Serde[str] = Serde.of(str.encode, self.read, immutable=immutable)

    def read(self, data: bytes) -> str:
        if self.strict and data.startswith(b"bad"):
            raise ValueError("the field is missing")
        return data.decode()


def closing(kind: str) -> Callable[[StreamsBuilder, Serde[str]], Any]:
    def build(builder: StreamsBuilder, serde: Serde[str]) -> Any:
        windowed = CLOSING[kind](builder.stream("in", STRINGS).group_by_key(GROUPED)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        table = windowed.reduce(lambda _, new: new, Materialized("rows", STRING, serde))
        return table.to_stream().select_key(lambda key, _: key.key)

    return build


def suppressed(builder: StreamsBuilder, serde: Serde[str]) -> Any:
    table = builder.stream("in", Consumed(STRING, serde)).to_table(Materialized("rows", STRING, serde))
    return table.suppress(Suppressed.until_time_limit(10, BufferConfig.unbounded())).to_stream()


def alone(builder: StreamsBuilder, serde: Serde[str]) -> Any:
    options = StreamJoined(STRING, serde, STRING)
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    return builder.stream("in", Consumed(STRING, serde)).left_join(builder.stream("other", STRINGS), lambda left, _: left, windows, options)


def late(builder: StreamsBuilder, serde: Serde[str]) -> Any:
    table = builder.table("other", STRINGS, Materialized("past", STRING, STRING, history_retention_ms=1_000))
    joined = Joined(STRING, serde, STRING, grace_ms=10)
    return builder.stream("in", Consumed(STRING, serde)).left_join(table, lambda left, _: left, joined)


HOLDING: dict[str, Callable[[StreamsBuilder, Serde[str]], Any]] = {
    **{kind: closing(kind) for kind in CLOSING},
    "suppress": suppressed,
    "a join without a partner": alone,
    "a join with grace": late,
}


def of(name: str, serde: Serde[str]) -> Topology:
    builder = StreamsBuilder()
    HOLDING[name](builder, serde).to("out", STRINGS_OUT)
    return builder.build()


def held(name: str, reader: Reader, *, restart: bool, wipe: bool = False, **config: Any) -> tuple[Asked, list[str | None]]:
    """Cache a good row, one that becomes unreadable and a good one; return the handler's questions, and the output."""
    out: list[str | None] = []

    async def test(harness: AppHarness) -> None:
        for key, value, time in (("a", "first", 10), ("b", "bad", 10), ("c", "third", 10)):
            await harness.produce("in", key, value, time)
        await harness.caught_up()
        if restart:
            await harness.close()
            if wipe:
                harness.wipe_state()
        reader.strict = True
        if restart:
            await harness.start()
        for key, time in (("x", 50), ("y", 100), ("z", 150)):
            await feed(harness, "in", key, "later", time)
        out.extend(record.value for record in await harness.read("out", key=STRING, value=STRING))

    return run(of(name, reader.serde), test, **config), out


@pytest.mark.parametrize("name", HOLDING)
def test_a_held_value_that_cannot_be_read_is_about_no_record(name: str, guarantee: str) -> None:
    """The handler is asked once, without an origin; all that can be read comes out, and no record is left out."""
    asked, out = held(name, Reader(immutable=False), restart=False, processing_guarantee=guarantee)
    assert asked.origins == [(None, -1, None)]
    assert [getattr(record.key, "key", record.key) for record in asked.records] == ["b"]
    assert out == ["first", "third", "later", "later"]


@pytest.mark.parametrize("immutable", [False, True])
@pytest.mark.parametrize("wipe", [False, True])
@pytest.mark.parametrize("name", HOLDING)
def test_after_a_restart_no_innocent_record_is_blamed(name: str, wipe: bool, immutable: bool) -> None:
    """Whether it was restored from the changelog or found on disk; if nothing of the store can be read, the app ends by an error about the store."""
    reader = Reader(immutable=immutable)
    if immutable and (name == "suppress" or (wipe and name.startswith("a join"))):
        with pytest.raises(ProcessingFailed, match="buffered records cannot be read") as raised:
            held(name, reader, restart=True, wipe=wipe)
        assert raised.value.offset is None
        return
    asked, out = held(name, reader, restart=True, wipe=wipe)
    assert asked.origins == [(None, -1, None)]
    assert out == ["first", "third", "later", "later"]
