"""Orders with their customers, with ks-actors."""

from typing import Any

from ks_actors import App, StreamsBuilder, Topic

builder = StreamsBuilder()
customers = builder.table(Topic("customers", str, dict[str, Any]))
orders = builder.stream(Topic("orders", str, dict[str, Any]))
parcels = Topic("parcels", str, dict[str, Any])


def parcel(order: dict[str, Any], customer: dict[str, Any]) -> dict[str, Any]:
    return {"city": customer["city"], "amount": order["amount"]}


orders.join(customers, parcel).to(parcels)

if __name__ == "__main__":
    App(builder, "enrichment", "localhost:9092").main()
