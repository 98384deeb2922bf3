"""The operators of joins by a foreign key: in batches as one by one, and each instruction and response by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors.processors.aggregates import Superseded
from ks_actors.processors.foreign_keys import (
    ForeignTableJoin,
    Instruction,
    ResponseJoin,
    Subscription,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionResponse,
    SubscriptionSend,
    SubscriptionSerde,
)
from ks_actors.processors.foreign_keys._combined_key import combined_key
from ks_actors.processors.tables._views import StoreView
from ks_actors.records import murmur3_128
from ks_actors.records._batch import Batch
from ks_actors.serdes import STRING
from tests.ks_actors.processors.helpers import DictStore, run
from tests.ks_actors.processors.records import HEADERS, refuse

DELETE, DELETE_AND_TELL, TELL, TELL_IF_THERE = Instruction
KEYS = st.sampled_from(["a", "b", "c"])
ROWS = st.sampled_from(["f|x", "f|y", "g|x", "-|x", "!", None])


class Scanned(DictStore):
    """A store of bytes that can be scanned by prefix."""

    mutable = False

    def prefix_scan(self, prefix: bytes, _: Any) -> Any:
        rows = [(key, entry) for key, entry in sorted(self.entries.items()) if key.startswith(prefix)]

        class Rows(list[Any]):
            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None: ...

        return Rows(rows)


def foreign_key(value: str) -> str | None:
    refuse(value)
    return None if value.startswith("-") else value.partition("|")[0]


def keyed_foreign_key(key: str, value: str) -> str | None:
    found = foreign_key(value)
    return None if found is None else found + key


def both(one: Any, other: Any) -> str:
    refuse(other)
    return f"{one}+{other}"


def hashed(value: str) -> bytes:
    return murmur3_128(value.encode())


def send(**options: Any) -> SubscriptionSend:
    return SubscriptionSend(extractor=foreign_key, topic="t", key=STRING, primary_key=STRING, value=STRING, **options)


def column(values: list[Any], keys: list[Any], with_headers: bool) -> list[Batch]:
    headers = [HEADERS if index % 2 else () for index in range(len(values))] if with_headers else None
    return [Batch(keys, values, list(range(len(values))), headers, range(5, 5 + len(values)))] if values else []


CHANGES = st.lists(st.tuples(KEYS, st.tuples(ROWS, ROWS), st.booleans()), max_size=12)


@given(CHANGES, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_subscriptions_are_sent_in_batches_as_one_by_one(changes: list[Any], left: bool, keyed: bool, versioned: bool, with_headers: bool) -> None:
    """Inner and left joins, foreign keys of value and key, updates of the past, and extractors that raise."""
    operator = SubscriptionSend(
        extractor=keyed_foreign_key if keyed else foreign_key,
        keyed=keyed,
        topic="t",
        key=STRING,
        primary_key=STRING,
        value=STRING,
        left=left,
        versioned=versioned,
    )
    values = [Superseded(change) if late else change for _, change, late in changes]
    records = column(values, [key for key, _, _ in changes], with_headers)
    assert run(operator, {}, records, in_batches=True) == run(operator, {}, records, in_batches=False)


@pytest.mark.parametrize(
    ("change", "inner", "left"),
    [
        (("f|x", None), [("f", TELL_IF_THERE)], [("f", TELL)]),
        (("f|y", "f|x"), [("f", TELL_IF_THERE)], [("f", TELL)]),
        (("g|x", "f|x"), [("f", DELETE), ("g", TELL)], [("f", DELETE), ("g", TELL)]),
        (("-|x", "f|x"), [("f", DELETE_AND_TELL)], [("f", DELETE), (None, TELL)]),
        (("f|x", "-|x"), [("f", TELL_IF_THERE)], [("f", TELL)]),
        (("-|x", None), [], [(None, TELL)]),
        ((None, "f|x"), [("f", DELETE_AND_TELL)], [("f", DELETE), (None, TELL)]),
        ((None, "-|x"), [], [(None, TELL)]),
        ((None, None), [], []),
    ],
)
def test_a_change_is_told_as_by_kafka_streams(change: Any, inner: list[Any], left: list[Any]) -> None:
    """Each kind of change of a left row, with the hash of its new value, its key and its partition."""
    for operator, expected in ((send(), inner), (send(left=True), left)):
        outcome = run(operator, {}, [Batch(["k"], [change], [7], [HEADERS], [3])], in_batches=False)
        assert [(row.key, row.value.instruction) for row in outcome.rows] == expected
        for row in outcome.rows:
            assert row.value[:4] == (None if change[0] is None else hashed(change[0]), row.value.instruction, "k", 0)
            assert (row.timestamp, row.headers) == (7, HEADERS)
        assert outcome.dropped == (change[0] == "-|x" and not operator.left)


def subscription(instruction: Instruction, key: str, value: str | None = "v", partition: int | None = 4) -> Subscription:
    """Return a subscription as it was read."""
    made = Subscription(None if value is None else hashed(value), instruction, key, partition)
    return SubscriptionSerde(STRING).deserializer("t")(SubscriptionSerde(STRING).serializer("t")(made))


SUBSCRIPTIONS = st.builds(subscription, st.sampled_from(Instruction), KEYS, st.sampled_from(["v", "w", None]), st.sampled_from([None, 1]))


@given(st.lists(st.tuples(st.sampled_from(["f", "g", None]), st.one_of(SUBSCRIPTIONS, st.none())), max_size=12), st.booleans())
def test_subscriptions_are_received_in_batches_as_one_by_one(rows: list[Any], with_headers: bool) -> None:
    """The batch may hold rows without a foreign key, and records that are no rows."""
    operator = SubscriptionReceive(store="s", topic="t", key=STRING)
    records = column([value for _, value in rows], [key for key, _ in rows], with_headers)
    by_record = run(operator, {"s": Scanned()}, records, in_batches=False)
    assert run(operator, {"s": Scanned()}, records, in_batches=True) == by_record
    for key, (data, _) in by_record.stores["s"].items():
        assert key.endswith(SubscriptionSerde(STRING).deserializer("t")(data).primary_key.encode())


@given(st.lists(st.tuples(st.sampled_from(["f", "g", None, "broken"]), SUBSCRIPTIONS), max_size=12), st.booleans())
def test_subscriptions_are_answered_in_batches_as_one_by_one(rows: list[Any], with_headers: bool) -> None:
    """With right rows and without, and with some that cannot be read."""
    right = DictStore()
    right.entries, right.broken = {"f": ("r", 5)}, {"broken"}
    operator = SubscriptionJoin(view=StoreView("s"))
    records = column([value for _, value in rows], [key for key, _ in rows], with_headers)
    assert run(operator, {"s": right}, records, in_batches=True) == run(operator, {"s": right}, records, in_batches=False)


@given(st.lists(st.tuples(st.sampled_from(["f", "ff", None]), st.sampled_from(["r", None]), st.booleans()), max_size=8), st.booleans(), st.booleans())
def test_right_rows_are_told_in_batches_as_one_by_one(rows: list[Any], versioned: bool, with_headers: bool) -> None:
    """To all that subscribe to them, by the order of keys, and to no one who subscribes to a longer foreign key."""
    store = Scanned()
    for foreign, primary in (("f", "b"), ("f", "a"), ("ff", "c"), ("", "f")):
        told = subscription(TELL, primary)
        store.entries[combined_key(foreign.encode(), primary.encode())] = (told.data, 1)
    operator = ForeignTableJoin(store="s", topic="t", key=STRING, primary_key=STRING, versioned=versioned)
    values = [Superseded((value, None)) if late else (value, None) for _, value, late in rows]
    records = column(values, [key for key, _, _ in rows], with_headers)
    by_record = run(operator, {"s": store}, records, in_batches=False)
    assert run(operator, {"s": store}, records, in_batches=True) == by_record
    late = [versioned and superseded for _, _, superseded in rows]
    expected = [primary for (key, _, _), skipped in zip(rows, late, strict=True) if not skipped for primary in {"f": "ab", "ff": "c"}.get(key, "")]
    assert [row.key for row in by_record.rows] == expected
    assert all(row.value == SubscriptionResponse(hashed("v"), row.value.foreign_value, 4) for row in by_record.rows)


RESPONSES = st.builds(SubscriptionResponse, st.sampled_from([hashed("f|x"), hashed("-|x"), hashed("old"), None]), st.sampled_from(["r", "!", None]))


@given(st.lists(st.tuples(KEYS, st.one_of(RESPONSES, st.none())), max_size=12), st.booleans(), st.booleans())
def test_responses_are_resolved_in_batches_as_one_by_one(rows: list[Any], left: bool, with_headers: bool) -> None:
    """Those that are out of date, joiners that raise, and records that are no responses."""

    def outcome(*, in_batches: bool) -> Any:
        store = DictStore()
        store.entries = {"a": ("f|x", 1), "b": ("-|x", 1)}
        operator = ResponseJoin(view=StoreView("s"), joiner=both, extractor=foreign_key, topic="t", key=STRING, value=STRING, left=left)
        records = column([value for _, value in rows], [key for key, _ in rows], with_headers)
        return run(operator, {"s": store}, records, in_batches=in_batches)

    assert outcome(in_batches=True) == outcome(in_batches=False)
