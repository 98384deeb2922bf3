"""Word count with Faust."""

import faust

app = faust.App(
    "word-count", broker="kafka://localhost:9092", topic_partitions=2
)
lines = app.topic("lines", value_type=str, value_serializer="raw")
words = app.topic("words", key_type=str, value_type=str)
results = app.topic("counts", key_type=str, value_type=int)
counts = app.Table("word-counts", default=int)


@app.agent(lines)
async def split(stream):
    async for line in stream:
        for word in line.split():
            await words.send(key=word, value=word)


@app.agent(words)
async def count(stream):
    async for word in stream:
        counts[word] += 1
        await results.send(key=word, value=counts[word])


if __name__ == "__main__":
    app.main()
