"""Texts that become keys and values, and back."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import Serde, serdes
from ks_actors.cli.dev._forms import Tracebacks, to_bytes, to_text
from ks_actors.serdes import MutableHeaders, reader
from tests.ks_actors.cli.dev.jobs import ORDER, Order

NUMBER = uuid.UUID(int=7)
MEANT: list[tuple[Serde[Any] | None, str, Any]] = [
    (None, "a", b"a"),
    (serdes.STRING, "a", "a"),
    (serdes.STRING, "17", "17"),
    (serdes.STRING, '{"a": 1}', '{"a": 1}'),
    (serdes.LONG, "17", 17),
    (serdes.LONG, "12345678", 12345678),
    (serdes.SHORT, "17", 17),
    (serdes.INTEGER, "1234", 1234),
    (serdes.DOUBLE, "17", 17.0),
    (serdes.DOUBLE, "12345.67", 12345.67),
    (serdes.FLOAT, "0.5", 0.5),
    (serdes.BOOLEAN, "true", True),
    (serdes.BYTES, "17", b"17"),
    (serdes.UUID, str(NUMBER), NUMBER),
    (serdes.json(), "word", "word"),
    (serdes.json(), '{"a": [1]}', {"a": [1]}),
    (serdes.json(int), "17", 17),
    (serdes.json(float), "17.5", 17.5),
    (ORDER, '{"amount": 1}', Order(1.0)),
    (serdes.msgpack(Order), '{"amount": 1}', Order(1.0)),
    (serdes.msgpack(), '{"a": 1}', {"a": 1}),
    (serdes.list_of(serdes.LONG), "[1, 2]", [1, 2]),
]


@pytest.mark.parametrize(("serde", "text", "meant"), MEANT, ids=lambda each: str(each)[:40])
@pytest.mark.parametrize("is_key", [True, False])
def test_a_text_means_an_object_of_the_serde(serde: Serde[Any] | None, text: str, meant: Any, is_key: bool) -> None:
    """Text, a number, or JSON: the bytes are those of the object."""
    written = to_bytes(text, serde, "in", [], is_key=is_key)
    assert written == (meant if serde is None else serde.serializer("in", is_key=is_key)(meant))


@pytest.mark.parametrize(
    ("serde", "text"),
    [(serdes.LONG, "many"), (serdes.LONG, "1.5"), (serdes.SHORT, "70000"), (ORDER, '{"amount": "much"}'), (ORDER, "null"), (serdes.UUID, "7")],
)
def test_a_text_of_another_type_is_refused(serde: Serde[Any], text: str) -> None:
    """With the serde, and its reason."""
    with pytest.raises(ValueError, match=r" does not write .*: \S"):
        to_bytes(text, serde, "in", [])


def failing(_: bytes, _headers: MutableHeaders) -> Any:
    raise LookupError


class Strange:
    """An object that JSON does not know."""

    def __str__(self) -> str:
        return "strange"


@pytest.mark.parametrize(
    ("data", "deserialize", "text"),
    [
        (None, None, "-"),
        (b"a\n\x1b[2J", None, "a\\n\\x1b[2J"),
        (b"\xff", None, "b'\\xff'"),
        (b"a", failing, "a"),
        (b'{"amount":1,"item":"t"}', reader(ORDER, "in"), '{"amount":1.0,"item":"t"}'),
        (b"", lambda *_: Strange(), '"strange"'),
        (b"", lambda *_: ["\ud800"], "['\\ud800']"),
    ],
)
def test_bytes_are_shown_in_one_line(data: bytes | None, deserialize: Callable[[bytes, MutableHeaders], Any] | None, text: str) -> None:
    """Control characters are escaped: a record gives no orders to a terminal."""
    assert to_text(data, deserialize, []).startswith(text)


def test_a_traceback_is_that_of_the_cause_and_comes_once() -> None:
    """Through the user's frames alone."""

    def fail() -> None:
        raise LookupError("gone")

    with pytest.raises(RuntimeError) as raised:
        try:
            fail()
        except LookupError as error:
            raise RuntimeError("around it") from error
    tracebacks = Tracebacks()
    told = tracebacks.of(raised.value)
    assert told.startswith(f'Traceback (most recent call last):\n  File "{__file__}"')
    assert told.endswith("LookupError: gone")
    assert tracebacks.of(raised.value) == ""
