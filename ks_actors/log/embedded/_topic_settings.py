"""The settings of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ks_actors.log.embedded._topic_configs import check_configs, policies

if TYPE_CHECKING:
    from collections.abc import Mapping


class TopicSettings(msgspec.Struct, frozen=True):
    """The configs of a topic that the embedded log uses.

    A limit of None, the default of this log, means no limit. Kafka's defaults are 7 days of
    retention, and times at most an hour after the broker's clock.
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


def read_settings(name: str, configs: Mapping[str, str]) -> TopicSettings:
    """Return the settings in `configs`; unused settings are only checked.

    Raises ConfigError for settings that Kafka would reject.
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
