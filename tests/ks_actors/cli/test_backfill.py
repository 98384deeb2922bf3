"""`ks-actors backfill`."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyarrow import parquet

from ks_actors import App, NotRunning, StreamsBuilder, StreamsConfig
from ks_actors.cli._main import ks_actors
from ks_actors.log import NewTopic
from ks_actors.log.embedded import EmbeddedLog
from tests.ks_actors.batch.histories import Input, fill

CODE = """
    from ks_actors import Consumed, Grouped, Materialized, Produced, StreamsBuilder, serdes

    builder = StreamsBuilder()
    words = builder.stream("words", Consumed(serdes.STRING, serdes.STRING))
    words.to("copies", Produced(serdes.STRING, serdes.STRING))
    words.group_by_key(Grouped(serdes.STRING, serdes.STRING)).count(Materialized("counts", serdes.STRING, serdes.LONG))
"""
DAY = 86_400_000


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "backfilled.py").write_text(textwrap.dedent(CODE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    records: list[Input] = [("words", str(number % 3).encode(), b"word", number * DAY) for number in range(30)]

    async def main() -> None:
        async with EmbeddedLog(tmp_path / "log") as log:
            await log.create_topics([NewTopic("words", 2), NewTopic("copies", 2)])
            await fill(log, {"words": 2}, records)

    asyncio.run(main())
    return f"embedded://{tmp_path / 'log'}"


def test_history_becomes_a_snapshot_and_parquet(url: str, tmp_path: Path) -> None:
    """Until a time, by one line; a summary comes in the end."""
    conf = ["-c", f"log={url}", "-c", "application_id=words", "-c", f"snapshot_uri={tmp_path / 'snapshots'}", "-q"]
    ran = CliRunner().invoke(ks_actors, ["backfill", "backfilled:builder", "--until", "1970-01-11", *conf, "--parquet", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    first, second, third = ran.output.splitlines()
    assert first.startswith("10 records in ")
    assert first.endswith(" by 2 tasks, 0 skipped")
    assert second.endswith(": 3 rows")
    assert third == "copies: 10 records"
    assert sum(parquet.read_table(file).num_rows for file in (tmp_path / "out" / "copies").iterdir()) == 10
    assert list((tmp_path / "snapshots" / "words").glob("*/manifest.json"))


def test_the_output_is_published_once(url: str) -> None:
    """By one flag, again and again: the topics have it once for each job."""
    arguments = ["backfill", "backfilled:builder", "-c", f"log={url}", "-c", "application_id=words", "-q", "--publish"]
    told = []
    for more in ((), (), ("another",)):
        ran = CliRunner().invoke(ks_actors, [*arguments, *more])
        assert ran.exit_code == 0, ran.output
        told.append(ran.output.splitlines()[-1])
    assert told == [f"copies: {count} records published" for count in (30, 0, 30)]


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["--until", "soon"], "is not a time", 2),
        (["--until", "1970-01-06", "--until", "words-0=3"], "is not a time", 2),
        (["--until", "words-0=3", "--until", "words-0=4"], "each partition once", 2),
        (["--spark-conf", "spark.executor.memory=1g"], "needs --spark", 2),
        (["--spark", "local[1]", "--spark-conf", "memory"], "--spark-conf 'memory' is not name=value", 2),
        (["--spark", "nowhere"], "'nowhere' is not a Spark master", 2),
        (["--allow", "anything"], "is not one of", 2),
        (["-c", "log=embedded:///nowhere-at-all/log", "-c", "application_id=words"], "words: ", 1),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], said: str, code: int, url: str) -> None:
    """With the exit codes of `run`."""
    assert url
    ran = CliRunner().invoke(ks_actors, ["backfill", "backfilled:builder", "-q", *arguments])
    assert ran.exit_code == code
    assert said in ran.output


def test_until_may_be_ms_or_offsets_or_nothing(url: str) -> None:
    """All there is, or up to a number of ms, or to offsets of partitions: those that are not named are read to their ends."""
    conf = ["-c", f"log={url}", "-c", "application_id=words", "-q"]
    offsets = ["--until", "words-0=3", "--until", "words-1=4"]
    for until, count in (([], 30), (["--until", str(5 * DAY)], 5), (["--until", "1970-01-06T01:00+01:00"], 5), (offsets, 7)):
        ran = CliRunner().invoke(ks_actors, ["backfill", "backfilled:builder", *until, *conf])
        assert ran.output.startswith(f"{count} records in "), ran.output


async def test_an_app_that_was_started_is_not_backfilled() -> None:
    """It is one or the other."""
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
        builder = StreamsBuilder()
        builder.stream("in").to("out")
        async with App(
            builder.build(),
            StreamsConfig(application_id="app", default_key_serde="ks_actors.serdes.STRING", default_value_serde="ks_actors.serdes.STRING"),
            log=log,
        ) as app:
            with pytest.raises(NotRunning, match="has already been started: run a backfill with a new one"):
                await app.backfill()


def test_tables_and_topics_are_exported(url: str, tmp_path: Path) -> None:
    """By one line; the number of rows is printed in the end, and each missing name in one line."""
    base = ["export", "backfilled:builder", "-c", f"log={url}", "-c", "application_id=words", "--to", str(tmp_path / "out")]
    ran = CliRunner().invoke(ks_actors, [*base, "--topic", "words"])
    assert (ran.exit_code, ran.output) == (0, "words: 30 rows\n")
    assert parquet.read_table(tmp_path / "out" / "words").column("value").to_pylist() == ["word"] * 30
    ran = CliRunner().invoke(ks_actors, [*base, "--table", "prices"])
    assert (ran.exit_code, "UnknownStore: the topology has no table 'prices'" in ran.output) == (1, True)
    assert CliRunner().invoke(ks_actors, base).exit_code == 2
