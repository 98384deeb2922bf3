"""Kerberos without its package; tests/kafka has the logins."""

from __future__ import annotations

import sys

import pytest

from ks_actors import ConfigError
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from tests.waiting import soon


async def test_a_missing_kerberos_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, whether a broker answers or not."""
    monkeypatch.setitem(sys.modules, "gssapi", None)
    log = KafkaLog("127.0.0.1:1", options=KafkaOptions(sasl_mechanism="GSSAPI"))
    with pytest.raises(ConfigError, match=r"GSSAPI needs Kerberos's library and gssapi: pip install 'ks-actors\[gssapi\]'"):
        await soon(log.start())
    await log.close()
