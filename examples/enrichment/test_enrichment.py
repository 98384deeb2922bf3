"""Payments come out with their customers, by whichever version of their schema they were written.

Run: python -m pytest test_enrichment.py
"""

import pytest
from enrichment import TOPICS, Customer, EnrichedPayment, Payment, Topics, config, topology
from pydantic import create_model

from ks_actors import SchemaIncompatible, Topic
from ks_actors.registry import SchemaRegistry
from ks_actors.testing import AppHarness, InMemoryRegistry, TopologyTestDriver, run_app

ANN = Customer(name="Ann", country="NO")
# The model as other programs have it. The schema has the name of the class.
Earlier = create_model("Payment", cents=int)
Later = create_model("Payment", cents=int, currency=(str, "EUR"), shop=(str | None, None))


@pytest.fixture
def memory() -> InMemoryRegistry:
    return InMemoryRegistry()


@pytest.fixture
def topics(memory: InMemoryRegistry) -> Topics:
    return Topics(SchemaRegistry(memory))


def test_a_payment_has_the_customer_as_of_its_time(topics: Topics) -> None:
    """The latest one so far, and none if there is none; a customer by itself gives no result."""
    with TopologyTestDriver(topology(topics)) as driver:
        customers, payments = driver.create_input_topic(topics.customers), driver.create_input_topic(topics.payments)
        enriched = driver.create_output_topic(topics.enriched)
        payments.pipe_input("c-1", Payment(cents=1))
        customers.pipe_input("c-1", ANN)
        payments.pipe_input("c-1", Payment(cents=2, currency="NOK"))
        customers.pipe_input("c-1", Customer(name="Ann", country="IT"))
        payments.pipe_input("c-1", Payment(cents=3))
        assert enriched.read_values_to_list() == [
            EnrichedPayment(cents=1, currency="EUR"),
            EnrichedPayment(cents=2, currency="NOK", name="Ann", country="NO"),
            EnrichedPayment(cents=3, currency="EUR", name="Ann", country="IT"),
        ]


def test_payments_of_earlier_and_later_schemas_are_read_side_by_side(topics: Topics, memory: InMemoryRegistry) -> None:
    """A field that the writer did not have has its default, and one that this program does not know is left out."""
    other = SchemaRegistry(memory)
    earlier = Topic("payments", str, other.avro(Earlier))
    later = Topic("payments", str, other.avro(Later))

    async def test(harness: AppHarness) -> None:
        await harness.produce(topics.customers, "c-1", ANN)
        await harness.caught_up()
        await harness.produce(earlier, "c-1", Earlier(cents=1))
        await harness.produce(topics.payments, "c-1", Payment(cents=2, currency="NOK"))
        await harness.produce(later, "c-1", Later(cents=3, currency="SEK", shop="kiosk"))
        await harness.caught_up()
        assert [record.value for record in await harness.read(topics.enriched)] == [
            EnrichedPayment(cents=1, currency="EUR", **ANN.model_dump()),
            EnrichedPayment(cents=2, currency="NOK", **ANN.model_dump()),
            EnrichedPayment(cents=3, currency="SEK", **ANN.model_dump()),
        ]
        assert await other.versions("payments-value") == [1, 2, 3]

    run_app(test, topology(topics), config=config(), topics=TOPICS)


def test_customers_are_there_after_a_crash_without_a_disk(topics: Topics) -> None:
    """The table is restored from the topic's changelog, by the same schemas."""

    async def test(harness: AppHarness) -> None:
        await harness.produce(topics.customers, "c-1", ANN)
        await harness.caught_up()
        await harness.crash()
        harness.wipe_state()
        await harness.restart()
        await harness.produce(topics.payments, "c-1", Payment(cents=1))
        await harness.caught_up()
        (record,) = await harness.read(topics.enriched)
        assert record.value == EnrichedPayment(cents=1, currency="EUR", name="Ann", country="NO")

    run_app(test, topology(topics), config=config(), topics=TOPICS)


def test_a_schema_that_the_registry_refuses_ends_the_start(topics: Topics, memory: InMemoryRegistry) -> None:
    """So a program that would write what others cannot read writes nothing."""
    memory.refuse("enriched-payments-value", "the field cents has gone")

    async def test(_: AppHarness) -> None:
        raise AssertionError("the app has started")

    with pytest.raises(SchemaIncompatible, match="the field cents has gone"):
        run_app(test, topology(topics), config=config(), topics=TOPICS)
