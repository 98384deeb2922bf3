"""Applications that cannot be made, each for another reason."""

from __future__ import annotations

from typing import Any

from ks_actors import App, Consumed, Produced, StreamsBuilder, StreamsConfig, Topology
from ks_actors.serdes import STRING


def without_serdes() -> Topology:
    """A topology that is right only for an app with default serdes."""
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder.build()


def wrong_argument(_: StreamsConfig) -> Topology:
    """An error of an operation."""
    builder = StreamsBuilder()
    wrong: Any = "by the key"
    builder.stream("in", Consumed(STRING, STRING)).group_by(wrong)
    return builder.build()


def reads_nothing() -> Topology:
    """An error of an app."""
    return StreamsBuilder().build()


class FailsToBuild:
    """An error of `build` itself."""

    def build(self) -> Topology:
        """Add a node twice."""
        topology = Topology()
        topology.add_source("source", "in")
        topology.add_source("source", "other")
        return topology


fails_to_build = FailsToBuild()


def wrong_setting() -> App:
    """An error of a setting, in the code of the user."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).to("out", Produced(STRING, STRING))
    return App(builder.build(), StreamsConfig.of({"application_id": "broken", "acks": "0"}))
