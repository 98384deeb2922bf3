"""Word count with ks-actors."""

from ks_actors import App, Grouped, StreamsBuilder, Topic

builder = StreamsBuilder()
words = builder.stream(Topic("lines", str, str)).flat_map_values(str.split)
counts = words.group_by(lambda _, word: word, Grouped(str)).count()
counts.to_stream().to(Topic("counts", str, int))

if __name__ == "__main__":
    App(builder, "word-count", "localhost:9092").main()
