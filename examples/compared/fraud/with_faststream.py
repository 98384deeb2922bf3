"""Score cards with more than three payments in a minute, with FastStream.

The counts are lost when the process ends, and when a partition moves.
"""

import asyncio
from collections import Counter

import httpx
from faststream import Context, FastStream
from faststream.kafka import KafkaBroker
from pydantic import BaseModel


class Payment(BaseModel):
    amount: float


class Alert(BaseModel):
    payments: int
    score: float


broker = KafkaBroker("localhost:9092")
app = FastStream(broker)
scorer = httpx.AsyncClient()
counts: Counter[tuple[bytes, int]] = Counter()


@broker.subscriber("payments", group_id="fraud", auto_offset_reset="earliest")
async def watch(
    payment: Payment,
    card: bytes = Context("message.raw_message.key"),
    timestamp: int = Context("message.raw_message.timestamp"),
):
    minute = timestamp // 60_000
    for old in [window for window in counts if window[1] < minute - 5]:
        del counts[old]
    counts[card, minute] += 1
    if (count := counts[card, minute]) > 3:
        url = f"http://localhost:8000/score/{card.decode()}"
        score = (await scorer.get(url)).json()
        if score > 0.8:
            alert = Alert(payments=count, score=score)
            await broker.publish(alert, "alerts", key=card)


if __name__ == "__main__":
    asyncio.run(app.run())
