"""Records that are printed as they come."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ks_actors import App, Batch, StreamsBuilder, StreamsConfig
from ks_actors.cli.dev._tails import Line, Tails
from ks_actors.dsl import Consumed
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.serdes import STRING, NeedsToRead
from tests.ks_actors.runtime.helpers import in_virtual_time

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


@in_virtual_time
async def test_records_whose_schema_is_looked_up_at_the_end_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end cancels the printing, maybe while a registry is asked; `finish` prints what was fetched."""
    asks, answers, shown = asyncio.Event(), asyncio.Event(), list[Line]()

    async def meet(*_: Any) -> None:
        asks.set()
        await answers.wait()

    monkeypatch.setattr(NeedsToRead, "meet", meet)
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).to("out")
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 1)])
        app = App(builder.build(), StreamsConfig(application_id="app", state_dir=tmp_path), log=log)
        tails = Tails(app, log, shown.append)
        await tails.add(["in"], "begin")
        producer = await log.producer(client_id="p")
        await producer.send([Outgoing(TopicPartition("in", 0), Batch([b"a"], [b"1"], [0]))])
        printing = asyncio.ensure_future(tails.run())
        await asks.wait()
        printing.cancel()
        await asyncio.wait([printing])
        answers.set()
        await tails.finish()
    assert [line.rest for line in shown] == ["a\t1"]
