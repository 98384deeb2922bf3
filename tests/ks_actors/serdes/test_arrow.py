"""Arrow's tables as values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ks_actors import SerializationError, serdes

TABLE = pa.table({"name": ["pen", "ink"], "cents": [120, None]})


def test_tables_come_back() -> None:
    """A record batch is read as a table; any reader of Arrow's streams reads the bytes."""
    serde = serdes.arrow(TABLE.schema)
    write, read = serde.serializer("t"), serde.deserializer("t")
    assert read(write(TABLE)).equals(TABLE)
    assert read(write(TABLE.to_batches()[0])).equals(TABLE)
    assert pa.ipc.open_stream(write(TABLE)).read_all().equals(TABLE)


def test_tables_of_another_schema_are_bad_data() -> None:
    """Without a schema any table is read; objects of other kinds are not written."""
    other = pa.table({"name": ["pen"]})
    strict, free = serdes.arrow(TABLE.schema), serdes.arrow()
    data = free.serializer("t")(other)
    assert free.deserializer("t")(data).equals(other)
    for refused in (lambda: strict.serializer("t")(other), lambda: strict.deserializer("t")(data), lambda: free.serializer("t")({"a": 1})):
        with pytest.raises(SerializationError):
            refused()
