"""The forms in which an app takes its config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ks_actors._errors import ConfigError, TopologyError
from ks_actors.config._config import StreamsConfig

if TYPE_CHECKING:
    from collections.abc import Sequence


def config_of(
    topology: object,
    config: StreamsConfig | Mapping[str, Any] | str | None,
    bootstrap_servers: str | Sequence[str] | None,
    settings: Mapping[str, Any],
    *,
    of: str,
    default_id: str | None = None,
) -> StreamsConfig:
    """Return the config of an app's arguments.

    The arguments are a StreamsConfig, or a mapping of all settings, or an application id and other
    settings. Raises ConfigError for a mixture of these, for wrong settings, and for a missing id
    without a default.
    """
    if isinstance(topology, str):
        raise TopologyError(
            f"argument 'topology' of {of} is {topology!r}: give a StreamsBuilder or a Topology "
            f"first, such as {of}(builder, {topology!r})"
        )
    beside = dict(settings)
    if bootstrap_servers is not None:
        beside["bootstrap_servers"] = bootstrap_servers
    if isinstance(config, str):
        if "application_id" in beside:
            raise ConfigError(
                f"{of} has two application ids, {config!r} and {beside['application_id']!r}: give "
                "one of them"
            )
        return StreamsConfig.of({"application_id": config, **beside})
    if config is None:
        if default_id is not None:
            beside.setdefault("application_id", default_id)
        if "application_id" not in beside:
            raise ConfigError(f"{of} has no application id: give one, {_EXAMPLE.format(of)}")
        return StreamsConfig.of(beside)
    if not isinstance(config, StreamsConfig | Mapping):
        raise ConfigError(
            f"argument 'config' of {of} is {config!r}: give a StreamsConfig, a dict of settings, "
            f"or an application id, {_EXAMPLE.format(of)}"
        )
    if beside:
        remedy = "config.replace(…)" if isinstance(config, StreamsConfig) else "the dict"
        raise ConfigError(
            f"{of} has a {type(config).__name__}, and {', '.join(beside)} beside it: settings go "
            f"into {remedy}"
        )
    if isinstance(config, StreamsConfig):
        return config
    default = {} if default_id is None else {"application_id": default_id}
    return StreamsConfig.of({**default, **config})


_EXAMPLE = "such as {}(topology, 'orders', 'localhost:9092')"
