"""The codec of a store that keeps headers (KIP-1271)."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, final

from ks_actors._errors import SerializationError
from ks_actors.records import NO_HEADERS, Batch, headers_end, pack_headers, unpack_headers
from ks_actors.state.core._codec import (
    NO_TIME,
    TIME_BYTES,
    Codec,
    pack_time,
    pack_times,
    unpack_time,
)
from ks_actors.state.core._entry import (
    EntryWithHeaders,
    entry_with,
    headers_of,
    headers_of_delete,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ks_actors.records import Headers
    from ks_actors.state.core._entry import Entry
    from ks_actors.topology import StoreSpec


@final
class CodecWithHeaders(Codec):
    """The serdes of a store that keeps headers.

    In memory the bytes of an entry are its timestamp, its headers and its value. On disk an entry
    has Kafka Streams' format: headers, timestamp and value (sessions: no timestamp). In the
    changelog, the entry's headers are the record's headers. `record_headers` returns the headers of
    the current record; a delete by a user is logged with these headers.
    """

    headed = True

    def __init__(
        self,
        spec: StoreSpec,
        topic: str,
        *,
        timestamped: bool,
        record_headers: Callable[[], Headers],
    ) -> None:
        super().__init__(spec, topic, timestamped=timestamped)
        self.record_headers = record_headers
        # The kernel writes rows and records without headers.
        self.value_form: int | None = None

    def raw(self, entry: Entry) -> bytes:
        """Return the bytes of an entry."""
        return pack_time(entry[1]) + pack_headers(headers_of(entry)) + self.value(entry[0])

    def entry(self, raw: bytes) -> Entry:
        """Return the entry of `raw`, a new object each time; raises SerializationError."""
        try:
            headers, end = unpack_headers(raw, TIME_BYTES)
            return entry_with(self.read_value(raw[end:]), unpack_time(raw)[0], headers)
        except Exception as error:
            raise SerializationError(
                f"store {self.name} has a value that its serde cannot read: {error!r}; has the "
                "serde been changed?"
            ) from error

    def value_bytes(self, raw: bytes) -> bytes:
        """Return the bytes of the value in the entry `raw`."""
        return raw[unpack_headers(raw, TIME_BYTES)[1] :]

    def column(self, values: list[Any]) -> list[bytes] | None:
        """Return the engine's values of many entries in one pass; None if that is impossible."""
        if self.mutable or set(map(type, values)) != {tuple}:
            return None
        try:
            data = self.values([value for value, _ in values])
            times = pack_times([time for _, time in values]) if self.timestamped else repeat(b"")
            return [NO_HEADERS + time + value for time, value in zip(times, data, strict=False)]
        except Exception:  # noqa: BLE001 - the row-by-row path raises it again and names the row
            return None

    def to_engine(self, raw: bytes) -> bytes:
        """Return the engine's bytes of the entry `raw`."""
        if not self.timestamped:
            return raw[TIME_BYTES:]
        end = headers_end(raw, TIME_BYTES)
        return raw[TIME_BYTES:end] + raw[:TIME_BYTES] + raw[end:]

    def from_engine(self, data: bytes) -> bytes:
        """Return the bytes of the entry that the engine stores as `data`."""
        if not self.timestamped:
            return NO_TIME + data
        try:
            end = headers_end(data)
        except ValueError as error:
            raise SerializationError(
                f"store {self.name} has a row with unreadable headers: {error}"
            ) from error
        return data[end : end + TIME_BYTES] + data[:end] + data[end + TIME_BYTES :]

    def restored(self, batch: Batch) -> Batch:
        """Return records of the changelog with the headers in front of their values."""
        headers: Any = repeat(()) if batch.headers is None else batch.headers
        values = [
            None if value is None else pack_headers(header) + value
            for value, header in zip(batch.values, headers, strict=False)
        ]
        return Batch(batch.keys, values, batch.timestamps, None, batch.offsets)

    def logged(
        self,
        keys: list[bytes],
        handles: Sequence[Any],
        values: Sequence[Any],
        deleted: Callable[[Any], int],
    ) -> Batch:
        """Return changes as a batch for the changelog.

        `values` are entries or their bytes; any other value is a delete. `deleted` returns the time
        of a handle's delete. Raises SerializationError.
        """
        contents: list[bytes | None] = []
        timestamps: list[int] = []
        headers: list[Headers] = []
        for handle, value in zip(handles, values, strict=True):
            if type(value) is bytes:
                header, end = unpack_headers(value, TIME_BYTES)
                contents.append(value[end:])
                timestamps.append(unpack_time(value)[0])
                headers.append(header)
            elif type(value) is tuple or type(value) is EntryWithHeaders:
                contents.append(self.content(handle, value[0]))
                timestamps.append(value[1])
                headers.append(headers_of(value))
            else:
                time = deleted(handle)
                contents.append(None)
                timestamps.append(int(time))
                headers.append(headers_of_delete(time))
        return Batch(keys, contents, timestamps, headers if any(headers) else None)


def checked_headers(headers: Any, store: str) -> Headers:
    """Return the headers of a put; raises SerializationError when a log cannot take them."""
    try:
        checked = tuple((name, value) for name, value in headers)
        pack_headers(checked)
    except Exception as error:
        raise SerializationError(
            f"store {store}: headers are pairs of a name and bytes or None, got {headers!r:.200}"
        ) from error
    return checked
