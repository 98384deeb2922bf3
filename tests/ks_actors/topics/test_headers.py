"""Serdes and partitioners that take headers, as programs send and read records with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import Batch, DeserializationFailed, Headers, Publisher, Record, Topic, TopicRecord
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records import TopicPartition
from ks_actors.serdes import CloudEvent, HeaderSerde, MutableHeaders, Serde, cloud_events
from tests.ks_actors.topics.helpers import publishing


class Marked(HeaderSerde[str]):
    """Texts of which each leaves its length, and the headers that it found, in a header."""

    def __init__(self, *, adds_headers: bool = True) -> None:
        self.adds_headers = adds_headers
        self.columns = 0

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[str], bytes]:
        del topic, is_key
        return str.encode

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], str]:
        del topic, is_key
        return bytes.decode

    def serializer_with_headers(self, topic: str, *, is_key: bool = False) -> Callable[[str, MutableHeaders], bytes]:
        name = f"{topic}-{'key' if is_key else 'value'}"

        def serialize(text: str, headers: MutableHeaders) -> bytes:
            if headers or self.adds_headers:
                headers.append((name, ",".join(each for each, _ in headers).encode()))
            return text.encode()

        return serialize

    def deserializer_with_headers(self, topic: str, *, is_key: bool = False) -> Callable[[bytes, MutableHeaders], str]:
        name = f"{topic}-{'key' if is_key else 'value'}"

        def deserialize(data: bytes, headers: MutableHeaders) -> str:
            marks = [content for each, content in headers if each == name]
            headers[:] = [each for each in headers if each[0] != name]
            if marks == [b"bad"]:
                raise ValueError("a bad mark")
            return data.decode()

        return deserialize


MARKED = Topic("texts", Marked(), Marked())
LEFT: list[Headers] = [
    (("texts-key", b""), ("texts-value", b"texts-key")),
    (("h", b"1"), ("texts-key", b"h"), ("texts-value", b"h,texts-key")),
]


async def in_log(log: EmbeddedLog) -> Batch:
    fetcher = log.fetcher(client_id="test")
    fetcher.assign({TopicPartition("texts", 0): 0})
    (fetched,) = await fetcher.fetch(max_wait_ms=0)
    await fetcher.close()
    return fetched.batch


async def read(publisher: Publisher, topic: Topic[Any, Any], **options: Any) -> list[TopicRecord[Any, Any]]:
    return [record async for record in publisher.records(topic, until="end", **options)]


@pytest.mark.parametrize("many", [False, True])
async def test_serializers_leave_headers_and_deserializers_take_them(many: bool) -> None:
    """The key's before the value's, in one list for each record; the log has all, a reader those that are left."""
    async with publishing() as (publisher, log):
        if many:
            records: list[Record[Any, Any]] = [Record("a", "b", 1), Record("c", "d", 2, (("h", b"1"),)), Record("e", None, 3)]
            await publisher.send_many(MARKED, records)
        else:
            await publisher.send(MARKED, "a", "b")
            await publisher.send(MARKED, "c", "d", headers=(("h", b"1"),))
            await publisher.send(MARKED, "e", None)
        assert (await in_log(log)).headers == [*LEFT, (("texts-key", b""),)]
        found = await read(publisher, MARKED)
        assert [(each.key, each.value, each.headers) for each in found] == [("a", "b", ()), ("c", "d", (("h", b"1"),)), ("e", None, ())]


async def test_serdes_that_only_change_headers_leave_records_without_any_alone() -> None:
    """As in a sink: these go in columns."""
    quiet = Topic("texts", Marked(adds_headers=False), str)
    async with publishing() as (publisher, log):
        await publisher.send_many(quiet, [("a", "b"), ("c", "d")])
        await publisher.send_many(quiet, [Record("a", "b", 1), Record("c", "d", 2, (("h", b"1"),))])
        assert (await in_log(log)).headers == [(), (), (), (("h", b"1"), ("texts-key", b"h"))]


async def test_a_record_whose_headers_are_wrong_is_bad_alone() -> None:
    """It is told by its offset, or left out with its headers."""
    plain = Topic("texts", str, str)
    async with publishing() as (publisher, _):
        await publisher.send(MARKED, "a", "b")
        await publisher.send(plain, "a", "c", headers=(("texts-value", b"bad"),))
        await publisher.send(MARKED, "a", "d", headers=(("h", b"1"),))
        with pytest.raises(DeserializationFailed, match=r"the value of a record does not fit .*: a bad mark") as raised:
            await read(publisher, MARKED)
        assert raised.value.offset == 1
        found = await read(publisher, MARKED, skip_bad=True)
        assert [(each.value, each.headers, each.offset) for each in found] == [("b", (), 0), ("d", (("h", b"1"),), 2)]


@pytest.mark.parametrize("serde", [str, Marked()])
async def test_a_partitioner_of_five_parameters_gets_the_headers(serde: Serde[str] | type[str]) -> None:
    """Those that the record has in the log (KIP-1321)."""
    seen: list[Headers] = []

    def choose(topic: str, key: str, value: str, headers: Headers, size: int) -> int:
        assert (topic, key, value, size) == ("orders", "k", "v", 4)
        seen.append(headers)
        return len(headers)

    topic = Topic("orders", serde, str, partitioner=choose)
    async with publishing() as (publisher, _):
        added = 0 if serde is str else 1
        assert (await publisher.send(topic, "k", "v")).partition == added
        assert (await publisher.send(topic, "k", "v", headers=(("h", b"1"),))).partition == 1 + added
        await publisher.send_many(topic, [Record("k", "v", 1, (("h", b"1"), ("i", None)))])
        marks = (("orders-key", b"h,i"),) if added else ()
        assert seen[2] == (("h", b"1"), ("i", None), *marks)


async def test_cloud_events_are_sent_and_read_in_binary_mode() -> None:
    """Their attributes are headers of the record."""
    events = Topic("texts", str, cloud_events(dict[str, int]))
    event = CloudEvent(data={"cents": 5}, id="1", source="/shop", type="placed")
    async with publishing() as (publisher, log):
        await publisher.send(events, "a", event, headers=(("h", b"1"),))
        assert (await in_log(log)).values == [b'{"cents":5}']
        (found,) = await read(publisher, events)
        assert (found.value, found.headers) == (event, (("h", b"1"),))
