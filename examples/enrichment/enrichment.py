"""Payments joined with their customers: Pydantic models in Avro, with a schema registry.

Shows: models whose Avro schemas a registry has, so that programs agree on them, and old and
new records are read side by side; a stream joined with a table.

Run: python enrichment.py
On Kafka: REGISTRY_URL=http://localhost:8081 KS_ACTORS_BOOTSTRAP_SERVERS=localhost:9092 python enrichment.py
"""

import asyncio
import os
from tempfile import TemporaryDirectory

from pydantic import BaseModel, Field

from ks_actors import App, Materialized, StreamsBuilder, StreamsConfig, Topic, Topology
from ks_actors.registry import SchemaRegistry


class Customer(BaseModel, frozen=True):
    """A customer, whose key is the customer's id."""

    name: str
    country: str


class Payment(BaseModel, frozen=True):
    """A payment, whose key is the id of the customer."""

    cents: int = Field(gt=0)
    # Came later. With a default old records are read, too, and a registry that demands
    # backward compatibility takes the new schema.
    currency: str = "EUR"


class EnrichedPayment(BaseModel, frozen=True):
    """A payment with what is known of its customer."""

    cents: int
    currency: str
    name: str | None = None
    country: str | None = None


class Topics:
    """The topics. The schemas of their values are made of the models."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self.payments = Topic("payments", str, registry.avro(Payment))
        self.customers = Topic("customers", str, registry.avro(Customer))
        self.enriched = Topic("enriched-payments", str, registry.avro(EnrichedPayment))


# The topics of a join have the same number of partitions.
TOPICS = {"payments": 4, "customers": 4, "enriched-payments": 4}


def enrich(payment: Payment, customer: Customer | None) -> EnrichedPayment:
    known = {} if customer is None else customer.model_dump()
    return EnrichedPayment(cents=payment.cents, currency=payment.currency, **known)


def topology(topics: Topics) -> Topology:
    builder = StreamsBuilder()
    customers = builder.table(topics.customers, materialized=Materialized("customers"))
    payments = builder.stream(topics.payments)
    # A left join: a payment of a customer who is not known yet is not lost.
    payments.left_join(customers, enrich).to(topics.enriched)
    return builder.build()


def config() -> StreamsConfig:
    """Return the settings; the environment has those of the place, such as the servers."""
    return StreamsConfig.load(application_id="enrichment", processing_guarantee="exactly_once_v2")


def registry() -> SchemaRegistry:
    """Return the registry; REGISTRY_URL has its address, `mock://…` for one in memory."""
    return SchemaRegistry(os.environ["REGISTRY_URL"])


def app() -> App:
    """Return the app. It registers its schemas, or looks them up, before it starts."""
    topics = Topics(registry())
    return App(topology(topics), config(), topics=TOPICS)


async def demo() -> None:
    """Write some customers and payments, and print what becomes of them."""
    topics = Topics(registry())
    async with App(topology(topics), config(), topics=TOPICS) as running:
        ann, bob = Customer(name="Ann", country="NO"), Customer(name="Bob", country="IT")
        await running.send_many(topics.customers, [("c-1", ann), ("c-2", bob)])
        await running.wait_until_caught_up()
        payments = [("c-1", 450), ("c-2", 1200), ("c-3", 70)]
        await running.send_many(topics.payments, [(key, Payment(cents=cents)) for key, cents in payments])
        await running.wait_until_caught_up()
        async for record in running.records(topics.enriched, until="end"):
            print(record.key, record.value)


if __name__ == "__main__":
    with TemporaryDirectory() as directory:
        if "KS_ACTORS_BOOTSTRAP_SERVERS" not in os.environ:
            os.environ |= {"KS_ACTORS_LOG": "memory://", "KS_ACTORS_STATE_DIR": directory}
            os.environ.setdefault("REGISTRY_URL", "mock://enrichment")
        asyncio.run(demo())
