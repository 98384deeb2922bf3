"""`ks-actors reset`: its plan, its changes, and its refusals, on the embedded log; tests/kafka compares it with Kafka's own tool."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ks_actors import App, Batch, LogError, ResetIncomplete, ResetRefused, StateLocked, StreamsConfig, reset
from ks_actors.cli._main import ks_actors
from ks_actors.log import NewMember, NewTopic, OffsetAndMetadata, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.runtime.shared import StateDirectory
from ks_actors.topology import Topology
from tests.ks_actors.cli.test_run import start
from tests.ks_actors.log.helpers import by_turns, read_all
from tests.ks_actors.runtime.helpers import counting
from tests.waiting import PATIENCE_S, until

HERE = "tests.ks_actors.cli.test_reset"
TOPOLOGY = counting(repartition=True)
IN, OUT = TopicPartition("in", 0), TopicPartition("out", 0)
INTERNAL = ["counter-by-value-repartition", "counter-counts-changelog"]


def topology() -> Topology:
    return counting(repartition=True)


def config_of(directory: Path, **settings: Any) -> StreamsConfig:
    return StreamsConfig.of(
        {"application_id": "counter", "state_dir": str(directory / "state"), "log": f"embedded://{directory / 'log'}", **settings}
    )


async def count(log: EmbeddedLog, config: StreamsConfig) -> list[int]:
    """Run the app until it has caught up; return all counts of the output so far."""
    async with App(topology(), config, log=log) as app:
        await app.wait_until_caught_up()
    return [int.from_bytes(value or b"") for _, _, value in await read_all(log, OUT)]


async def begun(directory: Path, **settings: Any) -> None:
    """Have an app count three records of one value."""
    async with EmbeddedLog(directory / "log") as log:
        await log.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
        producer = await log.producer(client_id="writer")
        await producer.send([Outgoing(IN, Batch([b"k"] * 3, [b"v"] * 3, [1_000, 2_000, 3_000]))])
        assert await count(log, config_of(directory, **settings)) == [1, 2, 3]


def invoke(*arguments: str, directory: Path | None = None) -> tuple[int, str]:
    """Return exit code and output."""
    given = [] if directory is None else ["--application-id", "counter", "-c", f"log=embedded://{directory / 'log'}"]
    given += [] if directory is None else ["--state-dir", str(directory / "state")]
    result = CliRunner().invoke(ks_actors, ["reset", *given, *arguments])
    return result.exit_code, result.output


def everything(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_without_execute_nothing_changes_and_all_is_shown(tmp_path: Path) -> None:
    """The table has a line for each thing that would be done, and the files of the state are as they were."""
    asyncio.run(begun(tmp_path))
    state = everything(tmp_path / "state")
    code, output = invoke(directory=tmp_path)
    assert code == 0
    head, *rows = output.splitlines()
    assert head == "Application counter: plan (nothing has changed; --execute carries it out)"
    assert [row.split() for row in rows] == [
        ["STEP", "OF", "FROM", "TO"],
        ["delete", "state", str(tmp_path / "state" / "counter")],
        ["delete", "topic", INTERNAL[0]],
        ["delete", "topic", INTERNAL[1]],
        ["set", "offset", "in-0", "3", "0"],
    ]
    assert everything(tmp_path / "state") == state
    assert invoke(directory=tmp_path)[1] == output


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_the_next_run_counts_from_the_start(tmp_path: Path, guarantee: str) -> None:
    """Counts are 1, 2, 3 once more, not 4, 5, 6; a repetition does no harm, and a second reset has nothing left to delete."""
    asyncio.run(begun(tmp_path, processing_guarantee=guarantee))
    code, output = invoke("--execute", directory=tmp_path)
    assert code == 0, output
    assert output.startswith("Application counter: done\n")
    assert not (tmp_path / "state" / "counter").exists()
    code, output = invoke("--execute", directory=tmp_path)
    assert code == 0
    assert [row.split() for row in output.splitlines()[2:]] == [["set", "offset", "in-0", "0", "0"]]

    async def again() -> None:
        async with EmbeddedLog(tmp_path / "log") as log:
            assert set(await log.describe_topics()) == {"in", "out"}
            assert await count(log, config_of(tmp_path, processing_guarantee=guarantee)) == [1, 2, 3, 1, 2, 3]

    asyncio.run(again())


@pytest.mark.parametrize(
    ("options", "offset", "note"),
    [
        ((), 0, ""),
        (("--to-earliest",), 0, ""),
        (("--to-latest",), 3, ""),
        (("--to-offset", "2"), 2, ""),
        (("--to-offset", "9"), 3, "9 is after the end of in-0"),
        (("--to-offset", "-9"), 0, "-9 is before the first offset of in-0"),
        (("--shift-by", "-1"), 2, ""),
        (("--shift-by", "-7"), 0, "-4 is before the first offset of in-0"),
        (("--to-datetime", "1970-01-01T00:00:02.000"), 1, ""),
        (("--to-datetime", "1970-01-01T01:00:02.000+01:00"), 1, ""),
        (("--to-datetime", "2026-01-01T00:00:00.000"), 3, ""),
        (("--by-duration", "PT1H"), 3, ""),
        (("--by-duration", "P99999D"), 0, ""),
    ],
)
def test_each_option_names_a_start(tmp_path: Path, options: tuple[str, ...], offset: int, note: str) -> None:
    """As in Kafka's tool; an offset that the log does not have becomes the nearest one, and the table says so."""
    asyncio.run(begun(tmp_path))
    code, output = invoke("--input-topics", "in", *options, directory=tmp_path)
    assert code == 0, output
    assert output.splitlines()[-1].split(maxsplit=5) == ["set", "offset", "in-0", "3", str(offset), *([note] if note else [])]


