"""The check of an app before its start, on a log in a directory."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, StreamsConfig, TopologyError
from ks_actors.app import plan_app_topics
from ks_actors.config import opened
from ks_actors.log import NewTopic
from tests.ks_actors.cli.jobs import joined, two_names, with_topics
from tests.ks_actors.cli.test_operations import JOBS, SHOP, Place


def failures(place: Place, target: str) -> list[dict[str, Any]]:
    """Return the failed findings of the check, which has exit code 1."""
    return [row for row in place.json("check", target, code=1) if row["result"] == "failed"]


def create(place: Place, **topics: int) -> None:
    """Create topics in the log."""

    async def work() -> None:
        async with opened(StreamsConfig.of(place.settings)) as log:
            await log.create_topics([NewTopic(name, count) for name, count in topics.items()])

    asyncio.run(work())


def test_joined_topics_of_different_sizes_fail_the_check(tmp_path: Path) -> None:
    """The start raises the same error; `topics plan` and `topics create` tell it, too, and create nothing."""
    place = Place(tmp_path)
    create(place, orders=3, customers=2, totals=1)
    (wrong,) = failures(place, f"{JOBS}:joined")
    assert wrong["check"] == "topics"
    reason = "topics that are joined must have the same number of partitions, but customers has 2, orders has 3"
    assert reason in wrong["detail"]
    assert reason in " ".join(place.run("topics", "plan", f"{JOBS}:joined", code=1).split())
    assert reason in " ".join(place.run("topics", "create", f"{JOBS}:joined", code=1).split())

    async def work() -> None:
        config = StreamsConfig.of(place.settings)
        async with opened(StreamsConfig.of(place.settings)) as log:
            assert set(await log.describe_topics()) == {"orders", "customers", "totals"}
            with pytest.raises(TopologyError, match=reason):
                await plan_app_topics(joined(), config, log)
        with pytest.raises(TopologyError, match=reason):
            async with App(joined(), config):
                pass

    asyncio.run(work())


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_the_check_tells_the_guarantee(tmp_path: Path, guarantee: str) -> None:
    """The guarantee that a run would have, also where it is the default."""
    place = Place(tmp_path)
    create(place, orders=2, totals=1)
    if guarantee == "exactly_once_v2":
        place.settings["processing_guarantee"] = guarantee
    assert f"the guarantee is {guarantee}" in [row["detail"] for row in place.json("check", SHOP)]


def test_a_size_that_does_not_fit_is_told_at_its_own_topic_only(tmp_path: Path) -> None:
    """Not at one whose name is a part of that name."""
    place = Place(tmp_path)
    place.settings["application_id"] = "shop"
    create(place, orders=2, totals=1, **{"shop-shop-x-repartition": 3, "shop-x-repartition": 2})
    rows = {row["topic"]: row["state"] for row in place.json("topics", "plan", f"{JOBS}:two_names", code=3)}
    assert rows["shop-x-repartition"] == "exists"
    assert "shop-shop-x-repartition has 3 partitions and needs 2" in rows["shop-shop-x-repartition"]
    assert set(two_names().internal_topics) == {"x-repartition", "shop-x-repartition"}


def test_topics_that_the_app_creates_need_not_exist(tmp_path: Path) -> None:
    """`App(topics=…)` creates them at the start: the check notes it, and plans internal topics by their sizes."""
    place = Place(tmp_path)
    target = f"{JOBS}:with_topics"
    rows = place.json("check", target)
    (note,) = [row["detail"] for row in rows if row["check"] == "topics" and row["result"] == "note"]
    assert note == "the start will create totals, orders, shop-counts-changelog, shop-counts-repartition"
    planned = {row["topic"]: (row["state"], row["partitions"]) for row in place.json("topics", "plan", target, code=3)}
    assert planned["orders"] == planned["shop-counts-changelog"] == ("missing", 3)
    made = {row["topic"] for row in place.json("topics", "create", target) if row["created"]}
    assert made == set(planned)

    async def work() -> None:
        async with with_topics(StreamsConfig.of(place.settings)) as app:
            await app.wait_until_caught_up()

    asyncio.run(work())
    assert {row["state"] for row in place.json("topics", "plan", target)} == {"exists"}


def test_the_lag_of_a_group_that_is_not_there_is_a_finding(tmp_path: Path) -> None:
    """A mistyped id, or an input topic that is missing, is exit code 3 and not "0 records in 0 partitions" alone."""
    place = Place(tmp_path)
    create(place, totals=1)
    assert "group shpo has neither committed offsets nor members" in place.run("lag", "--application-id=shpo", "--over=10", code=3)
    assert "shop reads topics that do not exist: orders" in place.run("lag", "--app", SHOP, "--over=10", code=3)
    create(place, orders=2)
    assert place.run("lag", "--app", SHOP, "--over=10").endswith("0 records in 2 partitions\n")


def test_a_state_directory_that_cannot_be_used_fails_the_check(tmp_path: Path) -> None:
    """The start would raise StateError; the check makes no directory."""
    place = Place(tmp_path)
    create(place, orders=2, totals=1)
    (ok,) = [row for row in place.json("check", SHOP) if row["check"] == "state"]
    assert ok["result"] == "ok"
    assert not (tmp_path / "state").exists()
    file = tmp_path / "file"
    file.touch()
    for state_dir in (file, file / "below"):
        place.settings["state_dir"] = str(state_dir)
        (wrong,) = failures(place, SHOP)
        assert wrong["check"] == "state"
        assert wrong["detail"] == f"{file} is not a directory: set state_dir to a directory that the app can write"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_state_directory_without_permission_fails_the_check(tmp_path: Path) -> None:
    """Also where it would be made in one that the user may not write."""
    place = Place(tmp_path)
    create(place, orders=2, totals=1)
    place.settings["state_dir"] = "/proc/none"
    (wrong,) = failures(place, SHOP)
    assert wrong["detail"].startswith("/proc cannot be written by this user")


def test_a_place_of_snapshots_that_cannot_be_fails_the_check(tmp_path: Path) -> None:
    """The start would raise the same ConfigError."""
    place = Place(tmp_path)
    create(place, orders=2, totals=1)
    place.settings["snapshot_uri"] = str(tmp_path / "snapshots")
    assert ("snapshots", "ok") in [(row["check"], row["result"]) for row in place.json("check", SHOP)]
    assert not (tmp_path / "snapshots").exists()
    place.settings["snapshot_uri"] = "nope://user:hunter2@bucket/x"
    (wrong,) = failures(place, SHOP)
    assert wrong["detail"].startswith("snapshot_uri: 'nope://***@bucket/x' is not a place for snapshots")


@pytest.mark.parametrize(
    ("job", "settings", "reason"),
    [
        ("unknown_config", {}, "topic shop-counts-changelog: Kafka has no topic config 'retention'"),
        ("shop", {"topic.retention": "5"}, "Kafka has no topic config 'retention'"),
        ("shop", {"topic.retention.ms": "x"}, "retention.ms must be"),
        ("long_name", {}, "249"),
        ("alike", {}, "collides with topic"),
    ],
)
def test_internal_topics_that_cannot_be_created_fail_the_check(tmp_path: Path, job: str, settings: dict[str, str], reason: str) -> None:
    """With the error that the start would raise; nothing is created."""
    place = Place(tmp_path)
    create(place, orders=2, totals=1)
    place.settings |= settings
    (wrong,) = failures(place, f"{JOBS}:{job}")
    assert wrong["check"] == "topics"
    assert reason in wrong["detail"]
    assert {row["topic"] for row in place.json("topics", "plan", SHOP, code=3) if row["state"] == "exists"} == {"orders", "totals"}
