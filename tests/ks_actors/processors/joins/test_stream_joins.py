"""Joins of two streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors._errors import SerializationError, TopologyError
from ks_actors.dsl import Consumed, JoinWindows, StreamJoined, StreamsBuilder
from ks_actors.processors.api._operator import Process
from ks_actors.processors.joins._pending_serdes import PendingKeySerde, PendingValuesSerde
from ks_actors.processors.joins._stream_join import JoinWindow, PendingKey, StreamJoinSide
from ks_actors.records._batch import Headers
from ks_actors.serdes import LONG, STRING
from ks_actors.topology import StoreKind
from tests.ks_actors.processors.helpers import Node

LEFT, RIGHT = True, False


class Duplicates:
    """A window store that keeps all that is put."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, tuple[Any, int]]] = []

    def kept(self, key: str, value: Any) -> Any:
        return value

    def put_entry(self, key: str, start: int, entry: tuple[Any, int] | None) -> None:
        if entry is not None:
            self.rows.append((start, key, entry))

    def fetch_entries(self, key: str, first: int, last: int) -> list[tuple[int, tuple[Any, int]]]:
        return sorted(((start, entry) for start, of, entry in self.rows if of == key and first <= start <= last), key=lambda row: row[0])


class Plain:
    """A key-value store in the order of keys."""

    def __init__(self) -> None:
        self.values: dict[PendingKey, Any] = {}

    def get(self, key: PendingKey) -> Any:
        return self.values.get(key)

    def index(self, key: PendingKey) -> Any:
        return key

    def put(self, key: PendingKey, value: Any) -> None:
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def all_there_is(self) -> Iterator[tuple[PendingKey, Any]]:
        return iter(sorted(self.values.items()))


