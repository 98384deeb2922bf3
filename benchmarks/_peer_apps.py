"""The applications of the benchmark on Kafka, as a user would write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from ks_actors import serdes
from ks_actors.dsl import (
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    Produced,
    Repartitioned,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ks_actors.serdes import Serde
    from ks_actors.topology import Topology

WINDOW_MS = 10_000
RAW = Consumed(serdes.STRING, serdes.BYTES)
TEXT = Consumed(serdes.STRING, serdes.STRING)
COUNT = cast("Serde[int | None]", serdes.LONG)  # a table's values may be gone
COUNTED = Produced(serdes.STRING, COUNT)
# Words repeat soon, so a cache saves updates; other keys hardly repeat before a flush.
HELD = Materialized("counts", serdes.STRING, serdes.LONG, caching=True)
COUNTS = Materialized("counts", serdes.STRING, serdes.LONG, caching=False)


class Payment(msgspec.Struct, frozen=True):
    """The parsed input; the other JSON fields are ignored."""

    id: int
    user: str
    amount: int
    flag: int


class Flagged(msgspec.Struct, frozen=True):
    """The output."""

    id: int
    user: str
    cents: int


class Tally:
    """Counters of the input and the output of a repartitioning topology.

    The repartitioned records come back and are processed, too.
    """

    def __init__(self) -> None:
        self.lines: int = 0
        self.words: int = 0


def topology(app: str, inputs: Sequence[str], output: str, tally: Tally) -> Topology:
    """Return the topology of that name. Raises SystemExit if there is none."""
    make = _APPS.get(app)
    if make is None:
        raise SystemExit(f"--app {app}: there are {', '.join(_APPS)}")
    builder = StreamsBuilder()
    make(builder, inputs, output, tally)
    return builder.build()


def _map(builder: StreamsBuilder, inputs: Sequence[str], output: str, _: Tally) -> None:
    payments = builder.stream(inputs[0], Consumed(serdes.STRING, serdes.json(Payment)))
    kept = payments.filter(lambda _, payment: payment.flag == 1)
    kept.map_values(_flagged).to(output, Produced(serdes.STRING, serdes.json(Flagged)))


def _flagged(payment: Payment) -> Flagged:
    return Flagged(payment.id, payment.user, payment.amount * 100)


def _count(builder: StreamsBuilder, inputs: Sequence[str], output: str, _: Tally) -> None:
    builder.stream(inputs[0], RAW).group_by_key().count(COUNTS).to_stream().to(output, COUNTED)


def _wordcount(builder: StreamsBuilder, inputs: Sequence[str], output: str, tally: Tally) -> None:
    def words(_: str, line: str) -> list[tuple[str, str]]:
        found = line.split(" ")
        tally.lines += 1
        tally.words += len(found)
        return [(word, word) for word in found]

    # group_by would insert the same repartition; spelled out, both sides are alike.
    single = builder.stream(inputs[0], TEXT).flat_map(words).repartition(Repartitioned(serdes.STRING, serdes.STRING, name="words"))
    single.group_by_key(Grouped(serdes.STRING, serdes.STRING)).count(HELD).to_stream().to(output, COUNTED)


def _window(builder: StreamsBuilder, inputs: Sequence[str], output: str, _: Tally) -> None:
    windows = TimeWindows.of_size_and_grace(WINDOW_MS, WINDOW_MS)
    counts = builder.stream(inputs[0], RAW).group_by_key().windowed_by(windows).count(COUNTS)
    counts.to_stream(lambda key, _: f"{key.key}@{key.window.start}").to(output, COUNTED)


def _join(builder: StreamsBuilder, inputs: Sequence[str], output: str, _: Tally) -> None:
    left, right = (builder.stream(topic, RAW) for topic in inputs)
    windows = JoinWindows.of_time_difference_and_grace(WINDOW_MS, WINDOW_MS)
    joined = left.join(right, _glue, windows, StreamJoined(serdes.STRING, serdes.BYTES, serdes.BYTES, store_name="join"))
    joined.to(output, Produced(serdes.STRING, serdes.BYTES))


def _table_join(builder: StreamsBuilder, inputs: Sequence[str], output: str, _: Tally) -> None:
    table = builder.stream(inputs[1], RAW).to_table(Materialized("table", serdes.STRING, serdes.BYTES))
    stream = builder.stream(inputs[0], RAW)
    stream.join(table, _glue, Joined(serdes.STRING, serdes.BYTES, serdes.BYTES)).to(output, Produced(serdes.STRING, serdes.BYTES))


def _glue(left: bytes, right: bytes) -> bytes:
    return b"%b|%b" % (left, right)


_APPS: dict[str, Callable[[StreamsBuilder, Sequence[str], str, Tally], None]] = {
    "map": _map,
    "count": _count,
    "wordcount": _wordcount,
    "window": _window,
    "join": _join,
    "tablejoin": _table_join,
}
