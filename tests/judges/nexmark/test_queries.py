"""Nexmark's queries, on a few events; `make bench-nexmark` compares them with Kafka Streams' on many."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.nexmark.compare import reduced
from benchmarks.nexmark.queries import AUCTION, BID, PERSON, QUERIES, READS, Auction, Bid, Person, topology
from ks_actors.serdes import STRING, Serde
from ks_actors.testing import TopologyTestDriver

PERSONS = [
    Person(1, "ann", "bend", "or", 0),
    Person(2, "bob", "rome", "ny", 1),
]
AUCTIONS = [
    Auction(123, seller=1, category=10, date_time=2, expires=5_000),
    Auction(7, seller=2, category=10, date_time=3, expires=50_000),
]
BIDS = [
    Bid(123, bidder=2, price=1_000, date_time=4),
    Bid(7, bidder=1, price=300, date_time=5),
    Bid(123, bidder=2, price=9_000, date_time=6_000),
    Bid(7, bidder=2, price=500, date_time=20_000),
    Bid(7, bidder=1, price=100, date_time=20_001),
    Bid(123, bidder=1, price=1, date_time=20_002),
]
EXPECTED: dict[str, dict[tuple[str, str], int]] = {
    "q0": {(str(bid.auction), f"{bid.auction},{bid.bidder},{bid.price},{bid.date_time}"): 1 for bid in BIDS},
    "q1": {(str(bid.auction), f"{bid.auction},{bid.bidder},{bid.price * 908 // 1000},{bid.date_time}"): 1 for bid in BIDS},
    "q2": {("123", f"123,{price}"): 1 for price in (1_000, 9_000, 1)},
    "q3": {("123", "ann,bend,or,123"): 1},
    "q4": {("10", "750"): 1},
    "q5": {("0", "123,2"): 1, **{(str(start), "123,1"): 1 for start in (2_000, 4_000, 6_000)}},
    "q6": {("1", "1000"): 1, ("2", "500"): 1},
    "q7": {("0", "123,9000,2"): 1, ("20000", "7,500,2"): 1},
    "q8": {("1", "1,ann,0"): 1, ("2", "2,bob,0"): 1},
    "q9": {("123", "123,1,10,1000,2,4"): 1, ("7", "7,2,10,500,2,20000"): 1},
    "q11": {
        ("[1@5/5]", "1"): 1, ("[1@20001/20002]", "2"): 1, ("[2@4/6000]", "2"): 1, ("[2@20000/20000]", "1"): 1,
    },
    "q12": {("1", "3"): 1, ("2", "3"): 1},
}  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_its_result(query: str) -> None:
    """Each of Nexmark's queries gives what it is to give, of two persons, two auctions and six bids."""
    given: dict[str, tuple[Serde[Any], list[Any]]] = {"persons": (PERSON, PERSONS), "auctions": (AUCTION, AUCTIONS), "bids": (BID, BIDS)}
    with TopologyTestDriver(topology(query, "bids", "auctions", "persons", "out")) as driver:
        for topic, (serde, events) in given.items():
            if topic in READS[query]:
                records = driver.create_input_topic(topic, STRING, serde)
                for event in events:
                    records.pipe_input(str(event.auction if isinstance(event, Bid) else event.id), event, event.date_time)
        found = driver.create_output_topic("out", STRING, STRING).read_key_values_to_list()
    assert reduced(query, found) == EXPECTED[query]  # type: ignore[arg-type]


def test_tables_are_compared_by_their_last_rows_and_streams_by_all_records() -> None:
    """Rows that were replaced or deleted count in no table; a stream's result counts as often as it comes."""
    pairs = [("a", "1"), ("b", "2"), ("a", "3"), ("b", None), ("c", "4"), ("c", "4")]
    assert reduced("q9", pairs) == {("a", "3"): 1, ("c", "4"): 1}
    assert reduced("q0", pairs) == {("a", "1"): 1, ("b", "2"): 1, ("a", "3"): 1, ("c", "4"): 2}
    assert reduced("q8", [("c", "4"), ("c", "4")]) == {("c", "4"): 1}
    assert reduced("q12", [("[a@0/9]", "1"), ("[a@0/9]", "2"), ("[a@9/18]", "5")]) == {("a", "7"): 1}
