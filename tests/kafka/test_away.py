"""A broker that is away while an app has the default settings, in brief."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.checks import GUARANTEES
from tests.kafka.away import be_away
from tests.kafka.broker import Broker


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_an_app_with_default_settings_goes_on(own_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """A broker that is stopped and started again under a count costs no record; exactly once no result is doubled."""
    back = await be_away(own_broker, tmp_path, guarantee, 0.0, frozen=False, records=1_000)
    assert back.first <= back.last
