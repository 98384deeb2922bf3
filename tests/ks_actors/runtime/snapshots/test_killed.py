"""kill -9 while snapshots are taken, ingested and handed over."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from ks_actors.log import TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.snapshots import find_snapshots
from tests.killed import killed
from tests.ks_actors.runtime.snapshots.bootstraps import CHANGELOG, app_of, contents, counted, put, table, totals_of
from tests.ks_actors.runtime.snapshots.test_taking import counts_in
from tests.ks_actors.runtime.snapshots.victim import KEYS, SETTINGS, key_of, settings_of

VICTIM = ("-m", "tests.ks_actors.runtime.snapshots.victim")
TAKES = 8
HAND_OVERS = 6


@pytest.mark.extended
@pytest.mark.heavy("processes that are killed")
async def test_snapshots_of_a_killed_app_are_right_and_so_are_apps_that_begin_with_them(tmp_path: Path) -> None:
    """At any moment: a snapshot with a manifest is of one commit, an ingest begins again, and no record counts twice or not at all."""
    dice = random.Random(7)
    async with EmbeddedLog(tmp_path / "log") as log:
        await app_of(log, tmp_path / "state")._create_topics(log)
        await put(log, [key_of(number) for number in range(KEYS)])
    begun_with, checked = 0, set()
    for number in range(TAKES):
        told = await killed(*VICTIM, "run", str(tmp_path), when=1 + number % 4 if number else 6, seconds=dice.random() / 2, may_end=True)
        assert told[0] == "begun"
        begun_with += sum(int(line.split()[1]) for line in told if line.startswith("started"))
        async with EmbeddedLog(tmp_path / "log") as log:
            keys = [key.decode() for key, _ in await contents(log, TopicPartition("in", 0))]
        found, refused = find_snapshots(f"file://{tmp_path / 'snapshots'}", "app")
        assert not refused
        for snapshot in found:
            (position,) = snapshot.manifest.tasks["0_0"].positions
            assert counts_in(snapshot) == Counter(keys[: position.offset])
            checked.add(snapshot.place.name)
        assert {line.split()[1] for line in told[-2:] if line.startswith("snapshot")} <= checked
        if number % 3 != 2:
            shutil.rmtree(tmp_path / "state" / "app" / "0_0", ignore_errors=True)
    async with EmbeddedLog(tmp_path / "log") as log, app_of(log, tmp_path / "state", **settings_of(tmp_path)) as app:
        await app.wait_until_caught_up()
        assert await totals_of(app) == Counter(keys)
    assert len(checked) > 3
    assert begun_with > 1


@pytest.mark.extended
@pytest.mark.heavy("processes that are killed")
async def test_a_hand_over_that_is_killed_has_happened_or_not(tmp_path: Path) -> None:
    """At any moment: the changelog and the group have all or nothing, and a repetition gives the same."""
    dice = random.Random(3)
    keys = [key_of(number) for number in range(KEYS)]
    counted(f"file://{tmp_path / 'history'}", keys, until=len(keys))
    async with EmbeddedLog(tmp_path / "log") as log:
        await app_of(log, tmp_path / "state")._create_topics(log)
        await put(log, keys)
    shutil.copytree(tmp_path / "log", tmp_path / "fresh")
    outcomes, whole = [], 0.0
    for number in range(HAND_OVERS):
        # The first ends its work and says how long it took, the second has just begun.
        told = await killed(
            *VICTIM, "seed", str(tmp_path), when=1 if number else 2, seconds=dice.uniform(0, 2) * whole if number > 1 else 0, may_end=True
        )
        assert told[0] == "begun"
        whole = whole or float(told[1].split()[1])
        async with EmbeddedLog(tmp_path / "log") as log:
            rows = await table(log) if "app-counts-changelog" in await log.describe_topics() else {}
            assert rows in ({}, Counter(keys))
            outcomes.append(bool(rows))
            assert rows or told == ["begun"]
            if not rows:
                continue
            app = app_of(log, tmp_path / "state", **SETTINGS)
            assert await app.seed(f"file://{tmp_path / 'history'}", if_seeded="skip") is None
            await put(log, keys[:100])
            async with app:
                await app.wait_until_caught_up()
                assert await totals_of(app) == Counter(keys + keys[:100])
            assert len(await contents(log, CHANGELOG)) < KEYS + 500
        shutil.rmtree(tmp_path / "log")
        shutil.rmtree(tmp_path / "state")
        shutil.copytree(tmp_path / "fresh", tmp_path / "log")
    assert set(outcomes) == {True, False}
