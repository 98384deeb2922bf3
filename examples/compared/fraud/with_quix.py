"""Score cards with more than three payments a minute, with Quix Streams."""

from datetime import timedelta

import httpx
from quixstreams import Application
from quixstreams.dataframe.windows import Count

app = Application(
    "localhost:9092", consumer_group="fraud", auto_offset_reset="earliest"
)
payments = app.topic("payments", key_deserializer="str")
alerts = app.topic("alerts", key_serializer="str")
scorer = httpx.Client()


def score(window, key, timestamp, headers):
    # The calls block: one at a time in each process.
    score = scorer.get(f"http://localhost:8000/score/{key}").json()
    return {"payments": window["payments"], "score": score}


sdf = app.dataframe(payments)
sdf = sdf.tumbling_window(timedelta(minutes=1)).agg(payments=Count()).current()
sdf = sdf.filter(lambda window: window["payments"] > 3)
sdf = sdf.apply(score, metadata=True)
sdf.filter(lambda alert: alert["score"] > 0.8).to_topic(alerts)

if __name__ == "__main__":
    app.run()
