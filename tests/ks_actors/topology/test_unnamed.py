"""Generated names of stores and internal topics are an error, or a warning, as the setting says (KIP-1111)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ks_actors import (
    App,
    BufferConfig,
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    Repartitioned,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    Topology,
    TopologyError,
    stores,
)
from ks_actors.serdes import STRING
from ks_actors.testing import TopologyTestDriver

if TYPE_CHECKING:
    from ks_actors import Stream

LENIENT = StreamsConfig(application_id="app", default_key_serde=STRING, default_value_serde=STRING)
STRICT = LENIENT.replace(ensure_explicit_internal_resource_naming=True)
TEXTS = Consumed(STRING, STRING)
COUNT = "KSTREAM-AGGREGATE-STATE-STORE-0000000002"


def source(builder: StreamsBuilder, topic: str = "in") -> Stream[str, str]:
    return builder.stream(topic, TEXTS)


def unnamed_count() -> StreamsBuilder:
    builder = StreamsBuilder()
    source(builder).group_by(lambda _, value: value, Grouped(STRING, STRING)).count()
    return builder


def everything_named() -> StreamsBuilder:
    """Return a builder of each operation that makes a store or a topic, all of them named."""
    builder = StreamsBuilder()
    stream = source(builder)
    other = source(builder, "other").select_key(lambda _, value: value)
    stream.group_by(lambda _, value: value, Grouped(STRING, STRING, name="by-value")).count(Materialized("counts", key=STRING))
    table = builder.table("rows", TEXTS, Materialized("rows", STRING, STRING))
    table.suppress(Suppressed.until_time_limit(5, BufferConfig.unbounded()).with_name("slowly")).to_stream().to("out")
    table.group_by(lambda _, value: (value, value), Grouped(STRING, STRING, name="by-row")).count(Materialized("rows-per-value", key=STRING))
    other.join(table, lambda one, row: one + row, Joined(STRING, STRING, STRING, name="with-rows")).to("out")
    other.repartition(Repartitioned(STRING, STRING, name="again")).to("out")
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    stream.outer_join(
        other, lambda one, two: f"{one}{two}", windows, StreamJoined(STRING, STRING, STRING, name="both", store_name="both")
    ).to("out")  # fmt: skip
    builder.global_table("everywhere", TEXTS, Materialized("everywhere", STRING, STRING))
    builder.add_state_store(stores.key_value("own", STRING, STRING))
    return builder


def test_a_topology_with_names_passes() -> None:
    """Each operation that makes a store or a topic takes a name."""
    topology = everything_named().build(STRICT)
    assert topology.unnamed == ((), (), ())
    TopologyTestDriver(topology, STRICT).close()


def test_generated_names_are_an_error_of_the_build() -> None:
    """It lists all of them, and says what to do."""
    with pytest.raises(TopologyError) as caught:
        unnamed_count().build(STRICT)
    assert str(caught.value) == (
        f"ensure_explicit_internal_resource_naming is true, and names were generated for changelog topics: {COUNT}-changelog; stores: {COUNT}; "
        f"repartition topics: {COUNT}-repartition. These names have numbers that change when an operation is added or removed upstream, and the "
        "application would then begin with empty state: give names by Materialized, Grouped, Joined, StreamJoined, TableJoined, "
        "Repartitioned and Suppressed, or by the argument 'name'"
    )


def test_generated_names_are_an_error_of_the_app_when_the_build_did_not_know_the_config() -> None:
    """Neither an app nor a test driver runs such a topology."""
    topology = unnamed_count().build()
    for begin in (lambda: App(topology, STRICT), lambda: TopologyTestDriver(topology, STRICT)):
        with pytest.raises(TopologyError, match=f"names were generated for changelog topics: {COUNT}-changelog; stores: {COUNT}; repartition"):
            begin()


def test_generated_names_are_a_warning_without_the_setting(caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka Streams, but only where the build is given a config."""
    unnamed_count().build()
    assert caplog.messages == []
    unnamed_count().build(LENIENT)
    (message,) = caplog.messages
    assert message.startswith(
        f"names were generated for changelog topics: {COUNT}-changelog; stores: {COUNT}; repartition topics: {COUNT}-repartition."
    )
    assert message.endswith("with ensure_explicit_internal_resource_naming=True this is an error")
    everything_named().build(LENIENT)
    assert len(caplog.messages) == 1


def test_what_is_not_made_needs_no_name() -> None:
    """A table that nothing looks up has no store, a table that is read from its topic no changelog, a global one likewise."""
    builder = StreamsBuilder()
    table = builder.table("rows", TEXTS)
    table.to_stream().to("out")
    assert not any(builder.build(STRICT).unnamed)
    table.filter(lambda *_: True, materialized=Materialized("some", STRING, STRING))
    builder.stream("in", TEXTS).join(table, lambda one, row: one + row).to("out")
    builder.global_table("all", TEXTS)
    topology = builder.build(LENIENT.replace(topology_optimization="reuse.ktable.source.topics"))
    assert topology.unnamed.changelogs == ()
    assert [name.rpartition("-STATE-STORE-")[0] for name in topology.unnamed.stores] == ["rows", "all"]


def test_a_topology_made_by_hand_has_no_generated_names() -> None:
    """The look of its names does not matter."""
    topology = (
        Topology()
        .add_source("in", "in", key=STRING, value=STRING)
        .add_state_store(stores.key_value("KSTREAM-AGGREGATE-STATE-STORE-0000000002", STRING, STRING))
    )
    assert not any(topology.unnamed)
    TopologyTestDriver(topology, STRICT).close()
