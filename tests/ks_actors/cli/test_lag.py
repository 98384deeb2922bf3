"""`ks-actors lag` of groups that have committed little, or nothing."""

from __future__ import annotations

from random import Random

import pytest

from ks_actors import StreamsConfig
from ks_actors.cli._application import Application
from ks_actors.cli._groups import _lags
from ks_actors.dsl import StreamsBuilder
from ks_actors.log import NewMember
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.log.helpers import by_turns
from tests.ks_actors.runtime.helpers import STRINGS


@pytest.mark.parametrize("seed", range(20))
def test_what_members_have_not_committed_is_their_lag(seed: int) -> None:
    """By the id alone, all partitions of an app's members count, with or without a commit, as with its topology."""
    random = Random(seed)
    partitions = random.randrange(1, 5)
    before, after = ([random.randrange(4) for _ in range(partitions)] for _ in range(2))
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).foreach(lambda key, value: None)

    async def test(harness: AppHarness) -> tuple[list[tuple[int, int]], str | None]:
        for counts in (before, after):
            for number, count in enumerate(counts):
                for _ in range(count):
                    await harness.produce("in", "k", "v", 1, partition=number)
            if counts is before and random.random() < 0.5:
                await harness.caught_up()
                expected[:] = after
        rows, problem = await _lags(harness.log, Application(harness.app.config))
        return [(row["partition"], row["lag"]) for row in rows], problem

    expected = [one + other for one, other in zip(before, after, strict=True)]
    assert run_app(test, builder.build(), topics={"in": partitions}, commit_interval_ms=1 << 40) == (list(enumerate(expected)), None)


async def test_members_without_partitions_are_no_calm() -> None:
    """A group that has committed nothing, and whose members have no partitions yet, is a finding."""
    async with EmbeddedLog() as log:
        member = NewMember(client_id="new", topics=["in"], user_data=b"", assignor=by_turns, session_timeout_ms=60_000, rebalance_timeout_ms=60_000)
        joined = await log.join("shop", member)
        rows, problem = await _lags(log, Application(StreamsConfig.of({"application_id": "shop"})))
        assert rows == []
        assert problem is not None
        assert problem.startswith("group shop has no committed offsets, and its members have no partitions yet")
        await joined.leave()
