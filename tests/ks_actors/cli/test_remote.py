"""Commands to a running instance, and dead letters, on a log in a directory."""

from __future__ import annotations

import asyncio
import json
import re
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ks_actors import App, StreamsConfig
from ks_actors.cli._main import ks_actors
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records import Batch
from tests.ks_actors.cli.jobs import numbers
from tests.ks_actors.cli.test_operations import SHOP, Place

ROOT = Path(__file__).parents[3]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Make a log with the topics of the job, and some records."""
    made = Place(tmp_path)
    made.run("topics", "create", SHOP, "--topic=orders=2", "--topic=totals=1")
    made.run("send", "orders", stdin="a\tann\nb\tann\nc\tbob\n")
    made.process()
    return made


@contextmanager
def running(place: Place) -> Iterator[str]:
    """Run the app as a program with its page, and yield the address."""
    conf = [f"-c{name}={value}" for name, value in place.settings.items()]
    command = [sys.executable, "-m", "ks_actors.cli", "run", SHOP, "--page=0", "-q", "--log-level=info", *conf]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
        assert process.stderr is not None
        url = ""
        for line in process.stderr:
            if line.startswith("the page is at "):
                url = line.removeprefix("the page is at ").strip()
            if ": RUNNING, was REBALANCING" in line:
                break
        try:
            yield url
        finally:
            process.terminate()
            process.communicate()
        assert process.returncode == 0


def invoke(url: str, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(ks_actors, [*arguments, f"--url={url}"])
    assert result.exit_code == code, result.output
    return result.output


def ask(url: str, *arguments: str) -> Any:
    return json.loads(invoke(url, *arguments, "--json"))


def test_a_running_instance_is_looked_at_and_paused(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks and rows are shown; orders need the token, by a variable or a file."""
    monkeypatch.setenv("KS_OPS_TOKEN", "a token of this test")
    with running(place) as url:
        assert {task["task"] for task in ask(url, "tasks")} == {"0_0", "0_1", "1_0", "1_1"}
        lines = invoke(url, "tasks").splitlines()
        assert lines[0].split()[:4] == ["TASK", "STATE", "ROLE", "PARTITIONS"]
        assert len(lines) == 5
        assert ask(url, "tasks", "--history=rebalances")[0]["causes"] == ["this instance started"]
        shown = {"exceptions": "AT +COUNT", "commits": "TOOK +IN PHASES", "rebalances": "started", "stream-time": r"0_0 +\d{4}-"}
        for history, told in shown.items():
            assert re.search(told, invoke(url, "tasks", f"--history={history}"))
        assert ask(url, "query", "counts", "--key=ann")["rows"] == [{"key": "ann", "value": 2, "at": None}]
        assert [line.split() for line in invoke(url, "query", "counts").splitlines()[1:]] == [["ann", "2", "-"], ["bob", "1", "-"]]
        assert "there are more than 1 row:" in invoke(url, "query", "counts", "--limit=1")
        invoke(url, "query", "counts", "--key=nobody", code=3)
        assert "nothing" in invoke(url, "query", "nothing", code=1)
        assert ask(url, "pause") == {"paused": True}
        assert invoke(url, "resume") == "resumed\n"
        assert ask(url, "pause", "--query=rest") == {"paused": True, "query": "rest"}
        assert invoke(url, "resume", "--query=rest") == "resumed query rest\n"
        assert "parameter 'query' is 'two words': " in invoke(url, "pause", "--query=two words", code=1)
        monkeypatch.delenv("KS_OPS_TOKEN")
        assert "orders need the token of the API: set KS_OPS_TOKEN, or give --token-file" in invoke(url, "pause", code=2)
        file = tmp_path / "token"
        file.write_text("a token of this test\n")
        assert invoke(url, "pause", f"--token-file={file}") == "paused\n"
        broken = tmp_path / "broken"
        broken.write_bytes(b"secret\xff")
        said = invoke(url, "pause", f"--token-file={broken}", code=2)
        assert "the token cannot be read from" in said
        assert "secret" not in said
        file.write_text("another one")
        assert "needs the token" in invoke(url, "resume", f"--token-file={file}", code=1)
        assert "gives no JSON: is it the API of an app?" in invoke(url + "#", "tasks", code=1)
    assert "does not answer: " in invoke(url, "tasks", code=1)
    assert "--url 'file:///etc' is not a URL" in invoke("file:///etc", "tasks", code=2)


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Answer each request with these bytes; yield the address and the requests."""
    seen: list[bytes] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            lines = list(iter(lambda: self.rfile.readline().strip(), b""))
            seen.extend(lines)
            self.wfile.write(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", seen
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.parametrize("status", ["302 Found", "307 Temporary Redirect"])
def test_the_token_goes_to_no_other_host(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirect is not followed, and is an error."""
    monkeypatch.setenv("KS_OPS_TOKEN", "secret")
    with answering(b"HTTP/1.1 200 OK\r\n\r\n{}") as (other, seen):
        head = f"HTTP/1.1 {status}\r\nLocation: {other}/\r\nContent-Length: 0\r\n\r\n"
        with answering(head.encode()) as (url, asked):
            assert f"{url}: answers {status}" in invoke(url, "pause", code=1)
            assert f"{url}: answers {status}" in invoke(url, "tasks", code=1)
        assert b"Authorization: Bearer secret" in asked
        assert seen == []


