"""The serde of Arrow's record batches. Needs the extra `arrow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors._errors import SerializationError
from ks_actors.serdes._serde import FunctionSerde

if TYPE_CHECKING:
    from ks_actors.serdes._serde import Serde


def arrow(schema: Any = None) -> Serde[Any]:
    """Return the serde of `pyarrow.Table`s, as streams of Arrow's IPC format.

    Tables and record batches are written; tables are read. With a `schema`, tables with another
    schema are bad data. Raises ModuleNotFoundError without the extra `arrow`.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - a large library, which few need
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "serdes.arrow needs pyarrow: pip install 'ks-actors[arrow]'", name=missing.name
        ) from missing

    def check(found: Any) -> None:
        if schema is not None and not found.equals(schema):
            raise SerializationError(f"the table has the schema {found}, and not {schema}")

    def serialize(table: Any) -> bytes:
        if not isinstance(table, pa.Table | pa.RecordBatch):
            raise SerializationError(f"arrow writes tables, got {table!r:.200}")
        check(table.schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write(table)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    def deserialize(data: bytes) -> Any:
        with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
            check(stream.schema)
            return stream.read_all()

    return FunctionSerde(
        serialize,
        deserialize,
        faithful=False,
        immutable=True,  # Arrow's data do not change
        name=f"arrow({'' if schema is None else ', '.join(map(str, schema))})",
    )
