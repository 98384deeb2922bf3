"""The commands of operators, on a log in a directory."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ks_actors import App, Batch, LogError, StreamsConfig
from ks_actors.cli import _reload
from ks_actors.cli._formats import FORMATS, from_bytes, to_bytes
from ks_actors.cli._groups import _ages
from ks_actors.cli._main import ks_actors
from ks_actors.cli._output import show
from ks_actors.cli._reload import run_reloading, times
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from tests.ks_actors.cli.jobs import shop

ROOT = Path(__file__).parents[3]
JOBS = "tests.ks_actors.cli.jobs"
SHOP = f"{JOBS}:shop"


class Place:
    """A log and a state directory, and the command line about them."""

    def __init__(self, directory: Path) -> None:
        self.settings = {
            "application_id": "shop",
            "log": f"embedded://{directory / 'log'}",
            "state_dir": str(directory / "state"),
            "default_key_serde": "ks_actors.serdes.STRING",
            "default_value_serde": "ks_actors.serdes.STRING",
        }

    def run(self, *arguments: str, code: int = 0, stdin: str | None = None) -> str:
        """Run a command with the settings, and return its output."""
        conf = [f"-c{name}={value}" for name, value in self.settings.items()]
        result = CliRunner().invoke(ks_actors, [*arguments, *conf], input=stdin)
        assert result.exit_code == code, result.output
        return result.output

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run a command with --json, and return what it prints."""
        return json.loads(self.run(*arguments, "--json", code=code))

    def process(self) -> None:
        """Run the app until all records are processed."""

        async def work() -> None:
            async with App(shop(), StreamsConfig.of(self.settings)) as app:
                await app.wait_until_caught_up()

        asyncio.run(work())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Make a log with the topics of the job."""
    made = Place(tmp_path)
    made.run("topics", "create", SHOP, "--topic=orders=2", "--topic=totals=1")
    return made


def test_topics_are_planned_and_created(tmp_path: Path) -> None:
    """Internal topics as a start would create them, others where their partitions are given; the exit code tells what is missing."""
    place = Place(tmp_path)
    planned = {row["topic"]: row for row in place.json("topics", "plan", SHOP, code=3)}
    assert {name: (row["use"], row["state"], row["partitions"]) for name, row in planned.items()} == {
        "orders": ("source", "missing", None),
        "totals": ("sink", "missing", None),
        "shop-counts-changelog": ("changelog", "missing", None),
        "shop-counts-repartition": ("repartition", "missing", None),
    }
    assert "totals" in place.run("topics", "create", SHOP, "--topic=orders=2", code=3)
    made = place.json("topics", "create", SHOP, "--topic=totals=1", "--topic=orders=2")
    assert [row["topic"] for row in made if row["created"]] == ["totals"]
    planned = {row["topic"]: row for row in place.json("topics", "plan", SHOP)}
    assert {row["state"] for row in planned.values()} == {"exists"}
    assert planned["shop-counts-changelog"]["partitions"] == planned["orders"]["partitions"] == 2
    assert "cleanup.policy=compact" in planned["shop-counts-changelog"]["configs"]
    place.process()
    assert "--topic 'orders' is not name=partitions" in place.run("topics", "create", SHOP, "--topic=orders", code=2)


def test_a_topic_with_other_partitions_than_are_given_is_told(place: Place) -> None:
    """It keeps them, and the exit code is 3."""
    found = {row["topic"]: row for row in place.json("topics", "create", SHOP, "--topic=orders=6", code=3)}
    assert found["orders"]["state"] == "does not fit: it has 2 partitions, and --topic gives 6"
    assert (found["orders"]["partitions"], found["orders"]["created"]) == (2, False)


@pytest.mark.parametrize(
    "command",
    [
        ("lag", "--app", SHOP),
        ("members",),
        ("tail", "orders"),
        ("dlq", "list", "--topic=dead"),
        ("dlq", "redrive", "--all", "--topic=dead"),
        ("reset", "--input-topics=orders"),
        ("reset", "--app", SHOP, "--execute"),
    ],
)
def test_a_command_that_only_looks_creates_no_log(tmp_path: Path, command: tuple[str, ...]) -> None:
    """A mistyped path is one line that names it, with exit code 1."""
    place = Place(tmp_path)
    assert f"there is no log in {tmp_path / 'log'}" in place.run(*command, code=1)
    assert not (tmp_path / "log").exists()


def test_a_plan_and_a_check_before_the_first_start_create_no_log(tmp_path: Path) -> None:
    """They tell which topics would be made."""
    place = Place(tmp_path)
    assert {row["state"] for row in place.json("topics", "plan", SHOP, code=3)} == {"missing"}
    found = {row["check"]: row for row in place.json("check", SHOP, code=1) if row["result"] == "note"}
    assert found["broker"]["detail"] == f"there is no log in {tmp_path / 'log'}: the start will create it"
    assert "shop-counts-changelog" in found["topics"]["detail"]
    assert not (tmp_path / "log").exists()


def test_only_topics_of_the_topology_are_created(tmp_path: Path) -> None:
    """A name that it does not use is a mistake, and so is one that is given twice; nothing is created then."""
    place = Place(tmp_path)
    said = place.run("topics", "create", SHOP, "--topic=ordres=2", code=2)
    assert "--topic ordres: the topology neither reads nor writes it; it uses orders, shop-counts-changelog" in " ".join(said.split())
    assert "names a topic twice" in place.run("topics", "create", SHOP, "--topic=orders=2", "--topic=orders=3", code=2)
    assert {row["state"] for row in place.json("topics", "plan", SHOP, code=3)} == {"missing"}


def test_topics_of_a_pattern_are_created_by_their_names(tmp_path: Path) -> None:
    """The topology knows which names fit, and not which there will be."""
    place = Place(tmp_path)
    made = place.json("topics", "create", f"{JOBS}:by_pattern", "--topic=orders-eu=3", "--topic=totals=1", code=0)
    assert {row["topic"] for row in made if row["created"]} == {"orders-eu", "totals"}
    assert "--topic clicks" in place.run("topics", "create", f"{JOBS}:by_pattern", "--topic=clicks=3", code=2)


def test_topics_that_do_not_fit_are_told(tmp_path: Path) -> None:
    """With the reason, by the plan and by the check."""
    place = Place(tmp_path)
    place.run("topics", "create", SHOP, "--topic=shop-counts-changelog=1", code=3)
    place.run("topics", "create", SHOP, "--topic=orders=2", "--topic=totals=1", code=3)
    (wrong,) = [row for row in place.json("topics", "plan", SHOP, code=3) if row["topic"] == "shop-counts-changelog"]
    assert wrong["state"].startswith("does not fit: ")
    assert "shop-counts-changelog has 1 partition and needs 2" in wrong["state"]
    assert "has 1 partition and needs 2" in place.run("check", SHOP, code=1)


def test_a_topology_is_described(place: Place) -> None:
    """As Kafka Streams' text, as Mermaid, and as JSON; no id is needed."""
    text = CliRunner().invoke(ks_actors, ["describe", SHOP]).output
    assert text == str(shop().describe())
    assert place.run("describe", SHOP, "--format=mermaid").startswith("flowchart TD\n")
    assert place.json("describe", SHOP) == json.loads(shop().describe().to_json())
    assert place.json("describe", SHOP, "--format=json") == place.json("describe", SHOP)