def test_offsets_may_come_from_a_file(tmp_path: Path) -> None:
    """Lines of topic, partition and offset; missing, foreign, duplicate or malformed ones are refused by name."""
    asyncio.run(begun(tmp_path))
    file = tmp_path / "offsets.csv"
    for content, code, said in [
        ("in,0,2\n", 0, "set offset in-0 3 2"),
        ('"in",0,2\n\n', 0, "set offset in-0 3 2"),
        ("", 1, "offsets are missing for in-0"),
        ("in,0,2\nout,0,1\n", 1, "offsets are given for out-0, which are not among the input topics"),
        ("in,0,2\nin,0,1\n", 2, "line 2: in-0 is listed twice"),
        ("in,0\n", 2, "line 1: expected topic,partition,offset"),
        ("in,0,x\n", 2, "line 1: expected topic,partition,offset"),
    ]:
        file.write_text(content)
        found, output = invoke("--from-file", str(file), directory=tmp_path)
        assert found == code, output
        assert said in " ".join(output.replace("│", "").split()), output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to-earliest", "--to-latest"), "--to-earliest, --to-latest exclude each other"),
        (("--to-offset", "0", "--shift-by", "1"), "--shift-by, --to-offset exclude each other"),
        (("--execute", "--dry-run"), "--execute and --dry-run exclude each other"),
        (("--to-datetime", "yesterday"), "is not a time such as"),
        (("--by-duration", "PT"), "is not a duration such as"),
        (("--by-duration", "P"), "is not a duration such as"),
        (("--by-duration", "2h"), "is not a duration such as"),
        (("--by-duration", "P9999999999999D"), "is too long"),
        (("--input-topics", ","), "names no topic"),
        (("-c", "poll_msec=3"), "poll_msec (keyword): is unknown"),
        (("--app", f"{HERE}:nothing"), f"module {HERE} has no nothing"),
    ],
)
def test_a_wrong_command_line_has_exit_code_2(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """It says which option is wrong."""
    code, output = invoke("--application-id", "counter", "--state-dir", str(tmp_path), *arguments)
    assert code == 2
    assert said in " ".join(output.replace("│", "").split())


def test_a_log_in_memory_cannot_be_reset(tmp_path: Path) -> None:
    """The command says that an address is missing."""
    code, output = invoke("--application-id", "counter", "--state-dir", str(tmp_path))
    assert code == 1
    assert "set bootstrap_servers, or log=embedded:///path" in output


def test_the_app_tells_settings_and_topics(tmp_path: Path) -> None:
    """With --app the topology names the input topics, and committed offsets of other topics do not count."""
    asyncio.run(begun(tmp_path))

    async def commit_more() -> None:
        async with EmbeddedLog(tmp_path / "log") as log:
            await log.set_group_offsets("counter", {OUT: OffsetAndMetadata(2)})

    asyncio.run(commit_more())
    code, output = invoke("--app", f"{HERE}:topology", directory=tmp_path)
    assert code == 0, output
    assert "set offset    in-0" in output
    assert "out-0" not in output
    assert output.splitlines()[-1] == "left: committed offsets of topic out: it is not among the input topics"
    code, output = invoke("--app", f"{HERE}:topology", "--input-topics", "out", directory=tmp_path)
    assert code == 1
    assert "the topology does not read topics out" in output


async def test_members_of_the_group_keep_it_from_being_reset(tmp_path: Path) -> None:
    """Nothing changes while an app runs; `force` removes a member that is only remembered."""
    await begun(tmp_path)
    async with EmbeddedLog(tmp_path / "log") as log:
        config = config_of(tmp_path)
        async with App(topology(), config.replace(state_dir=tmp_path / "elsewhere"), log=log) as app:
            for execute in (False, True):
                with pytest.raises(ResetRefused, match=r"the group counter has members: counter-.*; nothing has changed\. Stop all instances"):
                    await reset(config, log=log, execute=execute)
            await app.wait_until_caught_up()
        member = NewMember(
            client_id="dead", topics=["in"], user_data=b"", assignor=by_turns, session_timeout_ms=60_000, rebalance_timeout_ms=60_000, instance_id="a"
        )
        await (await log.join("counter", member)).close()
        with pytest.raises(ResetRefused, match="has members: dead"):
            await reset(config, log=log, execute=True)
        plan = await reset(config, log=log, execute=True, force=True)
        assert plan.members == ("dead",)
        assert await log.group_members("counter") == []
        assert await count(log, config) == [1, 2, 3, 1, 2, 3]


async def test_a_state_directory_in_use_keeps_the_app_from_being_reset(tmp_path: Path) -> None:
    """A running instance holds it, be its log another one; a directory that is not there is not made."""
    await begun(tmp_path)
    async with EmbeddedLog() as other, EmbeddedLog(tmp_path / "log") as log:
        await other.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
        async with App(topology(), config_of(tmp_path), log=other):
            code, output = await asyncio.to_thread(_invoke_on, log, tmp_path)
        assert code == 1
        assert "StateLocked" in output
        assert str(tmp_path / "state" / "counter") in output
        await reset(config_of(tmp_path, state_dir=str(tmp_path / "none")), log=log)
        assert not (tmp_path / "none").exists()


async def test_the_state_of_member_processes_is_reset_with_the_rest(tmp_path: Path) -> None:
    """A member that runs keeps the app from being reset, even when the first one does not."""
    await begun(tmp_path)
    config = config_of(tmp_path)
    place = config.for_member(2, 2).state_dir / "counter"
    assert place.is_relative_to(tmp_path / "state" / "counter")
    member = StateDirectory(place)
    member.open()
    async with EmbeddedLog(tmp_path / "log") as log:
        for execute in (False, True):
            with pytest.raises(StateLocked, match="members/2/counter is in use by an instance"):
                await reset(config, log=log, execute=execute)
        assert (tmp_path / "state" / "counter" / "1_0").exists()
        member.close()
        await reset(config, log=log, execute=True)
    assert not place.exists()


def _invoke_on(log: EmbeddedLog, directory: Path) -> tuple[int, str]:
    """Return the plan of a reset of the app by its Python call, as the command would."""
    try:
        asyncio.run(reset(config_of(directory), log=log, execute=True))
    except Exception as error:  # noqa: BLE001 - it is looked at
        return 1, f"{type(error).__name__}: {error}"
    return 0, ""


async def test_topics_that_are_not_there_are_refused(tmp_path: Path) -> None:
    """Input topics that do not exist, internal topics that are none, and names that fit a second application: nothing changes."""
    await begun(tmp_path)
    async with EmbeddedLog(tmp_path / "log") as log:
        config = config_of(tmp_path)
        for options, said in [
            ({"input_topics": ["in", "nowhere"]}, "topics nowhere"),
            (
                {"internal_topics": ["out"]},
                "out are not internal topics of application counter; nothing has changed. Its internal topics: counter-by-value-repartition",
            ),
        ]:
            with pytest.raises(ResetRefused, match=said):
                await reset(config, log=log, execute=True, **options)  # type: ignore[arg-type]  # of two kinds
        await log.create_topics([NewTopic("counter-two-sums-changelog", 1, {"cleanup.policy": "compact"}), NewTopic("counter-letters", 1)])
        await log.set_group_offsets("counter-two", {IN: OffsetAndMetadata(1)})
        with pytest.raises(
            ResetRefused, match=r"topics counter-two-sums-changelog may belong to another application, because the groups counter-two exist;"
        ):
            await reset(config, log=log, execute=True)
        assert set(INTERNAL) < set(await log.describe_topics())
        plan = await reset(config, log=log, internal_topics=INTERNAL, execute=True)
        assert plan.internal_topics == tuple(INTERNAL)
        assert plan.left == (
            "topic counter-letters: it is not an internal topic",
            "topic counter-two-sums-changelog: it is not among the named internal topics",
        )
        assert "counter-two-sums-changelog" in await log.describe_topics()


async def test_with_a_topology_only_its_own_topics_are_deleted(tmp_path: Path) -> None:
    """The name of another application, whose group may have expired, may begin with this one's id; so may a topic of an earlier topology."""
    await begun(tmp_path)
    async with EmbeddedLog(tmp_path / "log") as log:
        await log.create_topics([NewTopic("counter-two-sums-changelog", 1, {"cleanup.policy": "compact"})])
        plan = await reset(config_of(tmp_path), log=log, topology=TOPOLOGY, execute=True)
        assert plan.internal_topics == tuple(INTERNAL)
        assert plan.left == ("topic counter-two-sums-changelog: it is not among the topology's internal topics",)
        assert "counter-two-sums-changelog" in await log.describe_topics()


@pytest.mark.parametrize("operation", ["delete_topics", "set_group_offsets"])
async def test_an_interrupted_reset_says_so_and_can_be_done_again(tmp_path: Path, operation: Any) -> None:
    """The offsets come last, so a repeated shift is the same shift; the error names the step and the changes so far."""
    await begun(tmp_path)
    config = config_of(tmp_path)
    async with EmbeddedLog(tmp_path / "log") as log:
        # The first commit shows that the group takes one; the second one is the last step.
        if operation == "set_group_offsets":
            release = log.hold("delete_topics")
            running = asyncio.create_task(reset(config, log=log, execute=True, to=2))
            assert (tmp_path / "state" / "counter" / "1_0").exists()
            await until(lambda: not (tmp_path / "state" / "counter" / "1_0").exists())
            log.inject(operation, LogError("the disk burns"))
            release.set()
        else:
            log.inject(operation, LogError("the disk burns"))
            running = asyncio.create_task(reset(config, log=log, execute=True, to=2))
        with pytest.raises(ResetIncomplete, match=r"the disk burns\. Changed, at least in part: local state.*\. Run the reset again before"):
            await running
        assert (await log.group_offsets("counter"))[IN].offset == 3
        plan = await reset(config, log=log, execute=True, to=2)
        assert plan.executed
        assert await log.group_offsets("counter") == {IN: OffsetAndMetadata(2)}


def test_an_interrupted_command_says_that_it_has_to_be_run_again(tmp_path: Path) -> None:
    """Ctrl-C while the state is being deleted has exit code 3; the committed offsets are as they were."""
    asyncio.run(begun(tmp_path))
    code = """
        import os, shutil, signal
        signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have what they run in the background ignore it
        delete = shutil.rmtree
        def interrupted(path):
            os.kill(os.getpid(), signal.SIGINT)
            delete(path)
        shutil.rmtree = interrupted
    """
    arguments = ("--application-id", "counter", "-c", f"log=embedded://{tmp_path / 'log'}", "--state-dir", str(tmp_path / "state"), "--execute")
    with start("reset", *arguments, code=textwrap.dedent(code)) as running:
        _, said = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, said) == (3, "Error: counter: interrupted; run the reset again before you start the application\n")

    async def committed() -> dict[TopicPartition, OffsetAndMetadata]:
        async with EmbeddedLog(tmp_path / "log") as log:
            return dict(await log.group_offsets("counter"))

    assert asyncio.run(committed())[IN].offset == 3
    assert invoke("--execute", directory=tmp_path)[0] == 0


