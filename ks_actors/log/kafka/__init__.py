"""Kafka as a log. Needs the extra `kafka`."""

try:
    from ks_actors.log.kafka._log import KafkaLog
    from ks_actors.log.kafka.client import KafkaOptions
    from ks_actors.log.kafka.login import MskTokens, Token, TokenProvider
except ModuleNotFoundError as _missing:
    if _missing.name != "aiokafka":
        raise
    raise ModuleNotFoundError(
        "ks_actors.log.kafka needs aiokafka: pip install 'ks-actors[kafka]'", name="aiokafka"
    ) from _missing

__all__ = ["KafkaLog", "KafkaOptions", "MskTokens", "Token", "TokenProvider"]
