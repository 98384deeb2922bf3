"""Log records say which app, task and record they are about."""

from __future__ import annotations

import ast
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ks_actors
from ks_actors import App, Consumed, Materialized, StreamsBuilder, StreamsConfig
from ks_actors._errors import LogCorrupted, StreamsError
from ks_actors.app._start_log import topology_hash
from ks_actors.cli._logging import JsonFormatter, TextFormatter
from ks_actors.lifecycle import LogClient, component_log, name_client
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records import Batch, TaskId
from ks_actors.serdes import LONG, STRING
from ks_actors.topology import Topology

ROOT = Path(ks_actors.__file__).parent
PAGE = ROOT.parent / "docs" / "logging.md"


def counting(**settings: object) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).group_by_key().count(Materialized("counts", STRING, LONG))
    return builder.build()


async def write(log: EmbeddedLog, count: int) -> None:
    producer = await log.producer(client_id="test")
    await producer.send([Outgoing(TopicPartition("in", 0), Batch([b"k"] * count, [b"v"] * count, [0] * count))])
    await producer.close()


def told(caplog: pytest.LogCaptureFixture, begins: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage().startswith(begins)]


async def test_the_life_of_an_app_is_in_its_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At INFO: version, log, topology, given settings, topics, tasks, restored records, states; at DEBUG commits, too."""
    caplog.set_level(logging.DEBUG, logger="ks_actors")
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 1)])
        await write(log, 3)
        config = StreamsConfig(application_id="app", state_dir=tmp_path / "1", poll_ms=7)
        async with App(counting(), config, log=log) as app:
            await app.wait_until_caught_up()
        (start,) = told(caplog, "application app starts: ks-actors ")
        assert start.name == "ks_actors.app"
        assert f"topology {topology_hash(counting())}, at <EmbeddedLog" in start.getMessage()
        (settings,) = told(caplog, "settings: ")
        assert "poll_ms=7" in settings.getMessage()
        assert "linger_ms" not in settings.getMessage()
        (created,) = told(caplog, "created topic")
        assert (created.getMessage(), vars(created)["topic"]) == ("created topic app-counts-changelog with 1 partition", "app-counts-changelog")
        assert told(caplog, "assigned in generation ")[-1].getMessage().endswith("new tasks 0_0; standbys none; revoked: none")
        assert [vars(record)["state"] for record in told(caplog, "app: ")] == ["REBALANCING", "RUNNING", "PENDING_SHUTDOWN", "NOT_RUNNING"]
        assert told(caplog, "committed 1 task in ")[0].levelno == logging.DEBUG
        caplog.clear()
        async with App(counting(), StreamsConfig(application_id="app", state_dir=tmp_path / "2", ignored_settings="zz"), log=log):
            pass
        (restored,) = told(caplog, "restored store counts of task 0_0: 1 record of app-counts-changelog-0 in ")
        assert restored.levelno == logging.INFO
        fields = {name: vars(restored)[name] for name in ("task", "topic", "partition", "store")}
        assert fields == {"task": "0_0", "topic": "app-counts-changelog", "partition": 0, "store": "counts"}


async def test_apps_of_one_process_are_told_apart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each record has the client id of its app, with the process id as soon as that is known; what is of no app has none."""
    caplog.set_level(logging.DEBUG, logger="ks_actors")
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 2)])
        configs = [StreamsConfig(application_id="app", state_dir=tmp_path / name) for name in ("1", "2")]
        async with App(counting(), configs[0], log=log), App(counting(), configs[1], log=log):
            await write(log, 1)
        names = {
            "app-" + json.loads((tmp_path / name / "app" / "kafka-streams-process-metadata").read_text(encoding="utf-8"))["processId"]
            for name in ("1", "2")
        }
        records = [record for record in caplog.records if record.name.startswith("ks_actors") and not record.name.startswith("ks_actors.log")]
        assert {vars(record).get("client_id") for record in records} == {"app", *names}
        for name in names:
            assert {"NOT_RUNNING", "RUNNING"} <= {vars(record).get("state") for record in records if vars(record)["client_id"] == name}
        caplog.clear()
        component_log("ks_actors.app._x").warning("nobody's")
        assert "client_id" not in vars(caplog.records[0])


