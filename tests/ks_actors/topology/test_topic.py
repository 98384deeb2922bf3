"""A topic with its types."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from ks_actors import Topic, TopologyError, serdes


@dataclass
class Order:
    """A value of the tests."""

    number: int


@pytest.mark.parametrize(
    ("given", "serde"),
    [
        (str, serdes.STRING),
        (bytes, serdes.BYTES),
        (bool, serdes.BOOLEAN),
        (int, serdes.LONG),
        (float, serdes.DOUBLE),
        (uuid.UUID, serdes.UUID),
        (type(None), serdes.VOID),
        (serdes.INTEGER, serdes.INTEGER),
        (None, None),
    ],
)
def test_types_of_javas_serdes_stand_for_them(given: Any, serde: Any) -> None:
    """A type that Java has a serde for is that serde; a serde and None stay as they are."""
    topic = Topic("orders", given, given)
    assert topic.key is serde
    assert topic.value is serde
    assert str(topic) == topic.name == "orders"


@pytest.mark.parametrize(("type_", "value"), [(Order, Order(1)), (dict[str, int], {"a": 1}), (list[Order], [Order(1)])])
def test_other_types_are_json(type_: Any, value: Any) -> None:
    """A type that msgspec knows is written and read as JSON."""
    topic = Topic("orders", str, type_)
    assert topic.value is not None
    written = topic.value.serializer("orders")(value)
    assert written == serdes.json(type_).serializer("orders")(value)
    assert topic.value.deserializer("orders")(written) == value


@pytest.mark.parametrize("given", [object, 1, "str", serdes.json])
def test_what_has_no_serde_is_refused(given: Any) -> None:
    """A value that is neither a serde nor a type that has one is refused, by its place."""
    with pytest.raises(TopologyError, match=r"value of Topic 'orders' is .* give a type"):
        Topic("orders", str, given)


def test_a_topic_checks_its_other_arguments() -> None:
    """The name, the extractor, the reset and the partitioner are checked at once."""
    wrong: list[dict[str, Any]] = [
        {"name": "a b"},
        {"timestamp_extractor": len},
        {"offset_reset": "begin"},
        {"partitioner": lambda key: 0},
    ]
    for arguments in wrong:
        with pytest.raises(TopologyError):
            Topic(**{"name": "orders", **arguments})
