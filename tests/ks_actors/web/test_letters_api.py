"""Dead letters over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ks_actors import Batch
from ks_actors.letters import survey_letters
from ks_actors.log import Log, NewTopic, Outgoing, TopicPartition
from ks_actors.web import _letter_routes
from tests.ks_actors.web.helpers import AUTHORIZED, TOKEN, client_of
from tests.ks_actors.web.test_api import site


async def test_dead_letters_are_listed_and_redriven_once(tmp_path: Path) -> None:
    """The record comes back to its source; a second time is a conflict, another topic is unknown."""
    async with site(tmp_path) as here:
        await here.visit("/", "bad page")
        listed = await here.get("/api/dead-letters")
        (letter,) = listed["letters"]
        assert listed["topics"] == ["dead"]
        assert (letter["value"], letter["source"], letter["source_offset"], letter["redriven"]) == ("bad page", "visits-0", 1, False)
        assert "no page bad page" in letter["message"]
        here.visits.mended = True
        where = {"topic": "dead", "partition": 0, "offset": 0}
        assert (await here.post("/api/dead-letters/redrive", where))["redriven"]["value"] == "bad page"
        await here.app.wait_until_caught_up()
        assert (await here.get("/api/stores/per-page?key=bad page"))["rows"][0]["value"] == 1
        assert (await here.get("/api/dead-letters"))["letters"][0]["redriven"]
        assert "was written back" in (await here.post("/api/dead-letters/redrive", where, 409))["error"]
        assert "is not a dead letter topic" in (await here.post("/api/dead-letters/redrive", {**where, "topic": "seen"}, 404))["error"]
        assert "not as expected" in (await here.post("/api/dead-letters/redrive", {"topic": "dead"}, 400))["error"]
        for wrong in ({"partition": -1}, {"partition": 1 << 31}, {"offset": -1}, {"offset": 1 << 63}):
            assert "not as expected" in (await here.post("/api/dead-letters/redrive", {**where, **wrong}, 400))["error"]
        assert (listed["total"], listed["whole"], listed["ends"]) == (1, True, {"dead": [1]})
        assert [(one["exception"], one["source"], one["count"]) for one in listed["groups"]] == [("ValueError", "visits", 1)]
        assert "more than 10000 bytes" in (await here.post("/api/dead-letters/redrive", {"topic": "x" * 10_000}, 413))["error"]


async def test_a_group_of_letters_is_redriven_as_it_was_seen(tmp_path: Path) -> None:
    """Letters of other errors stay, and so do those that fail again: each order ends."""
    async with site(tmp_path) as here:
        await here.visit("bad one", "/", "bad two")
        ends = (await here.get("/api/dead-letters"))["ends"]["dead"]
        group = {"topic": "dead", "exception": "ValueError", "source": "visits", "starts": [0], "ends": ends}
        assert await here.post("/api/dead-letters/redrive-group", {**group, "exception": "KeyError"}) == {
            "redriven": 0,
            "left": 0,
            "failed": [],
            "starts": [0],
        }
        assert await here.post("/api/dead-letters/redrive-group", group) == {"redriven": 2, "left": 0, "failed": [], "starts": [2]}
        await here.app.wait_until_caught_up()
        (found,) = (await here.get("/api/dead-letters"))["groups"]
        assert (found["count"], found["redriven"]) == (4, 2)
        # The records are of 1970, and have failed now.
        assert found["last_ms"] == 30_000
        assert 1_500_000_000_000 < found["failed_first_ms"] < found["failed_last_ms"]
        assert await here.post("/api/dead-letters/redrive-group", group) == {"redriven": 0, "left": 0, "failed": [], "starts": [0]}
        assert "is not a dead letter topic" in (await here.post("/api/dead-letters/redrive-group", {**group, "topic": "seen"}, 404))["error"]
        assert "differ in length" in (await here.post("/api/dead-letters/redrive-group", {**group, "starts": []}, 400))["error"]


async def test_an_order_goes_on_behind_letters_that_no_partition_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are named, the others of all partitions go back once in lots, and orders end."""
    monkeypatch.setattr(_letter_routes, "_AT_ONCE", 3)
    async with site(tmp_path) as here:
        await here.log.create_topics([NewTopic("more", 2)])
        letter: list[tuple[str, bytes | None]] = [
            (f"__streams.errors.{name}", value) for name, value in (("exception", b"ValueError"), ("topic", b"visits"))
        ]
        for partition in (0, 1):
            producer = await here.log.producer(client_id="other")
            headers: list[tuple[tuple[str, bytes | None], ...]] = [
                (*letter, ("__streams.errors.partition", b"9" if number in {0, 3} else b"0")) for number in range(5)
            ]
            values = [f"/{partition}-{number}".encode() for number in range(5)]
            await producer.send([Outgoing(TopicPartition("more", partition), Batch([b"k"] * 5, values, [1] * 5, headers))])
            await producer.close()
        async with client_of(here.app, token=TOKEN, dead_letter_topics=("more",)) as client:
            listed = (await client.get("/api/dead-letters")).json()
            order = {
                "topic": "more",
                "exception": "ValueError",
                "source": "visits",
                "starts": listed["starts"]["more"],
                "ends": listed["ends"]["more"],
            }
            answers: list[Any] = []
            while not answers or answers[-1]["left"]:
                response = await client.post("/api/dead-letters/redrive-group", json=order, headers=AUTHORIZED)
                answers.append(response.json())
                order["starts"] = answers[-1]["starts"]
            assert [(one["redriven"], one["left"]) for one in answers] == [(2, 7), (1, 4), (2, 1), (1, 0)]
            failed = [(each["partition"], each["offset"]) for one in answers for each in one["failed"]]
            assert failed == [(0, 0), (0, 3), (1, 0), (1, 3)]
            assert "visits-9" in answers[0]["failed"][0]["error"]
            (group,) = (await client.get("/api/dead-letters")).json()["groups"]
            assert (group["count"], group["redriven"]) == (10, 6)
        await here.app.wait_until_caught_up()
        for partition in (0, 1):
            rows = [(await here.get(f"/api/stores/per-page?key=/{partition}-{number}"))["rows"] for number in range(5)]
            assert [len(one) and one[0]["value"] for one in rows] == [0, 1, 1, 0, 1]


async def test_callers_share_a_survey_of_the_letters_until_the_topic_has_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten callers at once cost one reading; a new letter is listed, and a marker is seen."""
    read: list[str] = []

    async def survey(log: Log, topic: str, **options: Any) -> Any:
        read.append(topic)
        return await survey_letters(log, topic, **options)

    monkeypatch.setattr(_letter_routes, "survey_letters", survey)
    monkeypatch.setattr(_letter_routes, "_EACH_S", 0.01)
    async with site(tmp_path) as here:
        await here.visit("bad")
        listed = await asyncio.gather(*(here.get("/api/dead-letters?limit=7") for _ in range(10)))
        assert [one["total"] for one in listed] == [1] * 10
        assert len(read) == 1
        await here.visit("bad again")
        assert (await here.get("/api/dead-letters"))["total"] == 2
        assert len(read) == 2
