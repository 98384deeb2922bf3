"""Word count with FastStream: the counts are lost when the process ends."""

import asyncio
from collections import Counter

from faststream import FastStream
from faststream.kafka import KafkaBroker

broker = KafkaBroker("localhost:9092")
app = FastStream(broker)
counts = Counter()


@broker.subscriber("lines", group_id="split", auto_offset_reset="earliest")
async def split(line: str):
    for word in line.split():
        await broker.publish(word, "words", key=word.encode())


@broker.subscriber("words", group_id="count", auto_offset_reset="earliest")
async def count(word: str):
    counts[word] += 1
    await broker.publish(counts[word], "counts", key=word.encode())


if __name__ == "__main__":
    asyncio.run(app.run())
