"""Orders with their customers, with Quix Streams."""

from quixstreams import Application

app = Application(
    "localhost:9092", consumer_group="enrichment", auto_offset_reset="earliest"
)
customers = app.dataframe(app.topic("customers", key_deserializer="str"))
orders = app.dataframe(app.topic("orders", key_deserializer="str"))
parcels = app.topic("parcels", key_serializer="str")


def parcel(order, customer):
    return {"city": customer["city"], "amount": order["amount"]}


orders.join_asof(customers, on_merge=parcel).to_topic(parcels)

if __name__ == "__main__":
    app.run()
