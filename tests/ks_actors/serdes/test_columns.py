"""Columns are converted as objects are, with the kernel and without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ks_actors.serdes import BYTES, LONG, STRING, Serde, _columns, json
from ks_actors.serdes._columns import for_column
from ks_actors.task import _output_buffer


@pytest.fixture(params=["kernel", "python"], autouse=True)
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test is passed by both ways."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(_columns, "HAS_KERNEL", False)
            patch.setattr(_columns, "_FORMS", [])
        yield


@pytest.mark.parametrize(
    ("serde", "objects"),
    [(STRING, ["a", None, "", "ä"]), (BYTES, [b"a", None, b""]), (LONG, [1, None, -(2**63)]), (json(dict[str, int]), [{"a": 1}, None])],
)
def test_a_column_is_converted_as_its_objects_are(serde: Serde[Any], objects: list[Any]) -> None:
    """There and back; None stays None."""
    encode, decode = serde.serializer("t"), serde.deserializer("t")
    encoded = [None if each is None else encode(each) for each in objects]
    assert for_column(encode)(objects) == encoded
    assert for_column(decode)(encoded) == objects


@pytest.mark.parametrize(("serde", "wrong"), [(STRING, 1), (BYTES, "text"), (LONG, "1"), (LONG, 2**63)])
def test_a_column_with_something_wrong_is_not_converted(serde: Serde[Any], wrong: object) -> None:
    """For any error: it is looked up for the value at fault."""
    with pytest.raises(Exception):  # noqa: B017 - as its docstring says
        for_column(serde.serializer("t"))([None, wrong])


@pytest.mark.parametrize("headers", [None, [(), (("h", b"1"),), (), ()]])
def test_columns_are_taken_apart_by_partition(headers: Any) -> None:
    """In order; there is nothing for partitions that get nothing."""
    parts = _output_buffer.scattered([2, 0, 2, 0], [b"a", b"b", b"c", None], [b"1", b"2", b"3", b"4"], [1, 2, 3, 4], headers)
    assert parts == [
        (0, ([b"b", None], [b"2", b"4"], [2, 4], None if headers is None else [headers[1], ()])),
        (2, ([b"a", b"c"], [b"1", b"3"], [1, 3], None if headers is None else [(), ()])),
    ]
