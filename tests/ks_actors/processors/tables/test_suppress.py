"""Changes of a table that are held back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors._errors import ProcessingFailed, SerializationError, TopologyError
from ks_actors.dsl import BufferConfig, Consumed, Materialized, StreamsBuilder, Suppressed, TimeWindows
from ks_actors.processors.tables._suppress import BufferedChange, Suppress, SuppressView
from ks_actors.processors.tables._suppressed_serde import BufferedChangeSerde
from ks_actors.processors.tables._views import StoreView
from ks_actors.records._batch import Headers
from ks_actors.records._windowed import Window, Windowed
from ks_actors.serdes import LONG, STRING
from ks_actors.topology import ProcessorNode, StoreKind
from tests.ks_actors.processors.helpers import DictStore, Node


class Store:
    """A plain key-value store in the order of the keys' text."""

    mutable = False

    def __init__(self) -> None:
        self.values: dict[Any, BufferedChange] = {}

    def get(self, key: Any) -> BufferedChange | None:
        return self.values.get(key)

    get_at = get

    def put_at(self, key: Any, value: BufferedChange | None) -> None:
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def all_there_is(self) -> Iterator[tuple[Any, BufferedChange]]:
        return iter(sorted(self.values.items(), key=lambda item: self.key_bytes(item[0])))

    def index(self, key: Any) -> Any:
        return key

    def key_bytes(self, key: Any) -> bytes:
        return str(key).encode()

    def own_key(self, key: Any, index: Any = None) -> tuple[bytes, Any]:
        return self.key_bytes(key), key

    def index_of(self, encoded: bytes, key: Any) -> Any:
        return key

    def entry_bytes(self, key: Any, value: BufferedChange) -> int:
        return len(key) + len(value.new or "")


class Rig:
    """A suppression in one task."""

    def __init__(self, wait: int = 10, store: Store | None = None, *, faults: bool = False, **options: Any) -> None:
        self.store = store or Store()
        self.node = Node({"s": self.store})
        self.node.kafka_streams_faults = faults
        self.process = Suppress(store="s", wait_ms=wait, **options).bind(self.node).process

    def change(self, key: Any, new: Any, old: Any, timestamp: int, headers: Headers = ()) -> list[tuple[Any, Any, int]]:
        """Process a change and return its output."""
        before = len(self.node.rows)
        self.process(key, (new, old), timestamp, headers)
        return [(row.key, row.value, row.timestamp) for row in self.node.rows[before:]]


def test_the_latest_change_goes_on_when_the_first_one_has_waited_long_enough() -> None:
    """By stream time, in the order of the first ones and then the keys; time, headers and old value are the latest change's."""
    rig = Rig()
    headers = (("h", b"1"),)
    assert rig.change("b", "1", None, 5) + rig.change("a", "1", None, 5) + rig.change("c", "1", None, 4) == []
    assert rig.change("b", "2", "1", 13, headers) == []
    assert rig.change("d", "1", None, 14) == [("c", ("1", None), 4)]
    assert rig.change("d", "2", "1", 15) == [("a", ("1", None), 5), ("b", ("2", "1"), 13)]
    assert rig.node.rows[-1].headers == headers
    assert sorted(rig.store.values) == ["d"]


def test_deletes_go_on_after_a_time_limit() -> None:
    """Downstream has the row, or may have it."""
    rig = Rig(wait=0)
    assert rig.change("a", None, "1", 5) == [("a", (None, "1"), 5)]


def test_one_result_of_a_window_goes_on_when_it_has_closed_unless_it_was_deleted() -> None:
    """Stream time must reach the window's end plus the grace period."""
    rig = Rig(wait=3, until_close=True)
    early, late = Windowed("k", Window(0, 10)), Windowed("k", Window(10, 20))
    assert rig.change(late, 1, 0, 11) + rig.change(early, 1, 0, 5) + rig.change(early, 2, 1, 6) == []
    assert rig.change(late, 2, 1, 12) == []
    assert rig.change(late, None, 2, 13) == [(early, (2, 1), 6)]
    assert rig.change(Windowed("z", Window(20, 30)), 1, 0, 23) == []
    assert list(rig.store.values) == [Windowed("z", Window(20, 30))]


