"""Clicks within ten seconds of their impressions, with ks-actors."""

from datetime import timedelta
from typing import Any

from ks_actors import App, JoinWindows, StreamsBuilder, Topic

builder = StreamsBuilder()
impressions = builder.stream(Topic("impressions", str, dict[str, Any]))
clicks = builder.stream(Topic("clicks", str, dict[str, Any]))
windows = JoinWindows.of_time_difference_and_grace(
    timedelta(seconds=10), timedelta(minutes=1)
).after(0)


def effect(click: dict[str, Any], impression: dict[str, Any]) -> dict[str, Any]:
    return {"ad": impression["ad"], "page": click["page"]}


clicks.join(impressions, effect, windows).to(
    Topic("effects", str, dict[str, Any])
)

if __name__ == "__main__":
    App(builder, "windowed-join", "localhost:9092").main()
