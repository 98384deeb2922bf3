"""Score cards with more than three payments in a minute, with Faust."""

from datetime import timedelta

import faust
import httpx


class Payment(faust.Record):
    amount: float


class Alert(faust.Record):
    payments: int
    score: float


app = faust.App("fraud", broker="kafka://localhost:9092", topic_partitions=2)
payments = app.topic("payments", key_type=str, value_type=Payment)
alerts = app.topic("alerts", key_type=str, value_type=Alert)
counts = app.Table("payments-a-minute", key_type=str, default=int).tumbling(
    timedelta(minutes=1), expires=timedelta(minutes=5)
)


@app.agent(payments)
async def watch(stream):
    async with httpx.AsyncClient() as scorer:
        # One call at a time in each partition.
        async for card, _ in stream.items():
            counts[card] += 1
            if (count := counts[card].current()) > 3:
                url = f"http://localhost:8000/score/{card}"
                score = (await scorer.get(url)).json()
                if score > 0.8:
                    await alerts.send(key=card, value=Alert(count, score))


if __name__ == "__main__":
    app.main()