async def test_a_group_that_takes_no_commits_is_found_before_anything_is_deleted(tmp_path: Path) -> None:
    """Failures of the last step already show in the first one."""
    await begun(tmp_path)
    state = everything(tmp_path / "state")
    async with EmbeddedLog(tmp_path / "log") as log:
        log.inject("set_group_offsets", LogError("not for you"))
        with pytest.raises(LogError, match="not for you"):
            await reset(config_of(tmp_path), log=log, execute=True)
        assert set(INTERNAL) < set(await log.describe_topics())
    assert everything(tmp_path / "state") == state


async def test_a_reset_ends_by_its_deadline(tmp_path: Path) -> None:
    """It names the step for which the time was too short."""
    await begun(tmp_path)
    async with EmbeddedLog(tmp_path / "log") as log:
        log.hold("group_members")
        with pytest.raises(ResetRefused, match=r"timeout_ms \(20\) was too short to list the members of the group"):
            await reset(config_of(tmp_path), log=log, timeout_ms=20)


async def test_a_log_in_the_state_directory_is_not_deleted(tmp_path: Path) -> None:
    """A log inside a directory that a reset deletes is refused."""
    async with EmbeddedLog(tmp_path / "state" / "counter" / "log") as log:
        with pytest.raises(ResetRefused, match="is inside the state directory"):
            await reset(config_of(tmp_path), log=log, execute=True)