class Keeper(Node):
    """The node before the join, which is its only child."""

    def __init__(self, node: Node, join: Process) -> None:
        super().__init__(node.stores)
        self.join = join
        self.kafka_streams_faults = node.kafka_streams_faults
        self.progress = node.progress
        self.dropped = node.dropped  # type: ignore[method-assign]

    def forward(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        self.join(key, value, timestamp, headers)


class Join:
    """Both sides of a join in one task, and its output."""

    def __init__(
        self,
        *,
        left: bool = False,
        outer: bool = False,
        before: int = 10,
        after: int = 10,
        grace: int = 0,
        keyed: bool = False,
        faults: bool = False,
    ) -> None:
        self.stores: dict[str, Any] = {"left": Duplicates(), "right": Duplicates(), "pending": Plain()}
        self.node = Node(self.stores)
        self.node.kafka_streams_faults = faults
        self.process = {}
        for of_left, mine, other in ((LEFT, "left", "right"), (RIGHT, "right", "left")):
            side = StreamJoinSide(
                other=other,
                joiner=(lambda k, a, b: f"{k}:{a}-{b}") if keyed else (lambda a, b: f"{a}-{b}"),
                before_ms=before,
                after_ms=after,
                grace_ms=grace,
                left=of_left,
                time="pending",
                outer=left if of_left else outer,
                other_outer=outer if of_left else left,
                keyed=keyed,
                pending="pending" if left else None,
            )
            window = JoinWindow(store=mine, time="pending", late_ms=side.late_ms)
            self.process[of_left] = window.bind(Keeper(self.node, side.bind(self.node).process)).process

    def get(self, side: bool, key: Any, value: Any, timestamp: int, headers: Headers = ()) -> list[tuple[Any, Any, int]]:
        """Process a record and return its output."""
        before = len(self.node.rows)
        self.process[side](key, value, timestamp, headers)
        return [(row.key, row.value, row.timestamp) for row in self.node.rows[before:]]


def test_records_meet_whichever_comes_first() -> None:
    """The left value is on the left, the later timestamp is the result's."""
    join = Join()
    assert join.get(LEFT, "k", "a", 10) == []
    assert join.get(RIGHT, "k", "b", 15) == [("k", "a-b", 15)]
    assert join.get(RIGHT, "k", "c", 8) == [("k", "a-c", 10)]
    assert join.get(LEFT, "k", "d", 12) == [("k", "d-c", 12), ("k", "d-b", 15)]
    assert join.get(LEFT, "other", "e", 12) == []


def test_windows_are_as_the_left_side_sees_them() -> None:
    """Ends included, and not the same before and after."""
    join = Join(before=2, after=5, keyed=True)
    join.get(LEFT, "k", "a", 10)
    assert [time for time in range(21) if join.get(RIGHT, "k", "b", time)] == [8, 9, 10, 11, 12, 13, 14, 15]
    join = Join(before=2, after=5, keyed=True)
    join.get(RIGHT, "k", "b", 10)
    assert [time for time in range(21) if join.get(LEFT, "k", "a", time)] == [5, 6, 7, 8, 9, 10, 11, 12]
    assert join.node.rows[0].value == "k:a-b"


def test_records_without_key_or_value_are_dropped() -> None:
    """They are not kept, and meet nothing."""
    join = Join()
    assert join.get(LEFT, None, "a", 10) + join.get(LEFT, "k", None, 10) + join.get(RIGHT, "k", "b", 10) == []
    assert join.node.dropped_count == 2


def test_an_outer_side_has_a_result_for_a_record_without_key_at_once() -> None:
    """It can meet nothing."""
    join = Join(left=True)
    assert join.get(LEFT, None, "a", 10) == [(None, "a-None", 10)]
    assert join.get(RIGHT, None, "b", 10) == []
    assert join.node.dropped_count == 1


def test_a_record_that_met_none_comes_out_when_none_can_come_any_more() -> None:
    """Stream time has to pass its last instant by more than the grace period; it has its own timestamp then."""
    join = Join(left=True, grace=5)
    assert join.get(LEFT, "k", "a", 10) == []
    assert join.get(RIGHT, "x", "b", 25) == []
    assert join.get(RIGHT, "x", "c", 26) == [("k", "a-None", 10)]
    assert join.stores["pending"].values == {}


def test_a_record_that_meets_one_does_not_come_out_alone() -> None:
    """Records of the same side, key and time that wait with it do not come out alone either."""
    join = Join(left=True)
    join.get(LEFT, "k", "a", 10)
    join.get(LEFT, "k", "b", 10)
    assert join.get(RIGHT, "k", "c", 10) == [("k", "a-c", 10), ("k", "b-c", 10)]
    assert join.get(RIGHT, "x", "d", 100) == []


def test_a_late_record_is_dropped_and_counted() -> None:
    """Its window is closed, so it meets nothing, comes out not even alone, and is not kept for others (KAFKA-16123)."""
    join = Join(left=True, outer=True, before=10, after=5, grace=2)
    join.get(RIGHT, "x", "b", 50)
    assert join.get(LEFT, "k", "a", 42) == []
    assert join.get(RIGHT, "k", "c", 37) == []
    assert join.node.dropped_count == 2
    assert join.get(LEFT, "k", "e", 43) == []
    assert join.get(RIGHT, "k", "d", 42) == [("k", "e-d", 43)]
    assert join.node.dropped_count == 2
    assert join.get(LEFT, None, "f", 42) == []
    assert join.node.dropped_count == 3


def test_a_late_record_of_an_inner_join_is_dropped_and_counted() -> None:
    """Though its partner is still in the store."""
    join = Join()
    join.get(RIGHT, "k", "b", 20)
    assert join.get(LEFT, "k", "a", 10) == [("k", "a-b", 20)]
    join.get(RIGHT, "x", "x", 21)
    assert (join.get(LEFT, "k", "a", 10), join.node.dropped_count) == ([], 1)


def test_a_record_out_of_order_waits_for_its_match_through_the_grace_period() -> None:
    """It does not come out alone first (KAFKA-19536)."""
    join = Join(left=True, grace=30)
    join.get(RIGHT, "x", "b", 50)
    assert join.get(LEFT, "k", "a", 25) == []
    assert join.get(RIGHT, "k", "c", 30) == [("k", "a-c", 30)]
    assert join.get(LEFT, "l", "a", 25) == []
    assert join.get(LEFT, "x", "x", 65) == []
    assert join.get(LEFT, "x", "x", 66) == [("l", "a-None", 25)]


def test_a_record_that_came_out_alone_meets_nothing_more() -> None:
    """The other one is in time for records that come later than it."""
    join = Join(left=True)
    join.get(LEFT, "k", "a", 0)
    assert join.get(LEFT, "x", "x", 11) == [("k", "a-None", 0)]
    assert join.get(RIGHT, "k", "b", 5) == []
    assert join.get(LEFT, "k", "c", 12) == [("k", "c-b", 12)]


@pytest.mark.parametrize("side", [LEFT, RIGHT])
def test_a_record_comes_out_alone_as_soon_as_its_own_window_is_closed(side: bool) -> None:
    """Whichever side moves stream time, and however far the window reaches the other way (KAFKA-15417)."""
    join = Join(left=True, outer=True, before=100, after=0)
    join.get(LEFT, "k", "a", 10)
    assert join.get(side, "x", "b", 11) == [("k", "a-None", 10)]
    join = Join(left=True, outer=True, before=0, after=100)
    join.get(RIGHT, "k", "a", 10)
    assert join.get(side, "x", "b", 11) == [("k", "None-a", 10)]


def test_pending_records_are_read_when_one_is_due_and_not_before() -> None:
    """The first of both sides decides, by its own window."""
    join = Join(left=True, outer=True, before=100, after=0)
    join.get(RIGHT, "k", "a", 0)
    join.get(LEFT, "l", "b", 0)
    assert join.get(LEFT, "l", "b", 1) == [("l", "b-None", 0)]
    join.stores["pending"].all_there_is = lambda: pytest.fail("nothing is due")
    assert join.get(RIGHT, "l", "c", 1) == [("l", "b-c", 1)]
    del join.stores["pending"].all_there_is
    assert join.get(RIGHT, "l", "c", 100) == []
    assert join.get(RIGHT, "m", "c", 101) == [("k", "None-a", 0)]


def test_the_faults_of_kafka_streams_can_be_had() -> None:
    """By the setting: late records are taken, and come out alone while grace is on; some come late."""
    join = Join(left=True, outer=True, faults=True)
    join.get(RIGHT, "x", "b", 50)
    assert join.get(LEFT, "k", "a", 10) == [("k", "a-None", 10)]
    assert join.get(RIGHT, "k", "c", 30) == [("k", "None-c", 30)]
    join = Join(left=True, grace=30, faults=True)
    join.get(RIGHT, "x", "b", 50)
    assert join.get(LEFT, "k", "a", 25) == [("k", "a-None", 25)]
    assert join.get(RIGHT, "k", "c", 30) == [("k", "a-c", 30)]
    join = Join(left=True, before=100, after=0, faults=True)
    join.get(LEFT, "k", "a", 10)
    assert join.get(RIGHT, "x", "b", 110) == []
    assert join.get(RIGHT, "x", "b", 111) == [("k", "a-None", 10)]


@pytest.mark.parametrize("grace", [0, 3, 20])
@given(
    records=st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.integers(0, 60)), max_size=30),
    before=st.integers(0, 12),
    after=st.integers(0, 12),
    outer=st.booleans(),
)
def test_each_record_in_time_has_either_matches_or_one_result_alone(
    grace: int, records: list[tuple[bool, str, int]], before: int, after: int, *, outer: bool
) -> None:
    """Alone when it met nothing in time; a pair is joined once; late ones have no result, and are counted."""
    join = Join(left=True, outer=outer, before=before, after=after, grace=grace)
    now, late = -1, 0
    kept: dict[str, tuple[bool, str, int]] = {}
    expected: set[tuple[str, str]] = set()
    for number, (side, key, timestamp) in enumerate(records):
        now = max(now, timestamp)
        if timestamp + (after if side else before) + grace < now:
            late += 1
        else:
            name = f"{number}"
            for other, (of, its_key, time) in kept.items():
                low, high = (timestamp - before, timestamp + after) if side else (timestamp - after, timestamp + before)
                closed = (of or outer) and time + (after if of else before) + grace < now
                if of != side and its_key == key and low <= time <= high and not closed:
                    expected.add((name, other) if side else (other, name))
            kept[name] = (side, key, timestamp)
        join.get(side, key, f"{number}", timestamp)
    join.get(LEFT, "end", "end", 1_000)
    join.get(LEFT, "end", "end", 2_000)
    rows = [tuple(row.value.split("-")) for row in join.node.rows if row.key != "end"]
    pairs = [row for row in rows if "None" not in row]
    alone = [row for row in rows if "None" in row]
    met = {name for pair in pairs for name in pair}
    assert (sorted(pairs), join.node.dropped_count) == (sorted(expected), late)
    unmatched = [(of, name) for name, (of, _, _) in kept.items() if (of or outer) and name not in met]
    assert sorted(alone) == sorted((name, "None") if of else ("None", name) for of, name in unmatched)


