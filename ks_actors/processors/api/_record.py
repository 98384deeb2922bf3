"""Records as processors see them."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from ks_actors.records import Headers

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


class Record(msgspec.Struct, Generic[K, V], frozen=True):
    """A record: key, value, timestamp (ms since the epoch) and headers.

    It is immutable; the `with_…` methods return records that differ in one field.
    """

    key: K
    value: V
    timestamp: int
    headers: Headers = ()

    def with_key(self, key: K2) -> Record[K2, V]:
        """Return the record with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V2) -> Record[K, V2]:
        """Return the record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K, V]:
        """Return the record with another timestamp (ms)."""
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record[K, V]:
        """Return the record with other headers."""
        return Record(self.key, self.value, self.timestamp, headers)


class FixedKeyRecord(msgspec.Struct, Generic[K, V], frozen=True):
    """A record with a fixed key, which `process_values` gets and forwards.

    It has no `with_key`, so no repartition is necessary.
    """

    key: K
    value: V
    timestamp: int
    headers: Headers = ()

    def with_value(self, value: V2) -> FixedKeyRecord[K, V2]:
        """Return the record with another value."""
        return FixedKeyRecord(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord[K, V]:
        """Return the record with another timestamp (ms)."""
        return FixedKeyRecord(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> FixedKeyRecord[K, V]:
        """Return the record with other headers."""
        return FixedKeyRecord(self.key, self.value, self.timestamp, headers)
