"""All logs that have to pass the tests of the port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ks_actors.log.embedded import EmbeddedLog
from tests.log.helpers import Clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ks_actors.log import Log


@pytest.fixture(params=["memory", "durable"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Log]:
    """A log that is started."""
    made = EmbeddedLog() if request.param == "memory" else EmbeddedLog(tmp_path / "log")
    await made.start()
    yield made
    await made.close()


@pytest.fixture
def clock() -> Clock:
    """What the embedded log takes for the time."""
    return Clock()


@pytest.fixture(params=["memory", "durable"])
async def embedded(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[EmbeddedLog]:
    """An embedded log that is started, for what the port does not have."""
    async with EmbeddedLog(clock=clock) if request.param == "memory" else EmbeddedLog(tmp_path / "log", clock=clock) as made:
        yield made