@pytest.mark.parametrize(("faults", "due"), [(False, 14), (True, 13)])
def test_a_window_whose_end_belongs_to_it_closes_after_that_instant(faults: bool, due: int) -> None:
    """Until then a record for it is not late; Kafka Streams sends it 1 ms earlier."""
    rig = Rig(wait=3, until_close=True, end_included=True, faults=faults)
    rig.change(Windowed("k", Window(0, 10)), 1, 0, 5)
    assert rig.change(Windowed("z", Window(20, 30)), 1, 0, due - 1) == []
    assert rig.change(Windowed("z", Window(20, 30)), 2, 1, due) == [(Windowed("k", Window(0, 10)), (1, 0), 5)]


def test_a_full_buffer_emits_the_first_ones_early() -> None:
    """Until it is within its limits again."""
    rig = Rig(wait=1_000, max_records=2)
    rig.change("a", "1", None, 1)
    rig.change("b", "1", None, 2)
    assert rig.change("c", "1", None, 3) == [("a", ("1", None), 1)]
    rig = Rig(wait=1_000, max_bytes=10)
    rig.change("a", "1111", None, 1)
    assert rig.change("b", "1111", None, 2) == []
    assert rig.change("b", "22222222", "1", 3) == [("a", ("1111", None), 1)]
    assert rig.change("b", "3" * 10, "2", 4) == [("b", ("3" * 10, "2"), 4)]


def test_a_full_buffer_that_must_not_emit_early_ends_processing() -> None:
    """With an error that tells its limits."""
    rig = Rig(wait=1_000, max_records=1, max_bytes=1_000, shut_down=True)
    rig.change("a", "1", None, 1)
    with pytest.raises(ProcessingFailed, match=r"2 changes \(4 bytes\), but the limits are 1 changes and 1000 bytes"):
        rig.change("b", "1", None, 2)


def test_a_task_that_takes_over_goes_on_with_waiting_records() -> None:
    """Records in the store are due as before."""
    first = Rig(max_bytes=1_000)
    first.change("b", "1", None, 5)
    first.change("a", "1", None, 5)
    second = Rig(store=first.store, max_bytes=1_000)
    assert second.change("c", "1", None, 15) == [("a", ("1", None), 5), ("b", ("1", None), 5)]


def test_a_suppressed_table_reads_as_it_was_when_it_was_last_seen() -> None:
    """For as long as a change waits, also while it is being forwarded; then as the parent."""
    rig = Rig()
    parent = DictStore()
    parent.entries = {"a": ("2", 7), "b": ("5", 6), "c": ("c", 1)}
    rig.change("a", "1", "0", 5)
    rig.change("a", "2", "1", 7)
    rig.change("b", "5", None, 6)
    view = SuppressView(StoreView("p"), "s")
    get, close, _ = view.bind(Node({"s": rig.store, "p": parent}))
    assert [get(key) for key in "abcd"] == [("0", -1), None, ("c", 1), None]
    close()
    assert view.stores == ("s", "p")


# ---- the serde

SERDE = BufferedChangeSerde(STRING)
write, read = SERDE.serializer("t"), SERDE.deserializer("t")
OPTIONAL = st.none() | st.text(max_size=5)


@given(
    st.tuples(st.integers(0, 99), OPTIONAL, OPTIONAL, OPTIONAL, st.integers(0, 99)),
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3))),
    st.none() | st.tuples(st.text("in.é", min_size=1), st.integers(0, 99), st.integers(0, 1 << 62)),
)
def test_held_records_come_back_unchanged(row: tuple[int, Any, Any, Any, int], headers: list[Any], origin: tuple[str, int, int] | None) -> None:
    """Nulls, headers, and where it came from included."""
    held = BufferedChange(*row, tuple(headers), origin)
    assert read(write(held)) == held


def test_held_records_are_written_as_kafka_streams_writes_them() -> None:
    """BufferValue and buffer time, version 3: context, prior, old (or that it is the prior one), new, time."""
    header, unknown = b"\0\0\0\1" + b"\0\0\0\1h\0\0\0\1v", b"\xff" * 8 + b"\0\0\0\0" + b"\xff" * 4
    values = b"\0\0\0\1p" + b"\xff\xff\xff\xfe" + b"\0\0\0\3new" + b"\0\0\0\0\0\0\0\5"
    held = BufferedChange(5, "p", "p", "new", 7, (("h", b"v"),))
    assert write(held) == b"\0\0\0\0\0\0\0\7" + unknown + header + values
    known = b"\0\0\0\0\0\0\0\x09" + b"\0\0\0\2in" + b"\0\0\0\3"
    assert write(held._replace(origin=("in", 3, 9))) == b"\0\0\0\0\0\0\0\7" + known + header + values
    data = b"\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0\1\0\0\0\2in\0\0\0\0\xff\xff\xff\xff" + b"\xff" * 4 + b"\0\0\0\1o" + b"\xff" * 4 + b"\0\0\0\0\0\0\0\5"
    assert read(data) == BufferedChange(5, None, "o", None, 7, (), ("in", 0, 1))