def test_fields_come_from_the_arguments_of_a_message(caplog: pytest.LogCaptureFixture) -> None:
    """Of tasks, partitions and errors; the first of a kind counts, and those that are given explicitly."""
    log = component_log("ks_actors.runtime.commit._committer")
    error = LogCorrupted("bad", partition=TopicPartition("t", 1), offset=5)
    log.warning("%s %s %s", TaskId(0, 1), TopicPartition("u", 2), error)
    log.warning("%s", error, extra={"offset": 6, "node": "n"})
    log.warning("%s", StreamsError("no facts"))
    found = [{name: vars(each).get(name) for name in ("task", "topic", "partition", "offset", "node")} for each in caplog.records]
    assert found == [
        {"task": "0_1", "topic": "u", "partition": 2, "offset": 5, "node": None},
        {"task": None, "topic": "t", "partition": 1, "offset": 6, "node": "n"},
        dict.fromkeys(("task", "topic", "partition", "offset", "node")),
    ]
    assert {record.name for record in caplog.records} == {"ks_actors.commit"}
    assert {(record.filename, record.funcName) for record in caplog.records} == {
        ("test_logging.py", "test_fields_come_from_the_arguments_of_a_message")
    }


def test_a_client_may_get_another_name() -> None:
    """The client takes the new name; naming has no effect without a client."""
    name_client("nobody")
    client = LogClient("a")
    with client.named():
        name_client("b")
    assert client.name == "b"


def test_json_has_all_fields_in_a_line() -> None:
    """The time, the level, the logger, the message, extra fields, and the error with its stack."""
    record = logging.makeLogRecord({"name": "ks_actors.app", "levelno": 30, "levelname": "WARNING", "msg": "%s\n", "args": ("ü",), "created": 0.5})
    vars(record).update(client_id="app-1", offset=5, place=Path("/x"))
    try:
        raise ValueError("bad")
    except ValueError:
        record.exc_info = sys.exc_info()
    line = JsonFormatter().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert found.pop("error").startswith("Traceback (most recent call last):")
    assert found == {
        "time": "1970-01-01T00:00:00.500+00:00", "level": "WARNING", "logger": "ks_actors.app", "message": "ü\n", "client_id": "app-1",
        "offset": 5, "place": "/x",
    }  # fmt: skip


def test_text_names_the_client_behind_the_logger() -> None:
    """Where there is one; the record stays as it is for other handlers."""
    record = logging.makeLogRecord({"name": "ks_actors.app", "msg": "m"})
    formatter = TextFormatter("%(name)s: %(message)s")
    assert formatter.format(record) == "ks_actors.app: m"
    vars(record).update(client_id="app-1")
    assert formatter.format(record) == "ks_actors.app [app-1]: m"
    assert record.name == "ks_actors.app"


def loggers() -> Iterator[str]:
    """Yield the names of all loggers in the source."""
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "component_log(" in text or "getLogger(" in text else ():
            match node:
                case ast.Call(ast.Name("component_log")) if path.name != "_component_log.py":
                    module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
                    yield component_log(module).logger.name
                case ast.Call(ast.Attribute(ast.Name("logging"), "getLogger"), [ast.Constant(name), *_]):
                    yield str(name)


def test_the_page_has_exactly_the_loggers() -> None:
    """Each name in its table is a logger of the source, and none is missing."""
    listed = re.findall(r"^\| `(ks_actors[\w.]*)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted({name for name in loggers() if name.startswith("ks_actors")})


async def test_a_record_factory_that_sets_fields_of_our_names_ends_no_app(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`logging` raises KeyError about such fields, and a line in the log must never end an app; the documented fields count."""
    own = logging.getLogRecordFactory()
    names = ("client_id", "state", "task", "node", "topic", "partition", "offset", "store")

    def factory(*args: object, **kwargs: object) -> logging.LogRecord:
        record = own(*args, **kwargs)
        for name in names:
            setattr(record, name, "mine")
        return record

    def fails(value: str) -> str:
        raise ValueError(value)

    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).map_values(fails)
    logging.setLogRecordFactory(factory)
    try:
        async with EmbeddedLog() as log:
            await log.create_topics([NewTopic("in", 1)])
            config = StreamsConfig(application_id="app", state_dir=tmp_path, processing_exception_handler="continue")
            async with App(builder.build(), config, log=log) as app:
                await write(log, 1)
                await app.wait_until_caught_up()
                assert app.metrics()["dropped-records-total"] == 1
    finally:
        logging.setLogRecordFactory(own)
    (record,) = told(caplog, "a record failed at node ")
    assert record.funcName == "_tell"
    assert vars(record)["client_id"].startswith("app")
    assert [vars(record)[name] for name in names[1:]] == ["mine", "0_0", "KSTREAM-MAPVALUES-0000000001", "in", 0, 0, "mine"]
