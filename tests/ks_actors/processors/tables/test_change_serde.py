"""Changes on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors._errors import SerializationError
from ks_actors.processors.tables._change_serde import ChangeSerde
from ks_actors.serdes import LONG, STRING

SERDE = ChangeSerde(STRING)
write = SERDE.serializer("t")
read = SERDE.deserializer("t")


@given(st.text(max_size=400), st.text(max_size=400))
def test_a_change_comes_back_as_it_went(new: str, old: str) -> None:
    """A change may have both values or one of them."""
    for change in ((new, old), (new, None), (None, old)):
        assert read(write(change)) == change


@pytest.mark.parametrize(
    ("change", "data"),
    [
        (("new", None), b"new\x01"),
        ((None, "old"), b"old\x00"),
        (("new", "old"), b"\x06newold\x02"),
        (("", ""), b"\x00\x02"),
        (("n" * 100, "o"), b"\xc8\x01" + b"n" * 100 + b"o\x02"),
    ],
)
def test_a_change_is_written_as_kafka_streams_writes_it(change: tuple[str | None, str | None], data: bytes) -> None:
    """ChangedSerializer of Kafka Streams 3.5 and later, byte for byte: zigzag varint of the new value's length, last byte the form."""
    assert write(change) == data
    assert read(data) == change


def test_changes_of_versioned_tables_can_be_read() -> None:
    """Flags 3 to 5 have a byte that tells whether the change is the latest."""
    assert read(b"old\x01\x03") == (None, "old")
    assert read(b"new\x00\x04") == ("new", None)
    assert read(b"\x06newold\x01\x05") == ("new", "old")


@pytest.mark.parametrize("data", [b"", b"x\x06", b"\x7f\x02", b"\xff\xff\xff\xff\xff\xff\x02", b"\x06ne\x02", b"\xff\x82"[:1] + b"\x02"])
def test_bytes_that_are_no_change_are_refused(data: bytes) -> None:
    """With an error that shows the bytes."""
    with pytest.raises(SerializationError):
        read(data)


def test_a_change_from_nothing_to_nothing_cannot_be_written() -> None:
    """It is none, and the group it belongs to is not known to anybody."""
    with pytest.raises(SerializationError, match="an old or a new value"):
        write((None, None))


def test_the_serde_of_the_values_may_be_the_apps_default() -> None:
    """It is filled in when the app knows it; until then the serde's error names the missing part."""
    unknown = ChangeSerde(None)
    with pytest.raises(SerializationError, match="Grouped"):
        unknown.serializer("t")
    with pytest.raises(SerializationError, match="Grouped"):
        unknown.deserializer("t")
    assert unknown.or_default(LONG).serializer("t")((7, None)) == b"\0\0\0\0\0\0\0\7\1"
    assert SERDE.or_default(LONG) is SERDE
    assert SERDE.immutable
    assert not unknown.immutable
    assert "String" in repr(SERDE) or "str" in repr(SERDE).lower()
