"""The measured applications."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from benchmarks._runtime_load import IN, OUT
from ks_actors import serdes
from ks_actors.dsl import Consumed, Produced, StreamsBuilder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ks_actors.serdes import Serde
    from ks_actors.topology import Topology


class Payment(msgspec.Struct, frozen=True):
    """The parsed input; the other JSON fields are ignored."""

    id: int
    user: str
    flag: int
    cents: int


class Flagged(msgspec.Struct, frozen=True):
    """The output."""

    id: int
    user: str
    cents: int


def flagged(payment: Payment) -> Flagged:
    """Select the output fields."""
    return Flagged(payment.id, payment.user, payment.cents)


def map_topology(note: Callable[[], None] | None = None) -> Topology:
    """Parse JSON, keep `flag == 1`, write new JSON; call `note` for each kept record."""

    def mapper(payment: Payment) -> Flagged:
        if note is not None:
            note()
        return flagged(payment)

    builder = StreamsBuilder()
    payments = builder.stream(IN, Consumed(serdes.STRING, serdes.json(Payment)))
    kept = payments.filter(lambda _, payment: payment.flag == 1)
    kept.map_values(flagged if note is None else mapper).to(OUT, Produced(serdes.STRING, serdes.json(Flagged)))
    return builder.build()


def count_topology() -> Topology:
    """Count per key, in a store with a changelog, and write each new count."""
    builder = StreamsBuilder()
    payments = builder.stream(IN, Consumed(serdes.STRING, serdes.BYTES))
    count = cast("Serde[int | None]", serdes.LONG)  # a table's values may be gone
    payments.group_by_key().count().to_stream().to(OUT, Produced(serdes.STRING, count))
    return builder.build()


def async_topology(call: Callable[[str, bytes], Awaitable[bytes]], max_in_flight: int) -> Topology:
    """Call a service for each record, one call per key at a time."""
    builder = StreamsBuilder()
    payments = builder.stream(IN, Consumed(serdes.STRING, serdes.BYTES))
    asked = payments.map_values(call, max_in_flight=max_in_flight, order="key")
    asked.to(OUT, Produced(serdes.STRING, serdes.BYTES))
    return builder.build()