def test_a_check_tells_whether_an_app_could_start(place: Place, tmp_path: Path) -> None:
    """Each finding is a row, and a failed one is exit code 1."""
    found = place.json("check", SHOP)
    assert [(row["check"], row["result"]) for row in found] == [
        ("config", "ok"), ("config", "ok"), ("state", "ok"), ("broker", "ok"), ("topics", "ok"), ("group", "ok"), ("permissions", "note"),
    ]  # fmt: skip
    fresh = Place(tmp_path / "fresh")
    failed = [row["detail"] for row in fresh.json("check", SHOP, code=1) if row["result"] == "failed"]
    assert failed == ["sink totals does not exist: create it", "source orders does not exist: create it"]
    fresh.settings["log"] = "kafka://127.0.0.1:1"
    (broker,) = [row for row in fresh.json("check", SHOP, "--timeout-ms=300", code=1) if row["result"] == "failed"]
    assert broker["check"] == "broker"
    assert "127.0.0.1:1" in broker["detail"]
    fresh.settings["commit_interval_ms"] = "x"
    assert "'x' is not a whole number" in fresh.run("check", SHOP, code=2)


def test_records_are_sent_and_shown(place: Place) -> None:
    """In the forms that are asked for; lines of stdin are records with or without key."""
    assert place.run("send", "orders", "--key=a", "--value=ann", "-Htrace=1", "--timestamp=5") == "1 record written: orders-0 up to 0\n"
    assert place.run("send", "orders", stdin="b\tbob\n") == "1 record written: orders-0 up to 1\n"
    assert place.run("send", "orders", "-p1", stdin="ann\n") == "1 record written: orders-1 up to 0\n"
    lines = [json.loads(line) for line in place.run("tail", "orders", "--from=begin", "--until-end", "--json").splitlines()]
    lines.sort(key=lambda line: (line["partition"], line["offset"]))
    assert [(line["key"], line["value"], line["headers"]) for line in lines] == [("a", "ann", [["trace", "1"]]), ("b", "bob", []), (None, "ann", [])]
    assert lines[0]["timestamp"] == 5
    last = place.run("tail", "orders", "--from=-1", "--until-end", "-p0").splitlines()
    assert [line.split()[0] for line in last] == ["orders-0@1"]
    assert last[0].endswith(" b bob")
    assert place.run("tail", "orders", "--from=1", "--max=1", "-p0").split()[0] == "orders-0@1"
    assert place.run("tail", "orders", "--from=2100-01-01T00:00", "--until-end") == ""
    assert place.run("tail", "orders", "--until-end") == ""
    assert "1970-01-01T00:00:00.005+00:00 a ann trace=1" in place.run("tail", "orders", "--from=begin", "--max=1", "-p0")
    assert json.loads(place.run("send", "orders", "--key=a", "--delete", "--json")) == {"records": 1, "next_offsets": {"orders-0": 3}}


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [
        ("7ff8000000000000", "double", "nan"),
        ("ff800000", "float", "-inf"),
        (b"NaN".hex(), "json", "base64:TmFO"),
        (b"1e999".hex(), "json", "base64:MWU5OTk="),
        (b"[".hex() * 50_000, "json", None),
        (b'"\\ud800"'.hex(), "json", "\ud800"),
    ],
)
def test_each_record_is_a_line_of_valid_json(place: Place, value: str, form: str, shown: str | None) -> None:
    """NaN, a lone surrogate and a timestamp beyond the calendar come out as valid JSON too."""
    data = base64.b64encode(bytes.fromhex(value)).decode()
    place.run("send", "orders", f"--value={data}", "--value-format=base64", f"--timestamp={1 << 62}", "-p0")
    told = place.run("tail", "orders", "--from=begin", "--until-end", f"--value-format={form}", "--json")
    line = json.loads(told, parse_constant=pytest.fail)
    assert line["value"] == shown or (shown is None and line["value"].startswith("base64:"))
    assert f"orders-0@0 {1 << 62} ms - " in place.run("tail", "orders", "--from=begin", "--until-end", f"--value-format={form}")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("send", "nothing", "--value=x"), 1, "topic nothing does not exist"),
        (("send", "orders", "--value=x", "--partition=2"), 1, "topic orders has partitions 0 to 1"),
        (("send", "orders", "--value=x", "--value-format=long"), 2, "invalid literal"),
        (("send", "orders", "--key=x"), 2, "--key needs --value or --delete"),
        (("send", "orders", "--delete"), 2, "--delete needs --key, and no --value"),
        (("send", "orders", "--value=x", "-H=y"), 2, "is not name=text"),
        (("tail", "nothing"), 1, "topic nothing does not exist"),
        (("send", "orders", "--value=x", "-H=y=\udcff"), 2, "--header"),
        (("send", "orders", "--value=x", f"--timestamp={1 << 63}"), 2, "is not in the range"),
        (("tail", "orders", "--from=--5"), 2, "--from '--5' is not begin, end, an offset, -N, or a time"),
        (("run", ".m:x"), 2, "'.m:x' is not module:name"),
        (("run", SHOP, "-q", "-csnapshot_uri=ftp://ann:s3cret@127.0.0.1:1/x"), 1, "refused; snapshot_uri is ftp://***@127.0.0.1:1/x"),
        (("export", SHOP, "--topic=orders", "--to=/dev/null/x"), 1, "shop: NotADirectoryError: "),
        (("backfill", SHOP, "-csnapshot_uri=/dev/null/x"), 1, "shop: NotADirectoryError: "),
        (("tail", "orders", "--from=soon"), 2, "--from 'soon' is not begin, end, an offset, -N, or a time"),
        (("topology", "diff", SHOP, f"{JOBS}:none"), 2, "has no none"),
        (("snapshots",), 2, "snapshot_uri is not set"),
        (("run", SHOP, "--reload-dir=."), 2, "--reload-dir needs --reload"),
    ],
)
def test_wrong_command_lines_are_told(place: Place, arguments: tuple[str, ...], code: int, said: str) -> None:
    """The error names the fault, and where it is."""
    assert said in place.run(*arguments, code=code)


