"""Orders with their customers, with FastStream.

Each process reads all customers again when it starts, and enriches orders
meanwhile with those that it has read.
"""

import asyncio
from uuid import uuid4

from faststream import Context, FastStream
from faststream.kafka import KafkaBroker
from pydantic import BaseModel


class Customer(BaseModel):
    name: str
    city: str


class Order(BaseModel):
    amount: float


class Parcel(BaseModel):
    city: str
    amount: float


broker = KafkaBroker("localhost:9092")
app = FastStream(broker)
known: dict[bytes, Customer] = {}


@broker.subscriber(
    "customers", group_id=str(uuid4()), auto_offset_reset="earliest"
)
async def learn(
    customer: Customer, key: bytes = Context("message.raw_message.key")
):
    known[key] = customer


@broker.subscriber(
    "orders", group_id="enrichment", auto_offset_reset="earliest"
)
async def enrich(order: Order, key: bytes = Context("message.raw_message.key")):
    if (customer := known.get(key)) is not None:
        parcel = Parcel(city=customer.city, amount=order.amount)
        await broker.publish(parcel, "parcels", key=key)


if __name__ == "__main__":
    asyncio.run(app.run())
