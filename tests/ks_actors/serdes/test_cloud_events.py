"""CloudEvents in their binding to Kafka."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

from ks_actors import SerializationError, TopologyError, serdes
from ks_actors.serdes import CloudEvent, MutableHeaders, cloud_events, reader, writer

EVENT: CloudEvent[Any] = CloudEvent(
    data={"cents": 120},
    id="1",
    source="/shop",
    type="order.placed",
    subject="ö",
    time=dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    dataschema="https://schemas/order",
    extensions={"traceparent": "00-1"},
)
BARE: CloudEvent[Any] = CloudEvent(id="1", source="/shop", type="ping")


@pytest.mark.parametrize("event", [EVENT, BARE])
@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize("content_type", ["application/json", "application/avro"])
def test_events_come_back_in_both_modes(event: CloudEvent[Any], mode: Any, content_type: str) -> None:
    """Each mode reads the other, too; other headers stay, and those of a former event go."""
    serde, plain = cloud_events(serdes.json(dict[str, int]), mode=mode, content_type=content_type), cloud_events(serdes.json(dict[str, int]))
    headers: MutableHeaders = [("a", b"b"), ("ce_id", b"old"), ("Content-Type", b"old")]
    data = writer(serde, "t")(event, headers)
    assert [name for name, _ in headers].count("ce_id") == (mode == "binary")
    assert reader(plain, "t")(data, headers) == event
    assert headers == [("a", b"b")]
    assert serde.deserializer("t")(serde.serializer("t")(event)) == event


def test_a_binary_event_is_written_as_the_binding_says() -> None:
    """The value is the data; attributes are headers with the prefix `ce_`, and the type of the content is one without."""
    headers: MutableHeaders = []
    assert writer(cloud_events(serdes.json(dict[str, int])), "t")(EVENT, headers) == b'{"cents":120}'
    assert headers == [
        ("content-type", b"application/json"),
        ("ce_specversion", b"1.0"),
        ("ce_id", b"1"),
        ("ce_source", b"/shop"),
        ("ce_type", b"order.placed"),
        ("ce_subject", "ö".encode()),
        ("ce_dataschema", b"https://schemas/order"),
        ("ce_time", b"2026-01-02T03:04:05Z"),
        ("ce_traceparent", b"00-1"),
    ]


def test_a_structured_event_is_written_as_the_binding_says() -> None:
    """The value is one JSON object; data that are no JSON are in base64."""
    headers: MutableHeaders = []
    found = msgspec.json.decode(writer(cloud_events(serdes.json(), mode="structured"), "t")(EVENT, headers))
    assert headers == [("content-type", b"application/cloudevents+json; charset=UTF-8")]
    assert (found["data"], found["specversion"], found["time"]) == ({"cents": 120}, "1.0", "2026-01-02T03:04:05Z")
    coded = writer(cloud_events(serdes.BYTES, mode="structured", content_type="image/png"), "t")(msgspec.structs.replace(EVENT, data=b"\0"), [])
    assert msgspec.json.decode(coded)["data_base64"] == "AA=="


@pytest.mark.parametrize(
    ("data", "headers", "told"),
    [
        (b"{}", [("ce_specversion", b"1.0"), ("ce_id", b"1")], "no attribute source, type"),
        (b"{}", [("ce_specversion", b"0.3"), ("ce_id", b"1"), ("ce_source", b"s"), ("ce_type", b"t")], "specversion '0.3', not 1.0"),
        (b"{}", [], "no attribute specversion, id, source, type"),
    ],
)
def test_records_that_are_no_events_are_bad_data(data: bytes, headers: MutableHeaders, told: str) -> None:
    """The error names the attributes."""
    with pytest.raises(SerializationError, match=told):
        reader(cloud_events(serdes.json()), "t")(data, headers)


def test_wrong_uses_are_refused() -> None:
    """Other modes, keys, and data without a serde."""
    with pytest.raises(TopologyError, match="use binary or structured"):
        cloud_events(serdes.json(), mode="batch")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="a serde of values"):
        cloud_events(serdes.json()).serializer("t", is_key=True)
    with pytest.raises(TopologyError, match="of cloud_events"):
        cloud_events(object)