def test_waiting_records_come_out_by_time_right_before_left_then_key() -> None:
    """In one go, with the headers of the record that moved stream time."""
    join = Join(left=True, outer=True)
    for side, key, value, time in ((LEFT, "b", "1", 10), (RIGHT, "c", "2", 10), (LEFT, "a", "3", 10), (LEFT, "a", "4", 9)):
        assert join.get(side, key, value, time) == []
    headers = (("h", b"1"),)
    assert join.get(LEFT, "z", "z", 40, headers) == [("a", "4-None", 9), ("c", "None-2", 10), ("a", "3-None", 10), ("b", "1-None", 10)]
    assert {row.headers for row in join.node.rows} == {headers}


def test_values_of_one_key_and_time_wait_together() -> None:
    """All of them come out, in the order in which they came."""
    join = Join(left=True)
    join.get(LEFT, "k", "a", 10)
    join.get(LEFT, "k", "b", 10)
    assert join.get(LEFT, "z", "z", 40) == [("k", "a-None", 10), ("k", "b-None", 10)]


def test_looking_for_waiting_records_ends_where_both_sides_still_wait() -> None:
    """Later records are not scanned, and come out later."""
    join = Join(left=True, outer=True)
    for side, key, time in ((LEFT, "a", 11), (LEFT, "b", 20), (RIGHT, "c", 20), (RIGHT, "d", 21)):
        join.get(side, key, key, time)
    assert join.get(LEFT, "z", "z", 30) == [("a", "a-None", 11)]
    assert sorted(place.key for place in join.stores["pending"].values) == ["b", "c", "d", "z"]


