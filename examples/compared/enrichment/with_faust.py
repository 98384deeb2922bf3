"""Orders with their customers, with Faust."""

import faust


class Customer(faust.Record):
    name: str
    city: str


class Order(faust.Record):
    amount: float


class Parcel(faust.Record):
    city: str
    amount: float


app = faust.App(
    "enrichment", broker="kafka://localhost:9092", topic_partitions=2
)
customers = app.topic("customers", key_type=str, value_type=Customer)
orders = app.topic("orders", key_type=str, value_type=Order)
parcels = app.topic("parcels", key_type=str, value_type=Parcel)
known = app.Table("known-customers", key_type=str, value_type=Customer)


@app.agent(customers)
async def learn(stream):
    async for key, customer in stream.items():
        known[key] = customer


@app.agent(orders)
async def enrich(stream):
    # The key of an order is its customer's: both topics are partitioned alike.
    async for key, order in stream.items():
        if (customer := known.get(key)) is not None:
            await parcels.send(
                key=key, value=Parcel(city=customer.city, amount=order.amount)
            )


if __name__ == "__main__":
    app.main()
