"""Custom stores at an offset that is not in their changelog: they are given up once, and restored."""

from __future__ import annotations

import json

import pytest

from ks_actors.state import write_checkpoint
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import feed, in_app
from tests.ks_actors.runtime.stores.test_custom_stores import counting
from tests.ks_actors.runtime.stores.test_discarded_state import given_up
from tests.ks_actors.state.custom.test_custom import OnDisk, Transactional

BEYOND = 1 << 40


@pytest.mark.parametrize("kind", [OnDisk, Transactional])
@in_app(lambda kind: counting(kind), topics={"in": 1, "out": 1})
async def test_a_custom_store_beyond_its_changelog_is_given_up_once(
    harness: AppHarness, kind: type[OnDisk], guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its offset goes with it, from the checkpoint file and from its own: the task runs, and counts on."""
    for _ in range(2):
        await harness.produce("in", "k", "v")
    await harness.caught_up()
    await harness.close()
    directory = harness.state_dir / "0_0"
    write_checkpoint(directory, {("app-custom-changelog", 0): BEYOND})
    if kind is Transactional:
        file = directory / "custom" / "data.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"offset": BEYOND}))
    await harness.restart()
    await feed(harness, "in", "k", "v")
    assert [record.value for record in await harness.read("out")] == [1, 2, 3]
    (line,) = given_up(caplog)
    assert f"the store is at {BEYOND}" in line
