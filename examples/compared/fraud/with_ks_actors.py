"""Score cards with more than three payments in a minute, with ks-actors."""

from datetime import timedelta
from typing import Any

import httpx
from ks_actors import App, StreamsBuilder, TimeWindows, Topic, Windowed

Json = dict[str, Any]
builder = StreamsBuilder()
scorer = httpx.AsyncClient()
minutes = TimeWindows.of_size_with_no_grace(timedelta(minutes=1))


async def score(card: Windowed[str], payments: int | None) -> tuple[str, Json]:
    # Many calls at a time, in order for each card.
    answer = await scorer.get(f"http://localhost:8000/score/{card.key}")
    return card.key, {"payments": payments, "score": answer.json()}


payments = builder.stream(Topic("payments", str, Json))
counts = payments.group_by_key().windowed_by(minutes).count().to_stream()
alerts = counts.filter(lambda _, payments: (payments or 0) > 3).map(score)
alerts = alerts.filter(lambda _, alert: alert["score"] > 0.8)
alerts.to(Topic("alerts", str, Json))

if __name__ == "__main__":
    App(builder, "fraud", "localhost:9092", services=[scorer]).main()
