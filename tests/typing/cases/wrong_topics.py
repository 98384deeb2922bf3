"""Records that do not fit their Topic: each line with its error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from ks_actors import App, Publisher, Record, SentRecord, Topic, TopicRecord


@dataclass
class Order:
    cents: int


ORDERS = Topic("orders", str, Order)


async def use(by: App | Publisher) -> None:
    assert_type(await by.send(ORDERS, "a", Order(1)), SentRecord)
    await by.send(ORDERS, None, None)
    await by.send(ORDERS, 1, Order(1))  # error: misc
    await by.send(ORDERS, "a", "text")  # error: misc
    await by.send(ORDERS, "a")  # error: call-overload
    assert_type(await by.send_many(ORDERS, [("a", Order(1)), (None, None)]), int)
    await by.send_many(ORDERS, [Record("a", Order(1), 0)])
    await by.send_many(ORDERS, by.records(ORDERS))
    await by.send_many(ORDERS, [("a", "text")])  # error: misc
    async for record in by.records(ORDERS, until="end"):
        assert_type(record, TopicRecord[str, Order])
        assert_type(record.value, Order | None)
        print(record.value.cents)  # error: union-attr
    async for text in by.records("texts", key_serde=bytes, value_serde=str):
        assert_type(text, TopicRecord[bytes, str])
    by.records(ORDERS, until="now")  # error: call-overload
