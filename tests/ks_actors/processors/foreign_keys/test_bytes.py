"""The bytes of joins by a foreign key, compared with those that Kafka Streams' own classes have made (ForeignKeys.java)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import Consumed, Produced, StreamsBuilder, TableJoined
from ks_actors._errors import SerializationError
from ks_actors.processors.foreign_keys import Instruction, Subscription, SubscriptionResponse, SubscriptionResponseSerde, SubscriptionSerde
from ks_actors.processors.foreign_keys._combined_key import combined_key, prefix_bytes
from ks_actors.records import murmur3_128
from ks_actors.serdes import BYTES, LONG, STRING, Serde
from ks_actors.testing import TopologyTestDriver


def lines(kind: str) -> Iterator[list[str]]:
    for line in (Path(__file__).parent / "foreign_keys.txt").read_text().splitlines():
        name, *fields = line.split(" ")
        if name == kind:
            yield fields


def data(text: str) -> bytes:
    return b"" if text == "-" else bytes.fromhex(text)


def optional(text: str) -> bytes | None:
    return None if text == "null" else data(text)


def test_a_hash_is_that_of_kafka_streams() -> None:
    """Of each length up to four blocks and a rest."""
    found = [(murmur3_128(data(value)).hex(), expected) for value, expected in lines("hash")]
    assert len(found) == 67
    for ours, theirs in found:
        assert ours == theirs


def test_a_subscription_is_written_and_read_as_by_kafka_streams() -> None:
    """With and without hash, of both versions, with each instruction; of one that was read the key's bytes are known."""
    serde = SubscriptionSerde(STRING)
    write, read = serde.serializer("topic"), serde.deserializer("topic")
    found = list(lines("subscription"))
    assert len(found) == 4 * 3 * 4 * 2
    for value_hash, instruction, key, partition, written in found:
        subscription = Subscription(
            optional(value_hash), Instruction[instruction], data(key).decode(), None if partition == "null" else int(partition)
        )
        assert write(subscription).hex() == written
        again = read(data(written))
        assert again == subscription._replace(data=data(written))
        assert again.key_data == data(key)


def test_a_response_is_written_and_read_as_by_kafka_streams() -> None:
    """An empty right value is read as none, as there."""
    serde = SubscriptionResponseSerde(STRING)
    write, read = serde.serializer("topic"), serde.deserializer("topic")
    found = list(lines("response"))
    assert len(found) == 8
    for value_hash, value, written in found:
        text = optional(value)
        response = SubscriptionResponse(optional(value_hash), None if text is None else text.decode(), 3)
        assert write(response).hex() == written
        assert read(data(written)) == response._replace(foreign_value=response.foreign_value or None, primary_partition=None)


def test_a_key_in_the_store_is_that_of_kafka_streams() -> None:
    """It begins with the prefix of all keys of its foreign key."""
    foreign, primary = STRING.serializer("topic-fk"), LONG.serializer("topic-pk")
    found = list(lines("key"))
    assert len(found) == 9
    for foreign_key, primary_key, key, prefix in found:
        written = foreign(data(foreign_key).decode())
        assert combined_key(written, primary(int(primary_key))).hex() == key
        assert prefix_bytes(written).hex() == prefix


@given(one=st.tuples(st.binary(), st.binary()), other=st.tuples(st.binary(), st.binary()))
def test_keys_of_a_prefix_have_its_foreign_key(one: tuple[bytes, bytes], other: tuple[bytes, bytes]) -> None:
    """The length before the foreign key keeps the keys of a longer one out, whatever follows."""
    assert combined_key(*one).startswith(prefix_bytes(other[0])) is (one[0] == other[0])
    assert (combined_key(*one) == combined_key(*other)) is (one == other)


@given(st.binary())
def test_bytes_are_read_or_refused(any_bytes: bytes) -> None:
    """Any bytes from the topics give no other error than that of a serde; what is read is written again as it was."""
    for serde in (SubscriptionSerde(BYTES), SubscriptionResponseSerde(BYTES)):
        try:
            found = serde.deserializer("topic")(any_bytes)
        except SerializationError:
            continue
        assert serde.serializer("topic")(found) == any_bytes  # type: ignore[arg-type] # of the serde's own type


@pytest.mark.parametrize(
    ("serde", "written", "told"),
    [
        (SubscriptionSerde(STRING), b"", "0 bytes is too short"),
        (SubscriptionSerde(STRING), b"\x82\x02key", "has version 2, and 0 and 1 can be read: a newer app writes to this topic"),
        (SubscriptionSerde(STRING), b"\x81\x04\0\0\0\0", "the second byte of a subscription is its instruction, 0 to 3"),
        (SubscriptionSerde(STRING), b"\x81\x02\0\0\0", "a subscription of 5 bytes is too short"),
        (SubscriptionResponseSerde(STRING), b"", "has at least 17 bytes"),
        (SubscriptionResponseSerde(STRING), b"\x81", "has version 1, and only 0 can be read"),
    ],
)
def test_an_error_says_why_bytes_cannot_be_read(serde: SubscriptionSerde | SubscriptionResponseSerde, written: bytes, told: str) -> None:
    """Versions of newer apps, unknown instructions, and what is cut off."""
    with pytest.raises(SerializationError, match=told):
        serde.deserializer("topic")(written)


class Telling(Serde[str]):
    """A serde of text that notes the topics that it is asked for."""

    def __init__(self) -> None:
        self.topics: set[tuple[str, bool]] = set()

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[str], bytes]:
        self.topics.add((topic, is_key))
        return str.encode

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], str]:
        self.topics.add((topic, is_key))
        return bytes.decode


def test_serdes_are_asked_for_the_topics_of_kafka_streams() -> None:
    """A schema registry keeps a schema for each: foreign keys, primary keys and values for the hash have topics that do not exist."""
    left_key, left_value, right_key, right_value = (Telling() for _ in range(4))
    builder = StreamsBuilder()
    left, right = builder.table("left", Consumed(left_key, left_value)), builder.table("right", Consumed(right_key, right_value))
    rows = left.join(right, lambda one, _: one, foreign_key=lambda value: value, joined=TableJoined("j"))
    rows.to_stream().to("out", Produced(STRING, STRING))
    with TopologyTestDriver(builder.build(), config={"application_id": "app"}) as driver:
        driver.create_input_topic("left", STRING, STRING).pipe_input("k", "v")
    subscriptions, responses = "app-j-subscription-registration-topic", "app-j-subscription-response-topic"

    def joins(serde: Telling) -> set[tuple[str, bool]]:
        return {(topic, is_key) for topic, is_key in serde.topics if "subscription" in topic}

    assert joins(left_key) == {(f"{subscriptions}-pk", True), (responses, True)}
    assert joins(left_value) == {(f"{subscriptions}-vh", False)}
    assert joins(right_key) == {(subscriptions, True), (f"{subscriptions}-fk", True)}
    assert joins(right_value) == {(responses, False)}
