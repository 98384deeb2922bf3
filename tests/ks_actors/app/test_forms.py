"""The forms in which apps, drivers and harnesses take their topology and config."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ks_actors import App, ConfigError, Consumed, Materialized, StreamsBuilder, StreamsConfig, Topology, TopologyError
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.serdes import LONG, STRING
from ks_actors.testing import AppHarness, AsyncTopologyTestDriver, TopologyTestDriver
from tests.ks_actors.runtime.helpers import in_virtual_time

SETTINGS: dict[str, Any] = {"application_id": "shop", "num_standby_replicas": 2}


def counting() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).group_by_key().count(Materialized("counts", STRING, LONG)).to_stream().to("out")
    return builder


FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "a StreamsConfig": lambda kind, topology: kind(topology, StreamsConfig.of(SETTINGS)),
    "a dict": lambda kind, topology: kind(topology, SETTINGS),
    "an id and settings": lambda kind, topology: kind(topology, "shop", num_standby_replicas=2),
    "settings": lambda kind, topology: kind(topology, **SETTINGS),
}
KINDS = [App, AppHarness, TopologyTestDriver, AsyncTopologyTestDriver]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("built", [True, False])
def test_all_take_a_builder_or_a_topology_and_a_config_in_four_forms(form: str, kind: Any, built: bool) -> None:
    """In the same order, with the same result."""
    made = FORMS[form](kind, counting().build() if built else counting())
    config = made.config if isinstance(made, App | AppHarness) else made._parts.config
    assert config == StreamsConfig.of(SETTINGS)
    assert str(made._topology.describe()) == str(counting().build().describe())


def test_an_app_takes_its_id_and_its_brokers() -> None:
    """As text or as a list, with settings of Kafka beside them."""
    config = StreamsConfig(application_id="shop", bootstrap_servers="a:1,b:2", linger_ms=5)
    assert App(counting(), "shop", "a:1,b:2", linger_ms=timedelta(milliseconds=5)).config == config
    assert App(counting(), "shop", ["a:1", "b:2"], linger_ms=5).config == config
    assert App(counting(), application_id="shop", bootstrap_servers="a:1,b:2", linger_ms=5).config == config


def test_the_log_of_an_app_is_an_object_or_a_url() -> None:
    """A URL is the setting of this name, in the place of that of the config."""
    assert App(counting(), "shop", log="memory://").config == StreamsConfig(application_id="shop", log="memory://")
    assert App(counting(), StreamsConfig(application_id="shop"), log="memory://").config.log == "memory://"
    log = EmbeddedLog()
    assert App(counting(), "shop", log=log)._given_log is log


@pytest.mark.parametrize("kind", KINDS)
def test_a_builder_builds_for_the_config(kind: Any) -> None:
    """With the optimizations that it asks for."""
    made = kind(counting(), "shop", topology_optimization="all")
    assert made._topology.optimizations == counting().build(StreamsConfig(application_id="shop", topology_optimization="all")).optimizations


def test_operations_after_the_app_are_not_part_of_it() -> None:
    """The builder is built in the call."""
    builder = counting()
    app = App(builder, "shop")
    builder.stream("more", Consumed(STRING, STRING)).to("out")
    assert "more" not in str(app._topology.describe())


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no id": (lambda: App(counting()), ConfigError, r"App has no application id: give one, such as App\(topology, 'orders', 'localhost:9092'\)"),
    "two ids": (lambda: App(counting(), "a", application_id="b"), ConfigError, "App has two application ids, 'a' and 'b': give one of them"),
    "a config with brokers": (
        lambda: App(counting(), StreamsConfig(application_id="a"), "b:1"),
        ConfigError,
        "App has a StreamsConfig, and bootstrap_servers beside it: settings go into config.replace",
    ),
    "a dict with settings": (
        lambda: App(counting(), {"application_id": "a"}, poll_ms=1),
        ConfigError,
        "has a dict, and poll_ms beside .* go into the dict",
    ),
    "a dict without id": (lambda: App(counting(), {"poll_ms": 1}), ConfigError, "application_id: is required"),
    "another config": (lambda: App(counting(), 5), ConfigError, r"argument 'config' of App is 5: give a StreamsConfig, a dict"),  # type: ignore[arg-type]
    "the other order": (lambda: App("a", counting()), TopologyError, r"give a StreamsBuilder or a Topology first, such as App\(builder, 'a'\)"),  # type: ignore[arg-type]
    "a class": (lambda: App(StreamsBuilder, "a"), TopologyError, "argument 'topology' of App is the class StreamsBuilder"),  # type: ignore[arg-type]
    "an empty builder": (lambda: App(StreamsBuilder(), "a"), TopologyError, "the topology of App reads no topic"),
    "an unknown setting": (lambda: App(counting(), "a", pol_ms=5), ConfigError, "poll_ms"),  # type: ignore[call-arg]
    "driver": (
        lambda: TopologyTestDriver(counting(), StreamsConfig(application_id="a"), poll_ms=1),
        ConfigError,
        "TopologyTestDriver has a StreamsConfig",
    ),
    "harness": (lambda: AppHarness(counting(), {}, poll_ms=1), ConfigError, "AppHarness has a dict, and poll_ms"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_form_is_refused_with_the_right_one(name: str) -> None:
    """Settings have one place; the errors say it."""
    call, kind, told = WRONG[name]
    with pytest.raises(kind, match=told):
        call()


@in_virtual_time
async def test_a_harness_of_a_config_restarts_with_changed_settings() -> None:
    """And makes further instances, each with a directory of its own unless it is named."""
    async with AppHarness(counting(), StreamsConfig(application_id="shop"), topics={"in": 1, "out": 1}) as harness:
        await harness.restart(counting(), commit_interval_ms=timedelta(seconds=1))
        assert (harness.config.application_id, harness.config.commit_interval_ms) == ("shop", 1_000)
        other = harness.another(counting(), num_standby_replicas=1)
        async with other:
            assert (other.config.client_id, other.config.commit_interval_ms) == ("shop-2", 1_000)
            assert other.state_dir != harness.state_dir


def typed(builder: StreamsBuilder, topology: Topology, config: StreamsConfig) -> None:
    """Each form passes a type checker."""
    App(builder, "a", "b:1", processing_guarantee="exactly_once_v2")
    App(topology, config, topics={"in": 1})
    App(topology, {"application_id": "a"}, log="memory://")
    TopologyTestDriver(builder, num_workers=2)
    AppHarness(builder, "a", seed=5, poll_ms=timedelta(seconds=1))
