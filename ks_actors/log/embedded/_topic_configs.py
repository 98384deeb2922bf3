"""Kafka's topic settings: their names, values and defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, final

from ks_actors._errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
_INT: Final = (1 << 31) - 1
_LONG: Final = (1 << 63) - 1
_Check = "Callable[[str], str | None]"


class _Config(NamedTuple):
    """One setting: its default, and a check.

    The check returns a description of valid values, or None for a valid value.
    """

    default: str
    check: Callable[[str], str | None]


def _whole(
    least: int, most: int = _LONG, *, also: int | None = None
) -> Callable[[str], str | None]:
    def check(text: str) -> str | None:
        if _WHOLE.fullmatch(text) is None:
            return "a whole number"
        value = int(text)
        return None if least <= value <= most or value == also else f"{least} to {most}"

    return check


def _ratio(text: str) -> str | None:
    try:
        return None if 0 <= float(text) <= 1 else "0 to 1"
    except ValueError:
        return "a number"


def _one_of(*values: str) -> Callable[[str], str | None]:
    return lambda text: None if text.strip() in values else f"one of {', '.join(values)}"


def _policies(text: str) -> str | None:
    return None if policies(text) <= {"compact", "delete"} else "'compact', 'delete' or both"


def policies(text: str) -> frozenset[str]:
    """Return the policies in a `cleanup.policy`."""
    return frozenset(filter(None, (word.strip() for word in text.split(","))))


def _truth(text: str) -> str | None:
    return None if text.strip().lower() in {"true", "false"} else "true or false"


def _no(text: str) -> str | None:
    return _truth(text) or (
        None if text.strip().lower() == "false" else "false, where the log has no tiered storage"
    )


def _replicas(text: str) -> str | None:
    return (
        None
        if not text or text == "*" or re.fullmatch(r"[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*", text)
        else "'*', or partition:broker, ..."
    )


_CONFIGS: Final[Mapping[str, _Config]] = {
    "cleanup.policy": _Config("delete", _policies),
    "compression.gzip.level": _Config("-1", _whole(1, 9, also=-1)),
    "compression.lz4.level": _Config("9", _whole(1, 17)),
    "compression.type": _Config(
        "producer", _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
    ),
    "compression.zstd.level": _Config("3", _whole(-131_072, 22)),
    "delete.retention.ms": _Config("86400000", _whole(0)),
    "file.delete.delay.ms": _Config("60000", _whole(0)),
    "flush.messages": _Config(str(_LONG), _whole(1)),
    "flush.ms": _Config(str(_LONG), _whole(0)),
    "follower.replication.throttled.replicas": _Config("", _replicas),
    "index.interval.bytes": _Config("4096", _whole(0, _INT)),
    "leader.replication.throttled.replicas": _Config("", _replicas),
    "local.retention.bytes": _Config("-2", _whole(-2)),
    "local.retention.ms": _Config("-2", _whole(-2)),
    "max.compaction.lag.ms": _Config(str(_LONG), _whole(1)),
    "max.message.bytes": _Config("1048588", _whole(0, _INT)),
    "message.timestamp.after.max.ms": _Config("3600000", _whole(0)),
    "message.timestamp.before.max.ms": _Config(str(_LONG), _whole(0)),
    "message.timestamp.type": _Config("CreateTime", _one_of("CreateTime", "LogAppendTime")),
    "min.cleanable.dirty.ratio": _Config("0.5", _ratio),
    "min.compaction.lag.ms": _Config("0", _whole(0)),
    "min.insync.replicas": _Config("1", _whole(1, _INT)),
    "preallocate": _Config("false", _truth),
    "remote.log.copy.disable": _Config("false", _truth),
    "remote.log.delete.on.disable": _Config("false", _truth),
    "remote.storage.enable": _Config("false", _no),
    "retention.bytes": _Config("-1", _whole(-(1 << 63))),
    "retention.ms": _Config("604800000", _whole(-1)),
    "segment.bytes": _Config("1073741824", _whole(1 << 20, _INT)),
    "segment.index.bytes": _Config("10485760", _whole(4, _INT)),
    "segment.jitter.ms": _Config("0", _whole(0)),
    "segment.ms": _Config("604800000", _whole(1)),
    "unclean.leader.election.enable": _Config("false", _truth),
}


def check_configs(topic: str, configs: Mapping[str, str]) -> None:
    """Raise ConfigError for a setting that Kafka 4 does not know, or for an invalid value."""
    for name, value in configs.items():
        config = _CONFIGS.get(name)
        if config is None:
            raise ConfigError(
                f"topic {topic}: Kafka has no topic config {name!r}; it has {', '.join(_CONFIGS)}"
            )
        wanted = config.check(value)
        if wanted is not None:
            raise ConfigError(f"topic {topic}: {name} must be {wanted}, not {value!r}")


@final
class TopicConfigs(Mapping[str, str]):
    """The settings of a topic: iterates over the given settings, but also finds Kafka's defaults.

    The default of `retention.ms`, seven days, has no effect: without a given limit this log keeps
    records for ever.
    """

    __slots__ = ("_given",)

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given: Mapping[str, str] = given

    def __getitem__(self, name: str) -> str:
        found = self._given.get(name)
        return _CONFIGS[name].default if found is None else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __repr__(self) -> str:
        return repr(dict(self._given))
