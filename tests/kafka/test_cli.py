"""The command line on a real Kafka, with apps that run as programs of their own."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ks_actors.cli._main import ks_actors
from tests.kafka.broker import PASSWORD, STRANGER, STRANGERS_PASSWORD, USER, Broker
from tests.kafka.helpers import connect
from tests.kafka.test_secured_apps import ALLOW, GROUP, PREFIXED, READ, TOPIC, TRANSACTION, WRITE, rule, secure_broker
from tests.ks_actors.log.helpers import group_name

__all__ = ["secure_broker"]

ROOT = Path(__file__).parents[2]
SHOP = "tests.ks_actors.cli.jobs:shop"


class Shop:
    """An application with topics of its own, by settings on the command line."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.id = f"shop-{group_name()}"
        self.settings = {
            "application_id": self.id,
            "state_dir": str(directory / "state"),
            "commit_interval_ms": "100",
            "default_key_serde": "ks_actors.serdes.STRING",
            "default_value_serde": "ks_actors.serdes.STRING",
            **settings,
        }

    def arguments(self) -> list[str]:
        return [f"-c{name}={value}" for name, value in self.settings.items()]

    def run(self, *arguments: str, code: int = 0, stdin: str | None = None) -> str:
        """Run a command, and return its output."""
        result = CliRunner().invoke(ks_actors, [*arguments, *self.arguments()], input=stdin)
        assert result.exit_code == code, result.output
        return result.output

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run a command with --json, and return what it prints."""
        return json.loads(self.run(*arguments, "--json", code=code))

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Run the app as a program, until the end of the block; its log is JSON."""
        command = [sys.executable, "-m", "ks_actors.cli", "run", "--log-format=json", "--log-level=info", "-q", *arguments, *self.arguments()]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
            try:
                yield process
            finally:
                process.send_signal(signal.SIGTERM)
                process.communicate()
            assert process.returncode == 0


def until(process: subprocess.Popen[str], **fields: object) -> list[dict[str, Any]]:
    """Read the log until a record has these fields; return all until then."""
    assert process.stderr is not None
    records: list[dict[str, Any]] = []
    for line in process.stderr:
        records.append(json.loads(line))
        if fields.items() <= records[-1].items():
            return records
    raise AssertionError(f"the app ended: {records}")


@pytest.fixture
def shop(kafka_broker: Broker, tmp_path: Path) -> Shop:
    """Make an application on the broker of all tests."""
    return Shop(tmp_path, {"bootstrap_servers": kafka_broker.bootstrap})


def test_an_operators_day(shop: Shop, tmp_path: Path) -> None:
    """Topics are planned and created, records are written, an app counts them, and the group, its lag and the results are looked at."""
    shop.settings["snapshot_uri"] = str(tmp_path / "snapshots")
    target = SHOP
    missing = {row["topic"] for row in shop.json("topics", "plan", target, code=3) if row["state"] == "missing"}
    assert {f"{shop.id}-counts-changelog", f"{shop.id}-counts-repartition"} <= missing
    made = shop.json("topics", "create", target, "--topic=orders=2", "--topic=totals=1")
    assert {f"{shop.id}-counts-changelog", f"{shop.id}-counts-repartition"} <= {row["topic"] for row in made if row["created"]}
    found = shop.json("check", target)
    assert [(row["check"], row["result"]) for row in found] == [
        ("config", "ok"), ("config", "ok"), ("state", "ok"), ("snapshots", "ok"), ("broker", "ok"),
        ("topics", "ok"), ("group", "ok"), ("permissions", "ok"),
    ]  # fmt: skip
    before = sum(json.loads(shop.run("send", "orders", "--key=a", "--value=ann", "--json"))["next_offsets"].values())
    shop.run("send", "orders", stdin="b\tbob\nc\tann\n")
    assert sum(row["lag"] for row in shop.json("lag", "--app", target)) == before + 2
    assert shop.run("members", code=3).endswith("has no members\n")
    with shop.running(target) as process:
        records = until(process, state="RUNNING")
        assert {record["logger"] for record in records} >= {"ks_actors.app", "ks_actors.instance", "ks_actors.membership"}
        assert records[-1]["client_id"].startswith(f"{shop.id}-")
        (member,) = shop.json("members")
        assert member["client_id"] == f"{records[-1]['client_id']}-StreamThread-1-consumer"
        assert len(member["partitions"]) == 4
        while sum(row["lag"] for row in shop.json("lag", "--app", target)):
            pass
        assert {row["member"] for row in shop.json("lag")} == {member["client_id"]}
    assert shop.run("lag", "--app", target, "--over=0").startswith("TOPIC")
    lines = [json.loads(line) for line in shop.run("tail", "totals", "--from=begin", "--until-end", "--value-format=long", "--json").splitlines()]
    assert {(line["key"], line["value"]) for line in lines} >= {("ann", 2), ("bob", 1)}
    # The first snapshot makes the directory.
    assert "does not exist" in shop.run("snapshots", code=1)
    assert shop.run("topology", "diff", target, target).startswith("all state")
    assert "Sub-topology: 1" in shop.run("describe", target)
    assert shop.run("export", target, "--table=counts", f"--to={tmp_path / 'tables'}") == "counts: 2 rows\n"
    assert "delete topic" in shop.run("reset", "--app", target)


