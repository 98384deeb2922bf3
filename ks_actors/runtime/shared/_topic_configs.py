"""The settings of internal topics: settings for creation, and checks of existing topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ks_actors.topology import StoreKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.config import StreamsConfig
    from ks_actors.log import NewTopic
    from ks_actors.topology import InternalTopic, StoreSpec

LONGEST_MS: Final = (1 << 63) - 1
AFTER_MAX: Final = "message.timestamp.after.max.ms"
"""Limit on how far record times may be ahead of the broker's clock.

Internal topics accept any time that a source topic accepted. Kafka's default, an hour, would end
the app.
"""
_ANY_TIME = {"message.timestamp.type": "CreateTime", AFTER_MAX: str(LONGEST_MS)}
_REPARTITION = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "segment.bytes": "52428800",
    **_ANY_TIME,
}
# As in Kafka Streams, regardless of windowstore_changelog_additional_retention_ms.
_DAY_MS = 86_400_000
_WINDOWED = {
    StoreKind.WINDOW,
    StoreKind.TIMESTAMPED_WINDOW,
    StoreKind.SESSION,
    StoreKind.WINDOW_WITH_HEADERS,
    StoreKind.SESSION_WITH_HEADERS,
}
_UNLIMITED = -1


def repartition_configs(config: StreamsConfig, topic: InternalTopic) -> dict[str, str]:
    """Return the settings for a new repartition topic."""
    return {**_REPARTITION, **config.topic_configs, **topic.configs}


def changelog_configs(config: StreamsConfig, spec: StoreSpec) -> dict[str, str]:
    """Return the settings for a store's new changelog.

    As in Kafka Streams, `topic_configs` override the defaults, but not the times that a store
    requires.
    """
    configs = {"cleanup.policy": "compact", **_ANY_TIME}
    if spec.kind in _WINDOWED:
        configs["cleanup.policy"] = "delete" if spec.retain_duplicates else "compact,delete"
    configs |= config.topic_configs
    if spec.kind in _WINDOWED:
        # Cap unlimited retention at the largest value that a log accepts.
        configs["retention.ms"] = str(
            min(
                spec.retention_ms + config.windowstore_changelog_additional_retention_ms, LONGEST_MS
            )
        )
    if spec.kind is StoreKind.VERSIONED:
        # Keep older versions from compaction as long as they can be queried.
        configs["min.compaction.lag.ms"] = str(min(spec.history_retention_ms + _DAY_MS, LONGEST_MS))
    return {**configs, **spec.changelog_configs}


def misfits(wanted: NewTopic, found: Mapping[str, str]) -> list[str]:
    """Return settings by which a topic loses required records, each with the required value.

    Unknown settings count as right. The topic must not delete where the last record of each key
    must stay, nor compact where every record counts. Deletion and compaction may not happen earlier
    than the app's own setting permits. Kafka Streams has such rules (InternalTopicManager.validate)
    but does not check its topics by them at the start. Two rules are milder here: users' own
    settings count as wanted, and a size limit that brokers set for all topics is ignored.
    """
    problems: list[str] = []

    def note(name: str, needed: str) -> None:
        problems.append(f"{wanted.name} has {name}={found[name]} and needs {needed}")

    policies = _policies(wanted.configs.get("cleanup.policy", "delete"))
    there = _policies(found["cleanup.policy"]) if "cleanup.policy" in found else policies
    # Kafka Streams has created changelogs of joins both with and without compaction.
    excused = {"compact"} if wanted.name.endswith("-changelog") else set[str]()
    if there - policies - excused:
        note("cleanup.policy", ",".join(sorted(policies)))
    elif "delete" in there:
        for name in ("retention.ms", "retention.bytes"):
            needed = wanted.configs.get(name)
            if needed is not None and _less(found.get(name), needed, most=_UNLIMITED):
                note(name, needed if needed == str(_UNLIMITED) else f"{needed} or more")
    lag = wanted.configs.get("min.compaction.lag.ms")
    if lag is not None and _less(found.get("min.compaction.lag.ms"), lag):
        note("min.compaction.lag.ms", f"{lag} or more")
    return problems


def _policies(text: str) -> frozenset[str]:
    return frozenset(text.replace(" ", "").split(","))


def _less(found: str | None, needed: str, *, most: int | None = None) -> bool:
    """Return whether a number is below another number; `most` is above all numbers.

    Return False for text that is no number: the log itself reports such text.
    """
    try:
        at, least = int(needed if found is None else found), int(needed)
    except ValueError:
        return False
    return at != most and (least == most or at < least)
