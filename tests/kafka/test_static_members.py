"""Whole apps with a `group_instance_id`, on a real Kafka."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from ks_actors import App, FencedInstanceId, InstanceState
from ks_actors.log.kafka import KafkaLog
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.kafka.broker import Broker
from tests.kafka.counting import counting, ended
from tests.waiting import until

GUARANTEES = [EXACTLY_ONCE, AT_LEAST_ONCE]


def tasks(app: App) -> set[str]:
    return {str(task) for task in app._metrics.tasks}


async def shared(*apps: App) -> None:
    await until(lambda: all(len(tasks(app)) == 1 for app in apps))


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_static_member_that_is_restarted_has_its_tasks_again(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """Within the session timeout: the other one goes on all the time, and nothing is lost or counted twice."""
    async with counting(kafka_broker, guarantee, tmp_path) as here, KafkaLog(kafka_broker.bootstrap) as elsewhere:
        states: list[InstanceState] = []
        async with here.app("stays", states, group_instance_id="stays") as stays:
            first = here.app("goes", log=elsewhere, group_instance_id="goes")
            await first.start()
            await shared(stays, first)
            await here.through()
            mine, theirs, seen = tasks(stays), tasks(first), len(states)
            await first.close()
            await here.feed()
            async with here.app("goes", log=elsewhere, group_instance_id="goes") as second:
                await here.counted()
                assert (tasks(stays), tasks(second)) == (mine, theirs)
                assert states[seen:] == []
                await here.through()
                await second.close(leave_group=True)
                await here.through()
                assert tasks(stays) == mine | theirs


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_second_process_of_an_instance_id_ends_the_first(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """In ERROR, with FencedInstanceId; the second has the tasks, and the first one's uncommitted work is done again."""
    async with counting(kafka_broker, guarantee, tmp_path) as here, KafkaLog(kafka_broker.bootstrap) as elsewhere:
        first = here.app("first", group_instance_id="one")
        await first.start()
        await here.through()
        ending = asyncio.create_task(ended(first))
        feeding = asyncio.create_task(here.feed(1_000))
        async with here.app("second", log=elsewhere, group_instance_id="one") as second:
            assert isinstance(await ending, FencedInstanceId)
            assert first.state is InstanceState.ERROR
            await feeding
            await here.through()
            assert second.state is InstanceState.RUNNING
            assert len(tasks(second)) == 2


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_static_member_that_was_killed_has_its_tasks_again(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """Started again on the same directory, within the session timeout: the other one is not asked for anything, and nothing is lost."""
    async with counting(kafka_broker, guarantee, tmp_path) as here:
        states: list[InstanceState] = []
        words = here.words("goes", session_timeout=30, instance_id="goes")
        async with here.app("stays", states, group_instance_id="stays") as stays:
            process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.chaos.app", *words, stderr=asyncio.subprocess.DEVNULL)
            try:
                await shared(stays)
                await here.through()
                mine, seen = tasks(stays), len(states)
                await here.feed(1_000)
            finally:
                process.kill()
                await process.wait()
            async with here.app("goes", group_instance_id="goes") as again:
                await here.counted()
                assert tasks(stays) | tasks(again) == {"0_0", "0_1"}
                assert tasks(stays) == mine
                assert states[seen:] == []
