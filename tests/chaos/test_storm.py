"""Short storms: members are killed and frozen on a real Kafka, and the output is right all the same."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.chaos.faults import draw
from tests.chaos.options import Options, parse
from tests.chaos.supervised import Child, Children
from tests.kafka.broker import require_kafka
from tests.kafka.programs import command

ROOT_PACKAGE = "tests.chaos"
_FAULTS = "kill=2,zombie=1,term=1,scale=1"


async def storm(work: Path, *arguments: str) -> dict[str, Any]:
    """Run the tester in a process of its own; return its report."""
    command = [sys.executable, "-m", ROOT_PACKAGE, "--work-dir", str(work), "--strict", "--quick-broker", *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    try:
        out, told = await process.communicate()
    finally:
        if process.returncode is None:
            # It ends its broker and its members.
            process.send_signal(signal.SIGTERM)
            await process.wait()
    assert process.returncode == 0, told.decode()
    report: dict[str, Any] = json.loads(out.splitlines()[-1])
    return report


@pytest.mark.heavy("a broker, and members that are killed")
@pytest.mark.parametrize(("guarantee", "where"), [(EXACTLY_ONCE, []), (EXACTLY_ONCE, ["--apart"]), (AT_LEAST_ONCE, [])])
async def test_a_short_storm_loses_nothing(guarantee: str, where: list[str], tmp_path: Path) -> None:
    """Killed, frozen, stopped and added members keep the guarantee, and none of them ends by itself."""
    require_kafka()
    report = await storm(
        tmp_path, *where, "--guarantee", guarantee, "--members", "2", "--partitions", "4", "--keys", "40", "--rate", "400", "--records", "4000",
        "--kills", "5", "--faults", _FAULTS, "--restart-max", "2", "--session-timeout", "2", "--zombie-max", "2", "--seed", "6",
    )  # fmt: skip
    kinds = {fault["kind"] for fault in report["faults"] if not fault.get("skipped")}
    assert {"zombie"} < kinds
    assert kinds & {"kill_keep", "kill_wipe"}
    assert report["violations"] == []
    assert (report["lost"], report["unexpected_exits"], report["unclean_stops"], report["header_ids"]) == (0, 0, 0, True)
    assert report["input_records"] >= 4000


@pytest.mark.nightly
@pytest.mark.heavy("a broker, and a supervisor with three processes that are killed")
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
async def test_a_supervisor_keeps_its_members_through_a_storm(guarantee: str, tmp_path: Path) -> None:
    """It starts killed members again and no other ones, tells how often, comes back itself, and leaves no process; nothing is lost."""
    require_kafka()
    report = await storm(
        tmp_path, "--processes", "3", "--guarantee", guarantee, "--members", "1", "--partitions", "6", "--keys", "30", "--rate", "300",
        "--records", "12000", "--kills", "6", "--faults", "child_kill=2,child_freeze=2,hup=1,kill_keep=1", "--restart-max", "1",
        "--session-timeout", "2", "--zombie-max", "2", "--seed", "117",
    )  # fmt: skip
    assert report["violations"] == []
    assert (report["lost"], report["unexpected_exits"], report["unclean_stops"]) == (0, 0, 0)
    (processes,) = report["processes"]
    hups = {"hup"} & {fault["kind"] for fault in report["faults"] if not fault.get("skipped")}
    assert processes["ended"].keys() >= {"child_kill", "kill_keep", "end"} | hups


@pytest.mark.nightly
@pytest.mark.heavy("two brokers, and Kafka Streams")
async def test_kafka_streams_itself_passes(tmp_path: Path) -> None:
    """A peer is checked as the app is: a stopped member and an added one change none of its counts."""
    require_kafka()
    app = shlex.join(await asyncio.to_thread(command))
    report = await storm(
        tmp_path, "--app-cmd", app, "--members", "1", "--partitions", "2", "--keys", "20", "--rate", "200", "--records", "1000",
        "--kills", "2", "--faults", "term=1,scale=1", "--restart-max", "1", "--session-timeout", "2", "--mode", "isolated",
    )  # fmt: skip
    assert {fault["kind"] for fault in report["faults"]} == {"term", "scale_up"}
    assert report["violations"] == []
    assert (report["lost"], report["unexpected_exits"], report["unclean_stops"], report["header_ids"]) == (0, 0, 0, True)


def test_a_roll_explains_one_end_of_each_process() -> None:
    """A process of a member whose turn is over, or that was killed instead, ends by itself."""
    children = Children(3, 0)
    children._supervisor = 1
    began = {pid: Child(pid, "", 1, pid % 10) for pid in (11, 12, 13, 21, 23)}

    def end(pid: int) -> str:
        children._known[pid] = began[pid]
        children._ended(began[pid])
        return began[pid].why

    children._known = {pid: began[pid] for pid in (11, 12, 13)}
    children.roll()
    assert [end(12), end(11), end(21), end(13), end(23)] == ["hup", "", "", "hup", ""]


def test_faults_come_again_with_their_seed() -> None:
    """The same seed draws the same faults at the same times, another one others; isolated, few faults are of many kinds."""
    assert draw(Options(seed=1)) == draw(Options(seed=1)) != draw(Options(seed=2))
    few = draw(Options(kills=6, mode="isolated", faults="zombie,term,scale"))
    assert sorted(plan.kind for plan in few) == ["scale", "scale", "term", "term", "zombie", "zombie"]
    assert draw(Options(kills=3, faults="")) == []


def test_a_fault_that_there_is_not_is_refused() -> None:
    """With those that there are."""
    with pytest.raises(ValueError, match="no fault 'fire': use kill, kill_keep"):
        draw(Options(faults="fire=1"))


def test_the_command_line_names_all_options() -> None:
    """Parsing derives further fields from the options."""
    options = parse(["--records", "100", "--rate", "10", "--mode", "isolated", "--kills", "2", "--strict"])
    assert (options.max_time, options.out_partitions, options.strict, options.guarantee) == (690, 8, True, EXACTLY_ONCE)
