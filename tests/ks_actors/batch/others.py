"""Features that no topology of the oracle has, in one: topics by pattern and by function, partitioners, async functions, batches, a global store."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from ks_actors import Consumed, Grouped, InputRecord, Materialized, Processor, Produced, Record, StreamsBuilder, Topology, serdes
from ks_actors.dsl import Repartitioned
from ks_actors.topology import RecordContext, stores
from tests.ks_actors.batch.histories import Input

TEXT = Consumed(serdes.STRING, serdes.STRING)
WRITTEN = Produced(serdes.STRING, serdes.STRING)
SETTINGS: dict[str, Any] = {
    "application_id": "others",
    "default_key_serde": serdes.STRING,
    "default_value_serde": serdes.STRING,
    "commit_interval_ms": 1_000_000,
}
OUTPUTS: tuple[str, ...] = ("out-short", "out-long", "out-batched", "out-named", "out-told", "out-count")


def _record(number: int) -> Input:
    return (f"in-{number % 2}", f"k{number % 5}".encode(), f"{'long' * (number % 3)} {number % 7}".encode(), 10 * number)


RECORDS: list[Input] = [("names", f"k{number}".encode(), f"name {number}".encode(), number) for number in range(4)]
RECORDS += [_record(number) for number in range(1, 60)]


class Keep(Processor[str, str, None, None]):
    """Fill the store that every instance has as a whole."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.names: Any = context.get_state_store("names")

    def process(self, record: Record[str, str]) -> None:
        self.names.put(record.key, record.value)


class Name(Processor[str, str, str, str]):
    """Ask that store, and say in a header which number the record has in its task; asks somebody else meanwhile."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.names: Any = context.get_state_store("names")
        self.numbers: Any = context.get_state_store("numbers")

    async def process(self, record: Record[str, str]) -> None:
        await asyncio.sleep(0)
        number = str(int(self.numbers.get(record.key) or "0") + 1)
        self.numbers.put(record.key, number)
        headers = (("number", number.encode()),)
        self.context.forward(record.with_value(f"{self.names.get(record.key)}: {record.value}").with_headers(headers))


def written_by(record: InputRecord, _: int) -> int:
    """Take a time that is not the record's own."""
    return record.timestamp + 3


def by_length(_: str, value: str, __: RecordContext) -> str:
    return "out-long" if len(value) > 6 else "out-short"


def by_last_digit(_: str, __: Any, value: str, partitions: int) -> int:
    return int(value[-1]) % partitions


async def loud(value: str) -> str:
    await asyncio.sleep(0)
    return value.upper()


async def by_value(_: str, value: str) -> str:
    await asyncio.sleep(0)
    return value[-1]


def numbered(records: list[Record[str, str]]) -> list[Record[str, str]]:
    """Take a batch."""
    return [record.with_value(f"{record.value}!") for record in records if not record.value.endswith("3")]


def build(told: list[str] | None = None) -> Topology:
    """Return the topology; its reports go into a list."""
    seen = [] if told is None else told
    builder = StreamsBuilder()
    builder.add_global_store(stores.key_value("names", serdes.STRING, serdes.STRING, type="in_memory"), "names", Keep, TEXT)
    builder.add_state_store(stores.key_value("numbers", serdes.STRING, serdes.STRING, type="in_memory"))
    stream = builder.stream(re.compile(r"in-\d"), Consumed(serdes.STRING, serdes.STRING, timestamp_extractor=written_by))
    stream.map_values(loud, order="partition").to(by_length, Produced(serdes.STRING, serdes.STRING, partitioner=by_last_digit))
    stream.batch(numbered).to("out-batched", WRITTEN)
    stream.process(Name, "numbers", max_in_flight=1).to("out-named", WRITTEN)
    stream.foreach(lambda _, value: seen.append(value))
    behind = stream.select_key(by_value, order="partition").repartition(
        Repartitioned(serdes.STRING, serdes.STRING, name="by-value", partitions=3, partitioner=by_last_digit)
    )
    behind.peek(lambda _, value: seen.append(value)).to("out-told", WRITTEN)
    counted = behind.group_by_key(Grouped(serdes.STRING, serdes.STRING)).count(Materialized("counts", serdes.STRING, serdes.LONG))
    counted.to_stream().map_values(str).to("out-count", WRITTEN)
    return builder.build()