def test_loopback_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the environment would see the token, and reach its own loopback."""
    monkeypatch.setenv("KS_OPS_TOKEN", "secret")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with answering(b"HTTP/1.1 200 OK\r\n\r\n{}") as (proxy, seen), answering(b"HTTP/1.1 200 OK\r\n\r\n{}") as (url, asked):
        monkeypatch.setenv("http_proxy", proxy)
        assert invoke(url, "pause") == "paused\n"
    assert asked[0] == b"POST /api/pause HTTP/1.1"
    assert seen == []


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("http://[::1", 2, "is not a URL"),
        ("http://", 2, "is not a URL"),
        ("http://a b", 1, "does not answer: "),
    ],
)
def test_a_wrong_address_is_one_line(url: str, code: int, said: str) -> None:
    """It is an error of the command line, or of the call, and no traceback."""
    assert said in invoke(url, "tasks", code=code)


def test_a_key_that_is_no_text_is_one_line() -> None:
    """Bytes of a command line that are not UTF-8 have another form."""
    assert "keys with bytes that are not UTF-8 need --as hex" in invoke("http://127.0.0.1:1", "query", "counts", "--key=\udcff", code=2)


def test_a_server_of_another_protocol_is_one_line() -> None:
    """The error says what it answered instead."""
    with answering(b"SSH-2.0-x\r\n") as (url, _):
        assert "does not answer: SSH-2.0-x" in invoke(url, "tasks", code=1)


def test_a_token_that_no_header_can_have_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is asked, and without the token in the text."""
    monkeypatch.setenv("KS_OPS_TOKEN", "geheim\u20ac")
    told = invoke("http://127.0.0.1:1", "pause", code=2)
    assert "characters that no header can have" in told
    assert "geheim" not in told


