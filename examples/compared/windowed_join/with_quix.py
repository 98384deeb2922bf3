"""Clicks within ten seconds of their impressions, with Quix Streams."""

from datetime import timedelta

from quixstreams import Application

app = Application(
    "localhost:9092",
    consumer_group="windowed-join",
    auto_offset_reset="earliest",
)
impressions = app.dataframe(app.topic("impressions", key_deserializer="str"))
clicks = app.dataframe(app.topic("clicks", key_deserializer="str"))
effects = app.topic("effects", key_serializer="str")


def effect(click, impression):
    return {"ad": impression["ad"], "page": click["page"]}


clicks.join_interval(
    impressions,
    on_merge=effect,
    grace_ms=timedelta(minutes=1),
    backward_ms=timedelta(seconds=10),
).to_topic(effects)

if __name__ == "__main__":
    app.run()
