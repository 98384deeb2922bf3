"""Record batches as they go to brokers, and the answers: the same bytes as aiokafka's."""

from __future__ import annotations

from io import BytesIO

import pytest
from aiokafka.protocol.produce import ProduceRequest_v8, ProduceResponse_v8  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import LogError
from ks_actors.log.kafka.wire._produce_request import ProduceRequest

VERSIONS = {0: (3, 13)}
NUMBERS = st.integers(0, 2**31 - 1)
LONGS = st.integers(-1, 2**63 - 1)
REQUESTS = st.lists(st.tuples(st.text(max_size=20), st.lists(st.tuples(NUMBERS, st.binary(max_size=50).map(bytearray)), max_size=4)), max_size=4)
WORDS = st.none() | st.text(max_size=20)
ANSWERS = st.tuples(NUMBERS, st.integers(-1, 100), LONGS, LONGS, LONGS, st.lists(st.tuples(NUMBERS, WORDS), max_size=2), WORDS)
RESPONSES = st.lists(st.tuples(st.text(max_size=20), st.lists(ANSWERS, max_size=4)), max_size=4)


@given(name=st.none() | st.text(max_size=20), topics=REQUESTS)
def test_a_request_equals_that_of_aiokafka(name: str | None, topics: list[tuple[str, list[tuple[int, bytearray]]]]) -> None:
    """The pieces, one after the other, are aiokafka's bytes, but for a request without a topic, which nobody sends."""
    prepared = ProduceRequest(name, -1, 30_000, topics).prepare(VERSIONS)
    wanted = ProduceRequest_v8(name, -1, 30_000, [(topic, [(number, bytes(batch)) for number, batch in numbers]) for topic, numbers in topics])
    if topics and topics[-1][1]:
        assert prepared.encode() == wanted.encode()


@given(topics=RESPONSES)
def test_a_response_is_read_as_aiokafka_reads_it(topics: list[tuple[str, list[tuple[object, ...]]]]) -> None:
    """Topics, partitions, codes and offsets are the same, and so are the refused records with their reasons."""
    wire = ProduceResponse_v8(topics, 5).encode()
    response = ProduceRequest(None, -1, 1, []).prepare(VERSIONS).RESPONSE_TYPE.decode(BytesIO(wire))
    assert response.topics == [(topic, list(answers)) for topic, answers in topics]
    assert response.throttle_time_ms == 5


def test_a_broker_that_is_too_old_is_told() -> None:
    """Its versions are named, and the Kafka that is needed."""
    with pytest.raises(LogError, match=r"needs ProduceRequest_v8, and the broker has only versions 0 to 7 of it"):
        ProduceRequest(None, -1, 1, []).prepare({0: (0, 7)})
