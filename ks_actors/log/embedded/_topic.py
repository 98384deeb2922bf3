"""A topic, and the checks of new topics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

from ks_actors._errors import LogError
from ks_actors.log.embedded._topic_configs import check_configs
from ks_actors.log.embedded._topic_settings import TopicSettings, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors.log._types import NewTopic
    from ks_actors.log.embedded._partition import Partition

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Kafka's internal topics: apps cannot write to them."""

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")
# The most partitions that Kafka creates in one request.
_AT_ONCE = 10_000


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
    """Raise LogError for topics that Kafka would not create in one request.

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
