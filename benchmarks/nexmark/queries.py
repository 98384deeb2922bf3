"""Nexmark's queries, as a user would write them; Nexmark.java has the same ones in Java.

Keys are text: the id of the person, the auction, or the bid's auction. Results are text, too, so that those of both sides can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import msgspec

from ks_actors import WallclockTimestampExtractor, serdes
from ks_actors.dsl import (
    BufferConfig,
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    Produced,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl import Stream, Table
    from ks_actors.serdes import Serde
    from ks_actors.topology import Topology

K = TypeVar("K")
V = TypeVar("V")
WINDOW_MS: Final = 10_000
HOP_MS: Final = 2_000
# A repartition topic has the records of several tasks, one's way behind another's.
GRACE_MS: Final = 3_600_000
LAST: Final = 10
CATEGORY: Final = 10
STATES: Final = frozenset({"or", "id", "ca"})


class Bid(msgspec.Struct, frozen=True):
    auction: int
    bidder: int
    price: int
    date_time: int


class Auction(msgspec.Struct, frozen=True):
    id: int
    seller: int
    category: int
    date_time: int
    expires: int


class Person(msgspec.Struct, frozen=True):
    id: int
    name: str
    city: str
    state: str
    date_time: int


class Winning(msgspec.Struct, frozen=True):
    """The best bid of an auction so far."""

    auction: int
    seller: int
    category: int
    expires: int
    price: int
    bidder: int
    date_time: int


class Total(msgspec.Struct, frozen=True):
    sum: int = 0
    count: int = 0


class Hot(msgspec.Struct, frozen=True):
    auction: int
    count: int


class Sources(NamedTuple):
    builder: StreamsBuilder
    bids: str
    auctions: str
    persons: str


KEY: Final = serdes.STRING
TEXT: Final = Produced(serdes.STRING, serdes.STRING)
COUNT: Final = cast("Serde[Any]", serdes.LONG)
BID, AUCTION, PERSON = serdes.json(Bid), serdes.json(Auction), serdes.json(Person)
WINNING, TOTAL, HOT = serdes.json(Winning), serdes.json(Total), serdes.json(Hot)
SALES: Final = serdes.json(dict[str, tuple[int, int]])


def topology(query: str, bids: str, auctions: str, persons: str, output: str) -> Topology:
    """Return the topology of a query."""
    builder = StreamsBuilder()
    QUERIES[query](Sources(builder, bids, auctions, persons)).to(output, TEXT)
    return builder.build()


def _rows(table: Table[K, V]) -> Stream[K, V]:
    """Return the changes of a table that deletes no row."""
    return cast("Stream[K, V]", table.to_stream())


def _bids(sources: Sources) -> Stream[str, Bid]:
    return sources.builder.stream(sources.bids, Consumed(KEY, BID))


def _better(one: Winning, other: Winning) -> Winning:
    return other if (other.price, -other.date_time) > (one.price, -one.date_time) else one


def _winning(sources: Sources) -> Table[str, Winning]:
    auctions = sources.builder.table(sources.auctions, Consumed(KEY, AUCTION), Materialized("auctions", KEY, AUCTION))

    def valid(bid: Bid, auction: Auction) -> Winning | None:
        if not auction.date_time <= bid.date_time <= auction.expires:
            return None
        return Winning(auction.id, auction.seller, auction.category, auction.expires, bid.price, bid.bidder, bid.date_time)

    joined = _bids(sources).join(auctions, valid, Joined(KEY, BID, AUCTION)).filter(lambda _, best: best is not None)
    return cast("Stream[str, Winning]", joined).group_by_key(Grouped(KEY, WINNING)).reduce(_better, Materialized("winning", KEY, WINNING))


def q0(sources: Sources) -> Stream[str, str]:
    """Pass bids through."""
    return _bids(sources).map_values(lambda bid: f"{bid.auction},{bid.bidder},{bid.price},{bid.date_time}")


def q1(sources: Sources) -> Stream[str, str]:
    """Convert prices from dollars to euros."""
    return _bids(sources).map_values(lambda bid: f"{bid.auction},{bid.bidder},{bid.price * 908 // 1000},{bid.date_time}")


def q2(sources: Sources) -> Stream[str, str]:
    """Keep the bids for certain auctions."""
    return _bids(sources).filter(lambda _, bid: bid.auction % 123 == 0).map_values(lambda bid: f"{bid.auction},{bid.price}")


def q3(sources: Sources) -> Stream[str, str]:
    """Name the sellers of a category who live in certain states."""
    local = sources.builder.table(sources.persons, Consumed(KEY, PERSON), Materialized("persons", KEY, PERSON))
    local = local.filter(lambda _, person: person.state in STATES)
    auctions = sources.builder.table(sources.auctions, Consumed(KEY, AUCTION), Materialized("auctions", KEY, AUCTION))
    of_category = auctions.filter(lambda _, auction: auction.category == CATEGORY)
    told: Materialized[str, str] = Materialized("told", KEY, serdes.STRING)
    joined = of_category.join(local, _told, told, foreign_key=lambda auction: str(auction.seller))
    return _rows(joined)


def _told(auction: Auction, seller: Person) -> str:
    return f"{seller.name},{seller.city},{seller.state},{auction.id}"


def q4(sources: Sources) -> Stream[str, str]:
    """Tell the average of the winning prices of each category."""
    grouped = _winning(sources).group_by(lambda _, best: (str(best.category), best), Grouped(KEY, WINNING))
    totals = grouped.aggregate(
        Total,
        lambda _, best, total: Total(total.sum + best.price, total.count + 1),
        lambda _, best, total: Total(total.sum - best.price, total.count - 1),
        Materialized("totals", KEY, TOTAL),
    )
    return _rows(totals).map_values(lambda total: str(total.sum // max(total.count, 1)))


def q5(sources: Sources) -> Stream[str, str]:
    """Tell the auction with the most bids of each window, when it is over."""
    hops = TimeWindows.of_size_with_no_grace(WINDOW_MS).advance_by(HOP_MS)
    counts = _bids(sources).group_by_key(Grouped(KEY, BID)).windowed_by(hops).count(Materialized("counts", KEY, COUNT))
    final = _rows(counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded())))
    by_window = final.map(lambda key, count: (str(key.window.start), Hot(int(key.key), count)))
    hottest = by_window.group_by_key(Grouped(KEY, HOT)).reduce(
        lambda one, other: other if (other.count, -other.auction) > (one.count, -one.auction) else one, Materialized("hottest", KEY, HOT)
    )
    return _rows(hottest).map_values(lambda hot: f"{hot.auction},{hot.count}")


def q6(sources: Sources) -> Stream[str, str]:
    """Tell the average of the winning prices of each seller's last ten auctions."""
    grouped = _winning(sources).group_by(lambda _, best: (str(best.seller), best), Grouped(KEY, WINNING))

    def add(_: str, best: Winning, sales: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        return {**sales, str(best.auction): (best.expires, best.price)}

    def remove(_: str, best: Winning, sales: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        return {auction: sale for auction, sale in sales.items() if auction != str(best.auction)}

    def average(sales: dict[str, tuple[int, int]]) -> str:
        last = sorted((expires, int(auction), price) for auction, (expires, price) in sales.items())[-LAST:]
        return str(sum(price for _, _, price in last) // max(len(last), 1))

    return _rows(grouped.aggregate(dict[str, tuple[int, int]], add, remove, Materialized("sales", KEY, SALES))).map_values(average)


def q7(sources: Sources) -> Stream[str, str]:
    """Tell the highest bid of each window."""
    windows = TimeWindows.of_size_and_grace(WINDOW_MS, GRACE_MS)
    highest = (
        _bids(sources)
        .group_by(lambda _, bid: "all", Grouped(KEY, BID))
        .windowed_by(windows)
        .reduce(lambda one, other: other if _rank(other) > _rank(one) else one, Materialized("highest", KEY, BID))
    )
    return _rows(highest).map(lambda key, bid: (str(key.window.start), f"{bid.auction},{bid.price},{bid.bidder}"))


def _rank(bid: Bid) -> tuple[int, int, int]:
    return bid.price, bid.auction, bid.bidder


def q8(sources: Sources) -> Stream[str, str]:
    """Name the persons who sell something in the window in which they come."""
    persons = sources.builder.stream(sources.persons, Consumed(KEY, PERSON))
    by_seller = sources.builder.stream(sources.auctions, Consumed(KEY, AUCTION)).select_key(lambda _, auction: str(auction.seller))

    def told(person: Person, auction: Auction) -> str | None:
        window = person.date_time // WINDOW_MS * WINDOW_MS
        return f"{person.id},{person.name},{window}" if window <= auction.date_time < window + WINDOW_MS else None

    windows = JoinWindows.of_time_difference_and_grace(WINDOW_MS, GRACE_MS)
    joined = persons.join(by_seller, told, windows, StreamJoined(KEY, PERSON, AUCTION, store_name="sellers"))
    return cast("Stream[str, str]", joined.filter(lambda _, text: text is not None))


def q9(sources: Sources) -> Stream[str, str]:
    """Tell the winning bid of each auction."""
    told = _rows(_winning(sources))
    return told.map_values(lambda best: f"{best.auction},{best.seller},{best.category},{best.price},{best.bidder},{best.date_time}")


def q11(sources: Sources) -> Stream[str, str]:
    """Count the bids of each bidder's sessions."""
    by_bidder = _bids(sources).group_by(lambda _, bid: str(bid.bidder), Grouped(KEY, BID))
    counts = by_bidder.windowed_by(SessionWindows(WINDOW_MS, GRACE_MS)).count(Materialized("sessions", KEY, COUNT))
    return counts.to_stream().map(lambda key, count: (str(key), None if count is None else str(count)))  # type: ignore[arg-type,return-value]  # null ends a session


def q12(sources: Sources) -> Stream[str, str]:
    """Count the bids of each bidder in windows of the wall clock."""
    consumed: Consumed[str, Bid] = Consumed(KEY, BID, timestamp_extractor=WallclockTimestampExtractor())
    by_bidder = sources.builder.stream(sources.bids, consumed).group_by(lambda _, bid: str(bid.bidder), Grouped(KEY, BID))
    counts = by_bidder.windowed_by(TimeWindows.of_size_and_grace(WINDOW_MS, GRACE_MS)).count(Materialized("counts", KEY, COUNT))
    return counts.to_stream().map(lambda key, count: (str(key), str(count)))


QUERIES: Final[dict[str, Callable[[Sources], Stream[str, str]]]] = {
    "q0": q0,
    "q1": q1,
    "q2": q2,
    "q3": q3,
    "q4": q4,
    "q5": q5,
    "q6": q6,
    "q7": q7,
    "q8": q8,
    "q9": q9,
    "q11": q11,
    "q12": q12,
}
_JOINED: Final = {"q3": ("auctions", "persons"), "q8": ("auctions", "persons"), **dict.fromkeys(("q4", "q6", "q9"), ("auctions", "bids"))}
READS: Final = {query: _JOINED.get(query, ("bids",)) for query in QUERIES}
"""The topics that each query reads."""