def test_a_bad_token_of_the_page_ends_the_run_with_one_line(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable."""
    monkeypatch.setenv("KS_OPS_TOKEN", " ")
    assert "KS_OPS_TOKEN: token is empty" in place.run("run", SHOP, "--page=0", "-q", code=1)


def test_dead_letters_are_listed_shown_and_written_back(tmp_path: Path) -> None:
    """By the application's own topic or another one; each once."""
    place = Place(tmp_path)
    place.settings |= {"errors_dead_letter_queue_topic_name": "letters", "processing_exception_handler": "continue"}
    target = "tests.ks_actors.cli.jobs:numbers"
    place.run("topics", "create", target, "--topic=letters=1", "--topic=texts=1", "--topic=numbers=1")
    place.run("send", "texts", stdin="1\none\n2\ntwo\n3\n")

    async def work() -> None:
        async with App(numbers(), StreamsConfig.of(place.settings)) as app:
            await app.wait_until_caught_up()

    asyncio.run(work())
    found = place.json("dlq", "list")
    assert [(row["letter"], row["source"], row["exception"], row["redriven"]) for row in found] == [
        ("0@1", "texts-0", "ValueError", False),
        ("0@0", "texts-0", "ValueError", False),
    ]
    assert place.run("dlq", "list", "--limit=1").splitlines()[1].startswith("0@1")
    assert place.json("dlq", "show", "0@0")["value"] == "one"
    assert "\nvalue: one\n" in place.run("dlq", "show", "0@0")
    assert place.json("dlq", "redrive", "0@0")[0]["redriven"]
    assert "was written back" in place.run("dlq", "redrive", "0@0", code=1)
    assert [row["letter"] for row in place.json("dlq", "redrive", "--all")] == ["0@1"]
    assert place.json("dlq", "redrive", "--all") == []
    assert "only the newest 2 dead letters are looked at: --limit" in place.run("dlq", "redrive", "--all", "--limit=2")
    shown = [json.loads(line)["value"] for line in place.run("tail", "texts", "--from=begin", "--until-end", "--json").splitlines()]
    assert shown[-2:] == ["one", "two"]
    assert "there is no dead letter at offset 99" in place.run("dlq", "show", "0@99", code=1)
    assert "'x' is not PARTITION@OFFSET" in place.run("dlq", "show", "x", code=2)
    assert "give dead letters as PARTITION@OFFSET, or --all" in place.run("dlq", "redrive", code=2)
    del place.settings["errors_dead_letter_queue_topic_name"]
    assert "the dead letter topic is unknown" in place.run("dlq", "list", code=2)
    assert len(place.json("dlq", "list", "--topic=letters")) == 2
    del place.settings["application_id"]
    assert len(place.json("dlq", "list", "--topic=letters")) == 2
    assert place.json("dlq", "show", "0@0", "--topic=letters")["value"] == "one"
    for command in (("dlq", "redrive", "--all", "--topic=letters"), ("lag",), ("reset",)):
        assert "application_id: is required: give --application-id ID, --app" in " ".join(place.run(*command, code=2).split())


def test_letters_whose_source_is_gone_are_named_and_the_others_go_back(tmp_path: Path) -> None:
    """In any order, and each time, with exit code 1; all letters, and those that are named."""
    place = Place(tmp_path)
    place.settings |= {"errors_dead_letter_queue_topic_name": "letters"}
    place.run("topics", "create", SHOP, "--topic=letters=1", "--topic=orders=1", "--topic=totals=1")

    async def write() -> None:
        async with EmbeddedLog(Path(place.settings["log"].removeprefix("embedded://"))) as log:
            producer = await log.producer(client_id="w")
            for source in (b"gone", b"orders", b"gone", b"orders"):
                told = {"exception": b"E", "message": b"m", "stacktrace": b"s", "topic": source, "partition": b"0", "offset": b"0"}
                headers = tuple((f"__streams.errors.{name}", value) for name, value in told.items())
                await producer.send([Outgoing(TopicPartition("letters", 0), Batch([None], [b"v"], [0], [headers]))])
            await producer.close()

    asyncio.run(write())
    text = place.run("dlq", "redrive", "0@0", "0@1", code=1)
    assert "1 of 2 letters were not written back" in text
    assert "0@0: gone-0: " in text
    text = place.run("dlq", "redrive", "--all", code=1)
    assert "2 of 3 letters were not written back" in text
    assert "0@2: gone-0: " in text
    assert [(row["letter"], row["redriven"]) for row in place.json("dlq", "list")] == [
        ("0@3", True),
        ("0@2", False),
        ("0@1", True),
        ("0@0", False),
    ]
    assert "2 of 2 letters were not written back" in place.run("dlq", "redrive", "--all", code=1)