def test_a_task_that_takes_over_forwards_waiting_records() -> None:
    """Records found in the store may be due already."""
    join = Join(left=True)
    join.stores["pending"].put(PendingKey(10, LEFT, "k"), ((LEFT, "a"),))
    assert join.get(RIGHT, "x", "b", 40) == [("k", "a-None", 10)]


# ---- serdes


def test_a_pending_key_is_written_as_kafka_streams_writes_it() -> None:
    """The bytes order keys by time, side and key."""
    serde = PendingKeySerde(STRING)
    place = PendingKey(5, LEFT, "k")
    data = b"\0\0\0\0\0\0\0\5\1k"
    assert serde.serializer("t", is_key=True)(place) == data
    assert serde.deserializer("t", is_key=True)(data) == place
    assert (serde.faithful, serde.immutable) == (True, True)
    with pytest.raises(SerializationError):
        serde.deserializer("t")(b"\0\0")


def test_pending_values_are_written_as_kafka_streams_writes_them() -> None:
    """A list of values with the side before each."""
    serde = PendingValuesSerde(STRING, LONG)
    values = ((LEFT, "a"), (RIGHT, 7))
    data = b"\1\0\0\0\2" + b"\0\0\0\2\1a" + b"\0\0\0\x09\0\0\0\0\0\0\0\0\7"
    assert serde.serializer("t")(values) == data
    assert serde.deserializer("t")(data) == values
    assert serde.immutable
    for broken in (b"", data[:-1], data[:7], b"\0" + data[1:], b"\1\0\0\0\1\0\0\0\0"):
        with pytest.raises(SerializationError):
            serde.deserializer("t")(broken)


