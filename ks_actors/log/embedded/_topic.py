"""A topic, and what its settings mean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, final

import msgspec

from ks_actors._errors import ConfigError, LogError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.log.embedded._partition import Partition

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")
_POLICIES = frozenset({"compact", "delete"})


class TopicSettings(msgspec.Struct, frozen=True):
    """Those of a topic's configs that the embedded log acts on. None for a limit is no limit, which is the default here (Kafka's is 7 days)."""

    compacted: bool = False
    retention_ms: int | None = None
    retention_bytes: int | None = None
    max_message_bytes: int = 1_048_588
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0

    @property
    def cleaned(self) -> bool:
        """Whether there is anything that cleaning could remove."""
        return self.compacted or self.retention_ms is not None or self.retention_bytes is not None


@final
class Topic:
    """A topic as it is; `partitions` are in the order of their numbers. `id` is never used again, not even for a topic of the same name."""

    __slots__ = ("configs", "id", "name", "partitions", "settings")

    def __init__(self, identity: int, name: str, configs: Mapping[str, str]) -> None:
        self.id: int = identity
        self.name: str = name
        self.configs: Mapping[str, str] = configs
        self.settings: TopicSettings = read_settings(name, configs)
        self.partitions: list[Partition] = []


def check_topic(name: str, partitions: int) -> None:
    """Raise LogError for what Kafka would not take as a topic."""
    if not _LEGAL.fullmatch(name) or name in {".", ".."}:
        raise LogError(f"{name!r} is no name of a topic: use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'")
    if partitions < 1:
        raise LogError(f"topic {name} needs at least one partition, not {partitions}")


def read_settings(name: str, configs: Mapping[str, str]) -> TopicSettings:
    """Return what `configs` say. Settings that the embedded log has no use for are kept unread; ConfigError for a value that is none."""
    policies = frozenset(configs.get("cleanup.policy", "delete").replace(" ", "").split(","))
    if not policies <= _POLICIES:
        raise ConfigError(f"topic {name}: cleanup.policy is 'compact', 'delete' or both, not {configs['cleanup.policy']!r}")
    defaults = TopicSettings()
    return TopicSettings(
        compacted="compact" in policies,
        retention_ms=_limit(name, configs, "retention.ms") if "delete" in policies else None,
        retention_bytes=_limit(name, configs, "retention.bytes") if "delete" in policies else None,
        max_message_bytes=_number(name, configs, "max.message.bytes", defaults.max_message_bytes),
        delete_retention_ms=_number(name, configs, "delete.retention.ms", defaults.delete_retention_ms),
        min_compaction_lag_ms=_number(name, configs, "min.compaction.lag.ms", defaults.min_compaction_lag_ms),
    )


def _limit(name: str, configs: Mapping[str, str], key: str) -> int | None:
    value = _number(name, configs, key, -1)
    return None if value < 0 else value


def _number(name: str, configs: Mapping[str, str], key: str, default: int) -> int:
    text = configs.get(key)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"topic {name}: {key} is a whole number, not {text!r}") from None
