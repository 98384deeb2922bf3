"""A rolling upgrade from an earlier version of ks-actors, members of both versions in one group on a real Kafka."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ks_actors.assignment import decode_member
from ks_actors.assignment._info import VERSION
from tests.chaos.checks import EXACTLY_ONCE
from tests.kafka.broker import Broker, skip_untested
from tests.kafka.counting import counting_as
from tests.kafka.test_processes import Spread
from tests.waiting import soon, until

ROOT = Path(__file__).parents[2]
# The last commit with version 3 of the user data.
EARLIER = "e59b7775ae678c73b40161f9d936c1f28d5ce1d2"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree of the earlier version, without its kernel; the history of this repository has it."""
    tree = tmp_path_factory.mktemp("earlier")
    command = ["git", "archive", EARLIER, "ks_actors", "actors", "tests"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)  # noqa: S603 - our own
    if archive.returncode != 0:
        skip_untested("AN UPGRADE FROM VERSION 3 OF THE USER DATA", f"no commit {EARLIER[:8]} in the history: {archive.stderr.decode()}")
    subprocess.run(["tar", "-x"], cwd=tree, input=archive.stdout, check=True)  # noqa: S607 - tar
    return tree


class Mixed(Spread):
    """Members in processes of their own, each of a version."""

    members_of: dict[str, asyncio.subprocess.Process]

    async def start_as(self, who: str, tree: Path) -> None:
        """Start a member, with the state that it has had, and wait until it runs."""
        output = self.directory / f"{who}-{len(self.members_of)}-{tree.name}.log"
        environment = os.environ | {"PYTHONPATH": str(tree)}
        command = [sys.executable, "-m", "tests.chaos.app", *self.words(who, session_timeout=30)]
        with output.open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command, cwd=tree, env=environment, stderr=log)
        self.members_of[who] = process
        await until(lambda: ": RUNNING, was " in output.read_text() and process.returncode is None, output.read_text())

    async def stop(self, who: str) -> None:
        """Close a member."""
        process = self.members_of.pop(who)
        process.send_signal(signal.SIGTERM)
        assert await soon(process.wait()) == 0

    async def versions(self) -> list[int]:
        """Return the version of each member's user data, in order."""
        return sorted(decode_member(member.user_data).version for member in await self.log.group_members(self.name))


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.heavy("three members, each of which is replaced")
@pytest.mark.parametrize(("first", "order"), [("earlier", "cba"), ("earlier", "abc"), ("now", "bc")])
async def test_members_of_both_versions_count_exactly_once(
    kafka_broker: Broker, tmp_path: Path, earlier: Path, first: str, order: Sequence[str]
) -> None:
    """Replaced one by one under load, with their state, whichever version leads: member a leads the group as long as it is there."""
    async with counting_as(Mixed, kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        here.members_of = {}
        try:
            await here.start_as("a", ROOT if first == "now" else earlier)
            for who in "bc":
                await here.start_as(who, earlier)
            await here.through(100)
            old = len(order)
            assert await here.versions() == [3] * old + [VERSION] * (3 - old)
            for number, who in enumerate(order, 1):
                await here.feed(500)
                await here.stop(who)
                await here.feed(500)
                await here.start_as(who, ROOT)
                await here.through(100)
                assert await here.versions() == [3] * (old - number) + [VERSION] * (3 - old + number)
            for who in "abc":
                await here.stop(who)
            await here.counted()
        finally:
            for process in here.members_of.values():
                process.kill()
                await process.wait()
