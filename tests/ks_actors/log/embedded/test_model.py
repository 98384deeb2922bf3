"""The embedded log against a model of it that is as simple as can be."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from ks_actors._errors import Fenced
from ks_actors.log import GroupMetadata, IsolationLevel, NewMember, NewTopic, OffsetAndMetadata, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog, EmbeddedProducer, EmbeddedTransactionalProducer
from ks_actors.records._batch import Batch
from tests.examples_of import examples
from tests.ks_actors.log.helpers import COMMITTED, UNCOMMITTED, abandon

PLACES = [TopicPartition("plain", 0), TopicPartition("compacted", 0)]
IDS = ["x", "y"]
GROUP = GroupMetadata("g", -1, "")

places = st.sampled_from(PLACES)
ids = st.sampled_from(IDS)
records = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.binary(max_size=3)), min_size=1, max_size=6)


class Entry:
    """A record, or a marker, which has no key; `owner` is the producer with the open transaction."""

    def __init__(self, offset: int, key: bytes | None, value: bytes, owner: str | None) -> None:
        self.offset = offset
        self.key = key
        self.value = value
        self.owner = owner
        self.aborted = False


class PartitionModel:
    def __init__(self) -> None:
        self.begin = 0
        self.end = 0
        self.entries: list[Entry] = []

    def append(self, key: bytes | None, value: bytes, owner: str | None) -> None:
        self.entries.append(Entry(self.end, key, value, owner))
        self.end += 1

    @property
    def stable(self) -> int:
        return max(self.begin, min((entry.offset for entry in self.entries if entry.owner), default=self.end))

    def finish(self, owner: str, *, aborted: bool) -> None:
        mine = [entry for entry in self.entries if entry.owner == owner]
        for entry in mine:
            entry.owner, entry.aborted = None, aborted
        self.append(None, b"", None)

    def visible(self, isolation: IsolationLevel) -> list[Entry]:
        limit = self.stable if isolation is COMMITTED else self.end
        return [
            entry
            for entry in self.entries
            if self.begin <= entry.offset < limit and entry.key is not None and not (isolation is COMMITTED and entry.aborted)
        ]

    def compact(self) -> None:
        boundary = self.stable
        latest = {entry.key: entry.offset for entry in self.visible(COMMITTED)}
        kept = set(latest.values())
        self.entries = [entry for entry in self.entries if entry.owner or entry.offset >= boundary or entry.offset in kept]


class LogMachine(RuleBasedStateMachine):
    """Do the same to the log and to the model, and compare the readable records."""

    durable: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = Path(tempfile.mkdtemp()) if self.durable else None
        self.model = {place: PartitionModel() for place in PLACES}
        self.open: dict[str, set[TopicPartition]] = {name: set() for name in IDS}
        self.offsets: dict[TopicPartition, int] = {}
        self.producers: dict[str, EmbeddedTransactionalProducer] = {}

    def run(self, awaitable: Awaitable[Any]) -> Any:
        async def call() -> Any:
            return await awaitable

        return self.runner.run(call())

    @initialize()
    def create(self) -> None:
        self.start()
        self.run(self.log.create_topics([NewTopic("plain", 1), NewTopic("compacted", 1, {"cleanup.policy": "compact"})]))

    def start(self) -> None:
        self.log = EmbeddedLog(self.directory)
        self.run(self.log.start())
        self.plain: EmbeddedProducer = self.run(self.log.producer(client_id="p"))
        self.producers.clear()

    def producer(self, name: str) -> EmbeddedTransactionalProducer:
        if name not in self.producers:
            self.take_over(name)
        return self.producers[name]

    @rule(name=ids)
    def take_over(self, name: str) -> None:
        old = self.producers.get(name)
        self.producers[name] = self.run(self.log.transactional_producer(name, client_id="p", timeout_ms=600_000))
        self.finish(name, aborted=True)
        if old is not None:
            with pytest.raises(Fenced):
                self.run(old.abort())

    def finish(self, name: str, *, aborted: bool) -> None:
        for place in PLACES:
            if place in self.open[name]:
                self.model[place].finish(name, aborted=aborted)
        self.open[name].clear()

    @rule(place=places, pairs=records)
    def produce(self, place: TopicPartition, pairs: list[tuple[bytes, bytes]]) -> None:
        self.send(self.plain, [place], pairs, None)

    @rule(name=ids, several=st.lists(places, min_size=1, max_size=2, unique=True), pairs=records)
    def produce_in_transaction(self, name: str, several: list[TopicPartition], pairs: list[tuple[bytes, bytes]]) -> None:
        producer = self.producer(name)
        self.open[name].update(several)
        self.send(producer, several, pairs, name)

    def send(
        self,
        producer: EmbeddedProducer | EmbeddedTransactionalProducer,
        several: list[TopicPartition],
        pairs: list[tuple[bytes, bytes]],
        owner: str | None,
    ) -> None:
        outgoing = [Outgoing(place, Batch([k for k, _ in pairs], [v for _, v in pairs], [0] * len(pairs))) for place in several]
        behind = self.run(producer.send(outgoing))
        for place in several:
            for key, value in pairs:
                self.model[place].append(key, value, owner)
        assert list(behind) == [self.model[place].end for place in several]

    @rule(name=ids, place=places, offset=st.none() | st.integers(0, 99))
    def commit(self, name: str, place: TopicPartition, offset: int | None) -> None:
        offsets = {} if offset is None else {place: OffsetAndMetadata(offset)}
        self.run(self.producer(name).commit(offsets, GROUP))
        self.finish(name, aborted=False)
        if offset is not None:
            self.offsets[place] = offset

    @rule(name=ids)
    def abort(self, name: str) -> None:
        self.run(self.producer(name).abort())
        self.finish(name, aborted=True)

    @rule(place=places, part=st.floats(0, 1))
    def delete_records(self, place: TopicPartition, part: float) -> None:
        model = self.model[place]
        before = model.begin + int((model.end - model.begin) * part)
        self.run(self.log.delete_records({place: before}))
        model.begin = max(model.begin, before)

    @rule()
    def compact(self) -> None:
        self.run(self.log.compact())
        self.model[PLACES[1]].compact()

    @precondition(lambda self: self.durable)
    @rule()
    def close_and_open(self) -> None:
        self.run(self.log.close())
        for name in list(self.producers):
            self.finish(name, aborted=True)
        self.open_again()

    @precondition(lambda self: self.durable)
    @rule()
    def kill_and_open(self) -> None:
        abandon(self.log)
        self.open_again()

    def open_again(self) -> None:
        """Begin where the last log has ended; an open transaction of which all records were deleted is forgotten: there is nothing to be ended."""
        self.start()
        for model in self.model.values():
            for entry in model.entries:
                if entry.offset < model.begin:
                    entry.owner = None
        for name in IDS:
            self.open[name] = {place for place in self.open[name] if any(entry.owner == name for entry in self.model[place].entries)}

    @rule(place=places, isolation=st.sampled_from([COMMITTED, UNCOMMITTED]), part=st.floats(0, 1), most=st.integers(1, 9))
    def read_from_somewhere(self, place: TopicPartition, isolation: IsolationLevel, part: float, most: int) -> None:
        model = self.model[place]
        self.check(place, isolation, model.begin + int((model.end - model.begin) * part), most)

    @invariant()
    def everything_can_be_read(self) -> None:
        if not hasattr(self, "log"):
            return
        for place, model in self.model.items():
            assert self.run(self.log.begin_offsets([place])) == {place: model.begin}
            assert self.run(self.log.end_offsets([place], UNCOMMITTED)) == {place: model.end}
            for isolation in (COMMITTED, UNCOMMITTED):
                self.check(place, isolation, model.begin, 1000)
        member = self.run(
            self.log.join(
                "other", NewMember(client_id="c", topics=[], user_data=b"", assignor=lambda *_: {}, session_timeout_ms=1, rebalance_timeout_ms=1)
            )
        )
        self.run(member.leave())

    def check(self, place: TopicPartition, isolation: IsolationLevel, start: int, most: int) -> None:
        fetcher = self.log.fetcher(client_id="r", isolation=isolation)
        fetcher.assign({place: start})
        found: list[tuple[int, bytes | None, bytes | None]] = []
        while fetched := self.run(fetcher.fetch(max_wait_ms=0, max_records=most)):
            batch = fetched[0].batch
            assert len(batch) <= most
            found += zip(batch.offsets, batch.keys, batch.values, strict=True)
        model = self.model[place]
        limit = model.stable if isolation is COMMITTED else model.end
        assert found == [(entry.offset, entry.key, entry.value) for entry in model.visible(isolation) if entry.offset >= start]
        assert fetcher.position(place) == max(start, limit)
        self.run(fetcher.close())

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.run(self.log.close())
        self.runner.close()
        if self.directory is not None:
            shutil.rmtree(self.directory)


class DurableLogMachine(LogMachine):
    durable = True


@pytest.mark.parametrize(("machine", "runs"), [(LogMachine, 40), (DurableLogMachine, 12)], ids=["memory", "durable"])
def test_the_log_does_the_same_as_its_model(machine: type[LogMachine], runs: int) -> None:
    """With produced, committed, aborted, fenced, deleted, compacted, closed, killed and reopened logs, in any order."""
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples(runs), stateful_step_count=30, suppress_health_check=list(HealthCheck))
    )
