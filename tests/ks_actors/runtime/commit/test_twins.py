"""Two instances with the same process id: the state directory of one is a copy of the other's."""

from __future__ import annotations

from random import Random

from ks_actors import StateLocked
from ks_actors.runtime import InstanceState
from ks_actors.runtime.shared._state_directory import PROCESS_FILE
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import EOS, Load, check_counts, counting, in_app


@in_app(counting(), topics={"in": 4, "out": 1}, processing_guarantee=EOS)
async def test_a_twin_ends_and_has_an_id_of_its_own_at_its_next_start(harness: AppHarness) -> None:
    """Exactly once, two instances of one process id do not fence each other forever: one ends by StateLocked, and both go on after its restart."""
    load = Load(harness, Random(1))
    async with harness.another(client_id="second") as second:
        await second.close()
        (second.state_dir / PROCESS_FILE).write_text((harness.state_dir / PROCESS_FILE).read_text())
        await second.restart()
        while InstanceState.ERROR not in (harness.app.state, second.app.state):
            await load.send(5)
            await harness.kit.clock.advance(0.05)
        for each in (harness, second):
            if each.app.state is InstanceState.ERROR:
                error = await each.ended()
                assert isinstance(error, StateLocked)
                assert "copy" in str(error)
                await each.restart()
        await load.through(50)
        ids = [(each.state_dir / PROCESS_FILE).read_text() for each in (harness, second)]
        assert ids[0] != ids[1]
        assert harness.app.state is second.app.state is InstanceState.RUNNING
    check_counts(await harness.read("out"), load.sent, EOS)
