"""Word count with Quix Streams."""

from quixstreams import Application

app = Application(
    "localhost:9092", consumer_group="word-count", auto_offset_reset="earliest"
)
lines = app.topic("lines", value_deserializer="str")
counts = app.topic("counts", key_serializer="str", value_serializer="int")


def count(word, state):
    total = state.get("count", 0) + 1
    state.set("count", total)
    return total


words = app.dataframe(lines).apply(str.split, expand=True)
words = words.group_by(lambda word: word, name="word")
words.apply(count, stateful=True).to_topic(counts)

if __name__ == "__main__":
    app.run()