@pytest.mark.extended
def test_a_changed_source_starts_the_app_again(shop: Shop, tmp_path: Path) -> None:
    """With `--reload`: it closes as by a signal, and starts with the new source."""
    shop.run("topics", "create", SHOP, "--topic=orders=2", "--topic=totals=1")
    watched = tmp_path / "source"
    watched.mkdir()
    with shop.running(SHOP, "--reload", f"--reload-dir={watched}") as process:
        until(process, state="RUNNING")
        (watched / "job.py").write_text("")
        assert process.stderr is not None
        told = [next(process.stderr)]
        while "changed: the app starts again" not in told[-1]:
            told.append(next(process.stderr))
        assert str(watched / "job.py") in told[-1]
        until(process, state="NOT_RUNNING")
        until(process, state="RUNNING")


def test_brokers_tell_whether_they_would_create_internal_topics(shop: Shop) -> None:
    """The check asks them, and creates none: configs and names that they refuse are told."""
    shop.run("topics", "create", SHOP, "--topic=orders=2", "--topic=totals=1")
    shop.settings["application_id"] = f"{shop.id}-other"
    found = shop.json("check", SHOP)
    assert {row["result"] for row in found} == {"ok", "note"}
    shop.settings["topic.retention"] = "5"
    (wrong,) = [row for row in shop.json("check", SHOP, code=1) if row["result"] == "failed"]
    assert wrong["check"] == "topics"
    assert "retention" in wrong["detail"]
    del shop.settings["topic.retention"]
    assert {row["state"] for row in shop.json("topics", "plan", SHOP, code=3) if row["topic"].startswith(f"{shop.id}-other")} == {"missing"}