@pytest.mark.parametrize("data", [b"", b"\0" * 20, b"\0" * 24 + b"\0\0\0\1" + b"\0\0\0\x09x", b"\0" * 28 + b"\xff\xff\xff\xf0" * 4])
def test_bytes_that_are_no_held_record_are_refused(data: bytes) -> None:
    """With an error that shows the bytes."""
    with pytest.raises(SerializationError):
        read(data)


def test_the_serde_takes_the_apps_default() -> None:
    """Where the table's is not known."""
    unknown = BufferedChangeSerde(None)
    with pytest.raises(SerializationError, match="default"):
        unknown.serializer("t")
    assert unknown.or_default(LONG).inner is LONG
    assert SERDE.or_default(LONG) is SERDE
    assert (SERDE.immutable, unknown.immutable) == (True, False)
    assert "buffered" in repr(SERDE)


# ---- the DSL


def windowed(builder: StreamsBuilder) -> Any:
    grouped = builder.stream("in", Consumed(STRING, STRING)).group_by_key()
    return grouped.windowed_by(TimeWindows.of_size_and_grace(10, 7)).count(Materialized("counts"))


def suppress_of(builder: StreamsBuilder) -> Any:
    (found,) = [node.operator for node in builder.build().nodes.values() if isinstance(node, ProcessorNode) and isinstance(node.operator, Suppress)]
    return found


def test_waiting_for_windows_takes_their_grace_period_from_upstream() -> None:
    """The grace period is found through filters and maps; the store is in memory with the suppression's names."""
    builder = StreamsBuilder()
    table = windowed(builder).filter(lambda _, count: count > 1).map_values(lambda count: count + 1)
    suppressed = table.suppress(Suppressed.until_window_closes(BufferConfig(max_records=5)).with_name("final"))
    suppressed.filter(lambda _, count: count > 2).to_stream()
    operator = suppress_of(builder)
    assert (operator.store, operator.wait_ms, operator.until_close, operator.max_records, operator.shut_down) == ("final-store", 7, True, 5, True)
    spec = builder.build().stores["final-store"]
    assert (spec.kind, spec.type, spec.logging) == (StoreKind.KEY_VALUE, "in_memory", True)
    assert suppressed.node.name == "final"
    assert suppressed.queryable_store_name is None


def test_a_suppressed_table_can_be_joined() -> None:
    """The join reads the last state: it is connected to the waiting records and to the nodes upstream."""
    builder = StreamsBuilder()
    rows = builder.table("in", Consumed(STRING, STRING), Materialized("rows"))
    buffer = BufferConfig(max_bytes=100, when_full="emit_early", logging=False)
    held = rows.suppress(Suppressed.until_time_limit(5, buffer))
    builder.stream("other", Consumed(STRING, STRING)).join(held, lambda a, b: a + b).to("out")
    topology = builder.build()
    (node,) = [node for name, node in topology.nodes.items() if name.startswith("KSTREAM-JOIN-")]
    assert isinstance(node, ProcessorNode)
    assert set(node.stores) == {"rows", "KTABLE-SUPPRESS-STATE-STORE-0000000003"}
    assert not topology.stores["KTABLE-SUPPRESS-STATE-STORE-0000000003"].logging
    assert not suppress_of(builder).shut_down


def test_senseless_options_are_refused() -> None:
    """Each with the alternative."""
    with pytest.raises(TopologyError, match="until_time_limit"):
        StreamsBuilder().table("in").suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    with pytest.raises(TopologyError, match="0 or more"):
        Suppressed.until_time_limit(-1, BufferConfig.unbounded())
    with pytest.raises(TopologyError, match="max_records"):
        BufferConfig(max_records=-1)
    with pytest.raises(TopologyError, match="emits early"):
        Suppressed.until_window_closes(BufferConfig(max_bytes=5, when_full="emit_early"))
