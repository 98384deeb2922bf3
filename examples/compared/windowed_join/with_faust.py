"""Clicks within ten seconds of their impressions, with Faust.

Faust declares joins of streams, and has not implemented them: this one keeps
the impressions of a key in a table, and misses clicks that arrive first.
"""

import faust


class Impression(faust.Record):
    ad: str


class Click(faust.Record):
    page: str


class Effect(faust.Record):
    ad: str
    page: str


app = faust.App(
    "windowed-join", broker="kafka://localhost:9092", topic_partitions=2
)
impressions = app.topic("impressions", key_type=str, value_type=Impression)
clicks = app.topic("clicks", key_type=str, value_type=Click)
effects = app.topic("effects", key_type=str, value_type=Effect)
recent = app.Table("recent", key_type=str, default=list)


@app.agent(impressions)
async def remember(stream):
    async for event in stream.events():
        time = event.message.timestamp
        seen = [[t, ad] for t, ad in recent[event.key] if t > time - 60]
        recent[event.key] = [*seen, [time, event.value.ad]]


@app.agent(clicks)
async def join(stream):
    async for event in stream.events():
        time = event.message.timestamp
        for seen, ad in recent[event.key]:
            if time - 10 <= seen <= time:
                await effects.send(
                    key=event.key, value=Effect(ad=ad, page=event.value.page)
                )


if __name__ == "__main__":
    app.main()