def test_the_state_is_deleted_and_the_targets_of_links_are_not(tmp_path: Path) -> None:
    """A symbolic link in the state directory goes, its target stays."""
    asyncio.run(begun(tmp_path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("kept")
    (tmp_path / "state" / "counter" / "link").symlink_to(tmp_path / "mine")
    assert invoke("--execute", directory=tmp_path)[0] == 0
    assert (tmp_path / "mine" / "file").read_text() == "kept"


async def test_snapshots_of_the_old_changelogs_go(tmp_path: Path) -> None:
    """A snapshot that says how far of a changelog it goes is deleted; a snapshot of a backfill stays, to be handed over."""
    await begun(tmp_path)
    settings = {"snapshot_uri": str(tmp_path / "snapshots")}
    async with EmbeddedLog(tmp_path / "log") as log:
        async with App(topology(), config_of(tmp_path, **settings), log=log) as app:
            await app.wait_until_caught_up()
            taken = await app.snapshot()
        done = await App(counting(), config_of(tmp_path, **settings), log=log).backfill(directory=tmp_path)
        done.close()
        assert done.snapshot is not None
        plan = await App(topology(), config_of(tmp_path, **settings), log=log).reset(execute=True)
        assert [place.rpartition("/")[2] for place in plan.snapshots] == [taken.name]
        assert [path.name for path in (tmp_path / "snapshots" / "counter").iterdir()] == [done.snapshot.name]
        assert any(each.endswith("it is of a backfill, for App.seed") for each in plan.left)


def test_a_file_of_offsets_that_is_no_text_is_told(tmp_path: Path) -> None:
    """In one line that names it, with exit code 2."""
    file = tmp_path / "offsets.csv"
    file.write_bytes(b"in,\xff,1\n")
    result = CliRunner().invoke(ks_actors, ["reset", "--application-id=counter", f"--from-file={file}"])
    assert result.exit_code == 2
    assert f"{file} cannot be read as text in UTF-8" in " ".join(result.output.split())
