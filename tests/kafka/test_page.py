"""The page of an app on a real Kafka, in a real browser: an instance is killed, the broker stands still, a dead letter goes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ks_actors.letters import read_letters, redrive, redrive_letters
from ks_actors.log import TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.web import serve_page
from tests.kafka.broker import Broker
from tests.kafka.helpers import module_process
from tests.ks_actors.web.browser import browsing
from tests.ks_actors.web.helpers import TOKEN, Visits, create_topics, visit, visiting
from tests.waiting import SESSION_MS

pytestmark = pytest.mark.extended

EXACTLY_ONCE = "exactly_once_v2"


async def test_the_page_shows_an_instance_that_is_killed(fresh_broker: Broker, tmp_path: Path) -> None:
    """It joins with its tasks; killed, it has left when its session is over, and its tasks are with the other one again."""
    async with KafkaLog(fresh_broker.bootstrap) as log:
        await create_topics(log)
        async with (
            visiting(log, tmp_path, Visits(), session_timeout_ms=SESSION_MS) as app,
            serve_page(app, token=TOKEN) as served,
            browsing(served.link) as seen,
        ):
            await seen.text("#members li", "site-a.*this instance, 4 tasks")
            async with module_process("tests.ks_actors.web.member", fresh_broker.bootstrap, str(tmp_path), log=tmp_path / "member.log") as member:
                await seen.text("#members li", r"site-b at 127\.0\.0\.1.*, 2 tasks")
                await seen.text("#events li", "site-b.* has joined the group")
                member.kill()
                await member.wait()
                await seen.text("#events li", "site-b.* has left the group")
                await seen.text("#members li", "site-a.*this instance, 4 tasks")
                await seen.text("#health", "^ready")


async def test_the_page_shows_a_broker_that_stands_still(fresh_broker: Broker, tmp_path: Path) -> None:
    """The app is not ready, with the broker's address; the members last known stay, with the reason. All is well when it answers."""
    async with KafkaLog(fresh_broker.bootstrap) as log:
        await create_topics(log)
        async with visiting(log, tmp_path, Visits()) as app, serve_page(app) as served, browsing(served.link) as seen:
            await seen.text("#health", "^ready")
            await seen.text("#members li", "site-a")
            fresh_broker.pause()
            try:
                await seen.text("#problems li", f"^log: the log has not answered for .*{fresh_broker.bootstrap}")
                await seen.text("#figures dd", r"^\?$")
                await seen.text("#group-error", "the log did not describe the group")
                assert await seen.page.locator("#members li").count() == 1
            finally:
                fresh_broker.resume()
            await seen.text("#health", "^ready")
            await seen.page.wait_for_selector("#group-error", state="hidden")


async def test_a_dead_letter_is_redriven_once(fresh_broker: Broker, tmp_path: Path) -> None:
    """In one transaction with its marker, under the app's own exactly once: its record is counted, and others at once find it done."""
    visits = Visits()
    async with KafkaLog(fresh_broker.bootstrap) as log:
        await create_topics(log)
        async with visiting(log, tmp_path, visits, processing_guarantee=EXACTLY_ONCE) as app:
            await visit(log, "/", "bad page", *[f"bad {number}" for number in range(1_200)])
            await app.wait_until_caught_up()
            *others, letter = await read_letters(log, "dead", limit=2_000)
            assert (letter.value, letter.source) == (b"bad page", TopicPartition("visits", 0))
            visits.mended = True
            tries = [redrive(log, letter.place, letter.offset, application_id="site") for _ in range(3)]
            outcomes = await asyncio.gather(*tries, return_exceptions=True)
            assert [outcome for outcome in outcomes if not isinstance(outcome, Exception)] == [letter], outcomes
            await app.wait_until_caught_up()
            assert await app.store("per-page").get("bad page") == 1
            # Those of a group in a transaction, by operators with different ids at once.
            offsets = [one.offset for one in reversed(others)]
            groups = await asyncio.gather(*(redrive_letters(log, letter.place, offsets, application_id=each) for each in ("site", "other")))
            assert [one.offset for group in groups for one in group.written] == offsets
            await app.wait_until_caught_up()
            assert await app.store("per-page").get("bad 1199") == 1
            assert all(one.redriven for one in await read_letters(log, "dead", limit=2_000))
