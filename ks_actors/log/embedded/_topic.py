"""A topic and its settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

import msgspec

from ks_actors._errors import LogError
from ks_actors.log.embedded._topic_configs import check_configs, policies

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors.log._types import NewTopic
    from ks_actors.log.embedded._partition import Partition

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Kafka's internal topics: apps cannot write to them."""

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")
# The most partitions that Kafka makes by one request.
_AT_ONCE = 10_000


class TopicSettings(msgspec.Struct, frozen=True):
    """The configs of a topic that the embedded log uses.

    None for a limit is no limit, which is the default here. Kafka's defaults are 7 days of
    retention, and times of at most an hour after the broker's.
    """

    compacted: bool = False
    retention_ms: int | None = None
    retention_bytes: int | None = None
    max_message_bytes: int = 1_048_588
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    append_time: bool = False
    before_max_ms: int | None = None
    after_max_ms: int | None = None

    @property
    def cleaned(self) -> bool:
        """Whether cleaning could remove any records."""
        return self.compacted or self.retention_ms is not None or self.retention_bytes is not None


@final
class Topic:
    """A topic; `partitions` are in the order of their numbers.

    `id` is never used again, not even for a topic of the same name.
    """

    __slots__ = ("configs", "id", "name", "partitions", "settings")

    def __init__(self, identity: int, name: str, configs: Mapping[str, str]) -> None:
        self.id: int = identity
        self.name: str = name
        self.configs: Mapping[str, str] = configs
        self.settings: TopicSettings = read_settings(name, configs)
        self.partitions: list[Partition] = []


def check_topic(name: str, partitions: int) -> None:
    """Raise LogError for a topic that Kafka would reject."""
    if not _LEGAL.fullmatch(name) or name in {".", ".."}:
        raise LogError(
            f"{name!r} is not a valid topic name: use 1 to 249 of the characters a-z, A-Z, 0-9, "
            "'.', '_' and '-'"
        )
    if partitions < 1:
        raise LogError(f"topic {name} has {partitions} partitions: give 1 or more")


def check_topics(topics: Iterable[NewTopic], existing: Iterable[str]) -> None:
    """Raise LogError for topics that Kafka would not make by one request.

    Raises ConfigError for settings that Kafka would reject.
    """
    alike = {name.replace(".", "_"): name for name in existing}
    count = 0
    for topic in topics:
        check_topic(topic.name, topic.partitions)
        check_configs(topic.name, topic.configs)
        other = alike.setdefault(topic.name.replace(".", "_"), topic.name)
        if other != topic.name:
            raise LogError(
                f"topic {topic.name} collides with topic {other}: '.' and '_' are the same in "
                "names of metrics; choose another name"
            )
        count += topic.partitions
    if count > _AT_ONCE:
        raise LogError(
            f"{count} partitions are more than Kafka creates at once ({_AT_ONCE}): create topics "
            "one by one, and add partitions later"
        )


def read_settings(name: str, configs: Mapping[str, str]) -> TopicSettings:
    """Return the settings in `configs`; those that the embedded log does not use are only checked.

    Raises ConfigError for those that Kafka would reject.
    """
    check_configs(name, configs)
    cleaning = policies(configs.get("cleanup.policy", "delete"))
    defaults = TopicSettings()
    return TopicSettings(
        compacted="compact" in cleaning,
        retention_ms=_limit(configs, "retention.ms") if "delete" in cleaning else None,
        retention_bytes=_limit(configs, "retention.bytes") if "delete" in cleaning else None,
        max_message_bytes=int(configs.get("max.message.bytes", defaults.max_message_bytes)),
        delete_retention_ms=int(configs.get("delete.retention.ms", defaults.delete_retention_ms)),
        min_compaction_lag_ms=int(
            configs.get("min.compaction.lag.ms", defaults.min_compaction_lag_ms)
        ),
        append_time=configs.get("message.timestamp.type", "").strip() == "LogAppendTime",
        before_max_ms=_limit(configs, "message.timestamp.before.max.ms"),
        after_max_ms=_limit(configs, "message.timestamp.after.max.ms"),
    )


def _limit(configs: Mapping[str, str], key: str) -> int | None:
    value = int(configs.get(key, -1))
    return None if value < 0 else value
