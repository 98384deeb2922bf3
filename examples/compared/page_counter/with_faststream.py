"""Visits of pages, counted behind HTTP, with FastStream in FastAPI.

The counts are lost when the process ends, and when a partition moves.
"""

from collections import Counter

import uvicorn
from fastapi import FastAPI
from faststream.kafka.fastapi import Context, KafkaRouter

router = KafkaRouter("localhost:9092")
counts: Counter[str] = Counter()


@router.subscriber("visits", group_id="counter", auto_offset_reset="earliest")
async def count(
    body: str = "", key: bytes = Context("message.raw_message.key")
):
    counts[key.decode()] += 1


@router.post("/visit/{page}")
async def visit(page: str):
    await router.broker.publish("", "visits", key=page.encode())


@router.get("/count/{page}")
async def read(page: str) -> dict[str, int]:
    return {"count": counts[page]}


api = FastAPI()
api.include_router(router)

if __name__ == "__main__":
    uvicorn.run(api, port=8080)