def test_a_record_is_one_line_without_control_characters(place: Place) -> None:
    """Its key, value and headers forge no line and send a terminal no command; JSON has them all."""
    place.run("send", "orders", "--key=a\x1b[31m", "--value=x\norders-0@9 y\r\u202ez\tü", "-Hna\nme=\x9bm", "--timestamp=0", "-p0")
    (line,) = place.run("tail", "orders", "--from=begin", "--until-end").split("\n")[:-1]
    assert line.endswith(r" a\x1b[31m x\norders-0@9 y\r\u202ez" + "\tü " + r"na\nme=\x9bm")
    (found,) = place.run("tail", "orders", "--from=begin", "--until-end", "--json").splitlines()
    assert json.loads(found)["value"] == "x\norders-0@9 y\r\u202ez\tü"


def test_a_cell_of_a_table_is_one_line_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Texts of errors, keys and values come from records."""
    show([{"key": "a\x1b[2J\nb", "parts": ["c\nd"]}], ("key", "parts"), as_json=False)
    assert [line.split() for line in capsys.readouterr().out.split("\n")] == [["KEY", "PARTS"], [r"a\x1b[2J\nb", r"c\nd"], []]


def test_a_line_of_stdin_that_is_wrong_is_named(place: Place) -> None:
    """The error names the line, and nothing is written."""
    assert "line 2 of stdin: Expecting property name" in place.run("send", "orders", "--value-format=json", stdin='{"a": 1}\n{', code=2)
    assert place.run("tail", "orders", "--from=begin", "--until-end") == ""


def test_lag_in_seconds_is_the_age_of_the_first_record_that_waits(place: Place) -> None:
    """By its timestamp, however many come behind it, and 0 where none waits."""
    hour_ago = (int(time.time()) - 3600) * 1000
    place.run("send", "orders", "--key=a", "--value=old", f"--timestamp={hour_ago}")
    place.run("send", "orders", "--key=a", "--value=new")
    rows = place.json("lag", "--app", SHOP)
    (late,) = [row for row in rows if row["lag"]]
    assert late["lag"] == 2
    assert 3600 <= late["seconds"] < 4200
    assert {row["seconds"] for row in rows if not row["lag"]} == {0}
    assert "SECONDS" in place.run("lag", "--app", SHOP)


async def test_a_record_without_a_timestamp_has_no_age() -> None:
    """Its timestamp is -1, which is no time."""
    partition = TopicPartition("in", 0)
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 1)])
        producer = await log.producer(client_id="test")
        await producer.send([Outgoing(partition, Batch([b"k"], [b"v"], [-1]))])
        assert await _ages(log, {partition: 0}) == {partition: None}


async def test_a_partition_that_cannot_be_read_has_no_age_and_stderr_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """The command goes on without the age, as the lag in records is known."""
    partition = TopicPartition("in", 0)
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 1)])
        log.inject("fetch", LogError("the disk is gone"))
        assert await _ages(log, {partition: 0}) == {}
    assert capsys.readouterr().err == "the age of records is unknown for in-0: the disk is gone\n"


def test_lag_and_members_are_those_of_the_group(place: Place) -> None:
    """Before the first commit, and behind it; nobody is a member of a group of an app that has ended."""
    place.run("send", "orders", stdin="a\tann\nb\tbob\nc\tann\n")
    waiting = place.json("lag", "--app", SHOP)
    assert sum(row["lag"] for row in waiting) == 3
    assert {row["topic"] for row in waiting} == {"orders", "shop-counts-repartition"}
    assert place.run("lag", "--app", SHOP, "--over=2", code=3).endswith("3 records in 4 partitions\n")
    assert all(0 <= row["seconds"] < 600 for row in waiting)
    assert "group shop has neither committed offsets nor members" in place.run("lag", "--application-id=shop", code=3)
    place.process()
    after = place.json("lag", "--application-id=shop", "--over=0")
    assert {(row["lag"], row["member"]) for row in after} == {(0, None)}
    assert sum(row["committed"] for row in after if row["topic"] == "orders") == 3
    assert "shop has no members" in place.run("members", code=3)


def test_snapshots_are_listed_and_verified(place: Place, tmp_path: Path) -> None:
    """The newest first; a file that was changed is found."""
    place.settings["snapshot_uri"] = str(tmp_path / "snapshots")
    place.run("send", "orders", stdin="a\tann\nb\tbob\n")

    async def work() -> None:
        async with App(shop(), StreamsConfig.of(place.settings)) as app:
            await app.wait_until_caught_up()
            await app.snapshot()

    asyncio.run(work())
    (found,) = place.json("snapshots", "--verify")
    assert (found["tasks"], found["stores"], found["rows"], found["problem"]) == (4, 2, 2, None)
    file = next(path for path in (tmp_path / "snapshots").rglob("*") if path.is_file() and path.name != "manifest.json" and path.stat().st_size)
    file.write_bytes(b"x" + file.read_bytes()[1:])
    assert place.json("snapshots", "--verify", code=3)[0]["problem"] is not None
    assert "PROBLEM" in place.run("snapshots").splitlines()[0]


def test_a_place_of_snapshots_that_cannot_be_read_is_told(place: Place, tmp_path: Path) -> None:
    """In one line, with exit code 1."""
    file = tmp_path / "file"
    file.write_text("")
    place.settings["snapshot_uri"] = f"file://{file}/below"
    assert "the snapshots cannot be read: " in place.run("snapshots", "--app", SHOP, code=1)


def test_a_place_of_snapshots_that_does_not_exist_is_exit_code_1(place: Place, tmp_path: Path) -> None:
    """A mistyped path, or a volume that is not mounted, is no empty list; a directory without snapshots is."""
    place.settings["snapshot_uri"] = str(tmp_path / "nowhere")
    assert f"{tmp_path / 'nowhere'} does not exist" in place.run("snapshots", code=1)
    (tmp_path / "nowhere").mkdir()
    assert place.json("snapshots") == []


def test_versions_of_a_topology_are_compared(place: Place) -> None:
    """Only what changes is shown, unless all is asked for; a loss is exit code 3."""
    assert place.run("topology", "diff", SHOP, SHOP) == "all state and all topics stay as they are\n"
    assert {row["effect"] for row in place.json("topology", "diff", SHOP, SHOP, "--all")} == {"kept"}
    found = place.json("topology", "diff", SHOP, f"{JOBS}:renamed", code=3)
    assert [(row["kind"], row["name"], row["effect"]) for row in found] == [
        ("store", "counts", "left behind"),
        ("store", "sums", "begins"),
        ("repartition", "counts-repartition", "lost"),
        ("repartition", "sums-repartition", "begins"),
    ]
    assert "EFFECT" in place.run("topology", "diff", SHOP, f"{JOBS}:renamed", code=3)


def test_versions_are_told() -> None:
    """Of this package, of Python and of what it uses; a missing package has none."""
    found = {row["name"]: row["version"] for row in json.loads(CliRunner().invoke(ks_actors, ["version", "--json"]).output)}
    assert found["ks-actors"]
    assert found["Python"].startswith("3.")
    assert "msgspec" in CliRunner().invoke(ks_actors, ["version"]).output


@pytest.mark.parametrize(
    ("form", "text", "data"),
    [
        ("text", "é", "é".encode()),
        ("json", '{"a":  [1]}', b'{"a":[1]}'),
        ("base64", "AP8=", b"\x00\xff"),
        ("short", "1", b"\x00\x01"),
        ("integer", "-1", b"\xff\xff\xff\xff"),
        ("long", "1", bytes(7) + b"\x01"),
        ("float", "1.5", b"\x3f\xc0\x00\x00"),
        ("double", "1.5", b"\x3f\xf8" + bytes(6)),
    ],
)
def test_a_form_gives_bytes_and_takes_them(form: str, text: str, data: bytes) -> None:
    """Those that Kafka's own serdes have."""
    assert form in FORMATS
    assert to_bytes(text, form) == data
    shown = from_bytes(data, form)
    assert to_bytes(shown if isinstance(shown, str) else json.dumps(shown), form) == data
    assert from_bytes(None, form) is None