async def test_permissions_are_told_by_the_brokers(secure_broker: Broker, tmp_path: Path) -> None:
    """The command names the rights that the user lacks, for topics, the group and, exactly once, transactional ids; it changes nothing."""
    login = {
        "bootstrap_servers": secure_broker.address("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_truststore_location": str(secure_broker.certificate),
        "sasl_mechanism": "PLAIN",
    }
    shop = Shop(tmp_path, {**login, "sasl_username": USER, "sasl_password": PASSWORD})
    await asyncio.to_thread(shop.run, "topics", "create", SHOP, "--topic=orders=2", "--topic=totals=1")
    found = await asyncio.to_thread(shop.json, "check", SHOP)
    assert found[-1]["result"] == "ok"
    log = await connect(secure_broker)
    try:
        for topic in ("orders", "totals", f"{shop.id}-counts-changelog", f"{shop.id}-counts-repartition"):
            await rule(log, ALLOW, TOPIC, topic, READ)
        await rule(log, ALLOW, GROUP, shop.id, READ)
    finally:
        await log.close()
    shop.settings |= {"sasl_username": STRANGER, "sasl_password": STRANGERS_PASSWORD}
    while True:  # brokers hear of new rules a moment later
        found = await asyncio.to_thread(CliRunner().invoke, ks_actors, ["check", SHOP, "--json", *shop.arguments()])
        assert found.exit_code == 1, found.output
        failed = [row for row in json.loads(found.output) if row["result"] == "failed"]
        if [row["check"] for row in failed] == ["permissions"]:
            break
    assert f"WRITE on topic {shop.id}-counts-changelog" in failed[0]["detail"]
    assert "WRITE on topic totals" in failed[0]["detail"]
    assert "READ" not in failed[0]["detail"]
    assert "transactional" not in failed[0]["detail"]

    shop.settings |= {"processing_guarantee": "exactly_once_v2"}
    assert f"WRITE on transactional ids {shop.id}-*" in (await asyncio.to_thread(shop.json, "check", SHOP, code=1))[-1]["detail"]
    log = await connect(secure_broker)
    try:
        await rule(log, ALLOW, TRANSACTION, f"{shop.id}-", WRITE, pattern=PREFIXED)
    finally:
        await log.close()
    while "transactional" in (await asyncio.to_thread(shop.json, "check", SHOP, code=1))[-1]["detail"]:
        pass
    shop.settings |= {"sasl_username": USER, "sasl_password": PASSWORD}
    found = await asyncio.to_thread(shop.json, "check", SHOP)
    assert found[-1]["detail"] == "topics, group and transactional ids are permitted"


def test_dead_letters_are_listed_shown_and_written_back(shop: Shop) -> None:
    """Each once: the record is processed again, and leaves another letter if it still fails."""
    letters = f"{shop.id}-letters"
    shop.settings |= {"errors_dead_letter_queue_topic_name": letters, "processing_exception_handler": "continue"}
    target = "tests.ks_actors.cli.jobs:numbers"
    shop.run("topics", "create", target, f"--topic={letters}=1", "--topic=texts=1", "--topic=numbers=1")
    shop.run("send", "texts", stdin="1\none\n2\n")
    with shop.running(target) as process:
        until(process, state="RUNNING")
        while not (found := shop.json("dlq", "list")):
            pass
        (letter,) = found
        assert (letter["source"], letter["exception"], letter["redriven"]) == ("texts-0", "ValueError", False)
        shown = shop.json("dlq", "show", letter["letter"])
        assert shown["value"] == "one"
        assert "Traceback" in shown["stacktrace"] or "ValueError" in shown["stacktrace"]
        assert "value: one" in shop.run("dlq", "show", letter["letter"])
        (back,) = shop.json("dlq", "redrive", letter["letter"])
        assert back["redriven"]
        assert "was written back" in shop.run("dlq", "redrive", letter["letter"], code=1)
        while len(found := [row for row in shop.json("dlq", "list") if not row["redriven"]]) != 1:
            pass
        assert found[0]["letter"] != letter["letter"]
        assert len(shop.json("dlq", "redrive", "--all", f"--topic={letters}")) == 1
    assert "there is no dead letter at offset 99" in shop.run("dlq", "show", "0@99", code=1)
    assert "give dead letters as PARTITION@OFFSET, or --all" in shop.run("dlq", "redrive", code=2)


def test_a_running_instance_obeys(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks and stores are looked at, and it is paused and resumed, by whoever has the token."""
    monkeypatch.setenv("KS_OPS_TOKEN", "a token of this test")
    shop.run("topics", "create", SHOP, "--topic=orders=2", "--topic=totals=1")
    shop.run("send", "orders", stdin="a\tann\nb\tann\n")
    with shop.running(SHOP, "--page=0") as process:
        url = address(process)
        until(process, state="RUNNING")
        remote = CliRunner()

        def ask(*arguments: str, code: int = 0) -> Any:
            result = remote.invoke(ks_actors, [*arguments, f"--url={url}", "--json"])
            assert result.exit_code == code, result.output
            return json.loads(result.output) if code == 0 else result.output

        while sum(row["lag"] for row in shop.json("lag", "--app", SHOP)):
            pass
        assert {task["task"] for task in ask("tasks")} == {"0_0", "0_1", "1_0", "1_1"}
        assert "ROLE" in remote.invoke(ks_actors, ["tasks", f"--url={url}"]).output
        (row,) = ask("query", "counts", "--key=ann")["rows"]
        assert row["key"] == "ann"
        assert row["value"] >= 2
        assert "ann" in remote.invoke(ks_actors, ["query", "counts", f"--url={url}"]).output
        ask("query", "counts", "--key=nobody", code=3)
        assert "nothing" in ask("query", "nothing", code=1)
        assert ask("pause") == {"paused": True}
        assert remote.invoke(ks_actors, ["resume", f"--url={url}"]).output == "resumed\n"
        monkeypatch.setenv("KS_OPS_TOKEN", "another one")
        assert "needs the token" in ask("pause", code=1)
        monkeypatch.delenv("KS_OPS_TOKEN")
        assert "orders need the token of the API" in ask("resume", code=2)
    assert "does not answer" in ask("tasks", code=1)


def address(process: subprocess.Popen[str]) -> str:
    """Read until the page's address is told."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("the page is at "):
            return line.removeprefix("the page is at ").strip()
    raise AssertionError("the app has ended")
