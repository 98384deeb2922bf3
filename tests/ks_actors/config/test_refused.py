"""Every setting of Kafka Streams is honoured, or refused by name with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ks_actors import ConfigError, StreamsConfig
from ks_actors.config._names import ALIASES, canonical
from ks_actors.config._recognize import HINT
from ks_actors.config._refused import REFUSED, REFUSED_PREFIXES
from ks_actors.config._settings import SETTINGS
from ks_actors.log import IsolationLevel

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "configuration.md"
THEIRS = [line for line in (HERE / "streams_config_4_4_0.txt").read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def table() -> str:
    """Return the table of the documentation: names with one reason share a row."""
    rows: dict[str, list[str]] = {}
    for name, reason in [*REFUSED.items(), *((f"{prefix}…", reason) for prefix, reason in REFUSED_PREFIXES.items())]:
        rows.setdefault(reason, []).append(f"`{name}`")
    return "\n".join(["| setting | not supported, because |", "|---|---|", *(f"| {', '.join(names)} | {reason} |" for reason, names in rows.items())])


@pytest.mark.parametrize("name", THEIRS)
def test_a_setting_of_kafka_streams_is_honoured_or_refused_with_its_reason(name: str) -> None:
    """None of them is unknown, and none is both."""
    keyword = canonical(name)
    assert (keyword in {*SETTINGS, *ALIASES}) != (keyword in REFUSED)
    if keyword in REFUSED:
        with pytest.raises(ConfigError) as caught:
            StreamsConfig.of({"application.id": "app", name: "1"})
        said = f"a setting is wrong:\n  {keyword} (mapping): not supported, because {REFUSED[keyword]}"
        assert str(caught.value) == f"{said}\n  ({HINT})"


def test_the_list_is_whole() -> None:
    """It has the four settings that came with 4.4, too."""
    assert len(THEIRS) == 79
    assert {"enable.transactional.statestores", "default.interactive.query.isolation.level"} <= set(THEIRS)
    assert {"metadata.cluster.check.enable", "topology.description.push.enabled"} <= set(THEIRS)


def test_the_documentation_has_the_reasons_of_the_code() -> None:
    """The table of refused settings is made from the code: put `table()` there when it differs."""
    assert table() in PAGE.read_text(encoding="utf-8"), f"docs/configuration.md needs this table:\n{table()}"


def test_settings_of_single_clients_are_refused_with_their_reason() -> None:
    """The beginning of their names decides, not the rest."""
    for prefix, reason in REFUSED_PREFIXES.items():
        with pytest.raises(ConfigError, match=rf"{prefix}zzz \(keyword\): not supported, because ") as caught:
            StreamsConfig(application_id="app", **{f"{prefix}zzz": 1})  # type: ignore[arg-type]
        assert reason in str(caught.value)


def test_transactional_stores_cannot_be_switched_off() -> None:
    """They are what there is (KIP-892)."""
    for value in (True, "true", " TRUE "):
        assert StreamsConfig.of({"application.id": "app", "enable.transactional.statestores": value}).enable_transactional_statestores is True
    refused: tuple[Any, ...] = (False, "false", 1, None)
    for value in refused:
        with pytest.raises(
            ConfigError, match=r"enable_transactional_statestores \(mapping\): .* is (not true, the only value|neither true nor false)"
        ):
            StreamsConfig.of({"application.id": "app", "enable.transactional.statestores": value})


def test_the_isolation_of_queries_has_the_name_of_kafka_streams() -> None:
    """The setting is read under its name before as well."""
    for name in ("default.interactive.query.isolation.level", "default_state_isolation_level"):
        made = StreamsConfig.of({"application.id": "app", name: "READ_COMMITTED"})
        assert made.default_interactive_query_isolation_level is IsolationLevel.READ_COMMITTED