def test_pending_serdes_take_the_apps_defaults() -> None:
    """Where the user gave none."""
    assert PendingKeySerde(None).or_default(STRING).faithful
    assert not PendingKeySerde(None).faithful
    known = PendingKeySerde(STRING)
    assert known.or_default(LONG) is known
    assert PendingValuesSerde(None, STRING).or_default(LONG).left is LONG
    assert not PendingValuesSerde(None, STRING).immutable
    assert "pending" in repr(known) + repr(PendingValuesSerde(None, None))
    with pytest.raises(SerializationError, match="StreamJoined"):
        PendingKeySerde(None).serializer("t")
    with pytest.raises(SerializationError, match="StreamJoined"):
        PendingValuesSerde(None, None).serializer("t")


# ---- the DSL

TEXT = Consumed(STRING, STRING)


def test_a_named_join_names_its_nodes_stores_and_topics() -> None:
    """As Kafka Streams does; changed keys are repartitioned on either side."""
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, TEXT).select_key(lambda _, v: v) for topic in ("l", "r"))
    options = StreamJoined(STRING, STRING, STRING, "j", "s", "in_memory", changelog_configs={"segment.bytes": "100"})
    left.outer_join(right, lambda a, b: f"{a}{b}", JoinWindows.of_time_difference_and_grace(5, 7).before(3), options).to("out")
    topology = builder.build()
    assert {"j-this-windowed", "j-other-windowed", "j-outer-this-join", "j-outer-other-join", "j-merge"} <= set(topology.nodes)
    assert set(topology.internal_topics) == {"j-left-repartition", "j-right-repartition"}
    assert set(topology.stores) == {"s-outer-this-join-store", "s-outer-other-join-store", "s-outer-shared-join-store"}
    spec = topology.stores["s-outer-this-join-store"]
    assert (spec.kind, spec.retain_duplicates, spec.retention_ms, spec.window_size_ms) == (StoreKind.WINDOW, True, 15, 8)
    assert spec.changelog_configs == {"segment.bytes": "100", "cleanup.policy": "delete"}
    assert {spec.type for spec in topology.stores.values()} == {"in_memory"}


def test_a_left_join_has_a_store_of_waiting_records_and_an_inner_one_has_none() -> None:
    """Serdes that are not given are the streams'."""
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    builder = StreamsBuilder()
    left, right = builder.stream("l", TEXT), builder.stream("r", Consumed(STRING, LONG))
    inner = left.join(right, lambda a, b: f"{a}{b}", windows)
    left.left_join(right, lambda k, a, b: f"{k}{a}{b}", windows, StreamJoined(store_name="s"))
    stores = builder.build().stores
    assert inner.key is STRING
    assert list(stores)[:2] == ["KSTREAM-JOINTHIS-0000000004-store", "KSTREAM-JOINOTHER-0000000005-store"]
    assert [stores[name].value for name in list(stores)[:2]] == [STRING, LONG]
    assert list(stores)[2:] == ["s-this-join-store", "s-outer-other-join-store", "s-left-shared-join-store"]


def test_windows_of_nothing_are_refused() -> None:
    """A negative grace period is refused too."""
    assert JoinWindows.of_time_difference_with_no_grace(5).after(-3).size_ms == 2
    with pytest.raises(TopologyError, match="negative"):
        JoinWindows.of_time_difference_with_no_grace(5).after(-6)
    with pytest.raises(TopologyError, match="grace_ms"):
        JoinWindows.of_time_difference_and_grace(5, -1)