def test_bytes_that_do_not_fit_a_form_are_base64() -> None:
    """Marked so: a record that cannot be read must not end `tail`."""
    assert from_bytes(b"\xff", "text") == "base64:/w=="
    assert from_bytes(b"{", "json") == "base64:ew=="
    assert from_bytes(b"\x01", "long") == "base64:AQ=="
    for text, form in (("x", "base64"), ("99999", "short"), ("{", "json"), ("NaN", "json"), ("1e999", "json"), ("x", "float")):
        with pytest.raises(ValueError, match=r"."):
            to_bytes(text, form)


def test_a_change_of_a_source_is_seen(tmp_path: Path) -> None:
    """Of Python and of settings; hidden directories, caches and other files do not count."""
    for name in ("a.py", ".git/b.py", "__pycache__/c.py", "d.txt", "e/f.toml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    assert {path.relative_to(tmp_path).as_posix() for path in times([tmp_path])} == {"a.py", "e/f.toml"}


def test_a_directory_that_vanishes_while_sources_are_looked_at_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State, builds and tests make and delete directories below the watched one at any time."""
    for name in ("a.py", "gone/b.py", "kept/c.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    real = os.scandir

    def look(path: Any) -> Any:
        if str(path).endswith("gone"):
            shutil.rmtree(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", look)
    assert {path.relative_to(tmp_path).as_posix() for path in times([tmp_path])} == {"a.py", "kept/c.py"}


def test_an_error_while_sources_are_looked_at_ends_the_app_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An app without a parent would hold its log."""
    children: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            children.append(self)

    def watch(directories: Any) -> dict[Path, int]:
        if children:
            raise RuntimeError("the look failed")
        return times(directories)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    monkeypatch.setattr(_reload, "times", watch)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with pytest.raises(RuntimeError, match="the look failed"):
            run_reloading([SHOP], [tmp_path])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert [child.returncode is not None for child in children] == [True]


def test_an_export_needs_no_pyspark(place: Place, tmp_path: Path) -> None:
    """Parquet is PyArrow's; PySpark and pandas are not imported."""
    place.run("send", "orders", stdin="a\tann\nb\tbob\n")
    place.process()
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "pandas"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from ks_actors.cli import main
main()
"""
    conf = [f"-c{name}={value}" for name, value in place.settings.items()]
    command = [sys.executable, "-c", code, "export", SHOP, "--table=counts", "--topic=orders", f"--to={tmp_path / 'tables'}", *conf]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)  # noqa: S603 - our own
    assert done.returncode == 0, done.stderr
    assert done.stdout == "counts: 2 rows\norders: 2 rows\n"
    assert sorted(path.name for path in (tmp_path / "tables").rglob("*.parquet")) == ["0.parquet", "0.parquet", "1.parquet", "1.parquet"]
