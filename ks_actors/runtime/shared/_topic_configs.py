"""The settings of internal topics: those they are made with, and whether those that are there already keep what they are to keep."""

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
"""How far ahead of the clock times may be. Internal topics take any time that a source topic took; Kafka's default, an hour, would end the app."""
_ANY_TIME = {"message.timestamp.type": "CreateTime", AFTER_MAX: str(LONGEST_MS)}
_REPARTITION = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "52428800", **_ANY_TIME}
_DAY_MS = 86_400_000  # as in Kafka Streams, whatever windowstore_changelog_additional_retention_ms says
_WINDOWED = {StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION}
_UNLIMITED = -1


def repartition_configs(topic: InternalTopic) -> dict[str, str]:
    """Return what a repartition topic is made with."""
    return {**_REPARTITION, **topic.configs}


def changelog_configs(config: StreamsConfig, spec: StoreSpec) -> dict[str, str]:
    """Return what the changelog of a store is made with."""
    configs = {"cleanup.policy": "compact", **_ANY_TIME}
    if spec.kind in _WINDOWED:
        configs["cleanup.policy"] = "delete" if spec.retain_duplicates else "compact,delete"
        # Unlimited windows are kept for ever: more than a log can be told is that.
        configs["retention.ms"] = str(min(spec.retention_ms + config.windowstore_changelog_additional_retention_ms, LONGEST_MS))
    if spec.kind is StoreKind.VERSIONED:
        # The older versions of a key are wanted: they are not compacted away as long as they can be asked for.
        configs["min.compaction.lag.ms"] = str(min(spec.history_retention_ms + _DAY_MS, LONGEST_MS))
    return {**configs, **spec.changelog_configs}


def misfits(wanted: NewTopic, found: Mapping[str, str]) -> list[str]:
    """Return by what settings a topic loses what it is to keep, each with what is needed; what is not known of it is taken for right.

    Nothing may be deleted where the last record of a key is to stay, nothing compacted where each record counts, and neither earlier than the topic
    was to be made with. Kafka Streams has such rules (InternalTopicManager.validate), and does not look at its topics by them when it starts. Two of
    them are milder here: what users want themselves counts as wanted, and a size that brokers give to all topics is not looked at.
    """
    told: list[str] = []

    def note(name: str, needed: str) -> None:
        told.append(f"{wanted.name} has {name}={found[name]} and needs {needed}")

    policies = _policies(wanted.configs.get("cleanup.policy", "delete"))
    there = _policies(found["cleanup.policy"]) if "cleanup.policy" in found else policies
    # Kafka Streams has made changelogs of joins both ways.
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
    return told


def _policies(text: str) -> frozenset[str]:
    return frozenset(text.replace(" ", "").split(","))


def _less(found: str | None, needed: str, *, most: int | None = None) -> bool:
    """Return whether a number is below another one; `most` is above all. What is none is for the log to complain about."""
    try:
        at, least = int(needed if found is None else found), int(needed)
    except ValueError:
        return False
    return at != most and (least == most or at < least)
