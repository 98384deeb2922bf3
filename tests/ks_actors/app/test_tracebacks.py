"""A failure of the user's code shows the user's frames, and once."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
    import asyncio, logging
    from contextlib import asynccontextmanager
    from ks_actors import *
    from ks_actors import serdes
    from ks_actors.log import Outgoing, TopicPartition

    CONFIGURED
    S = serdes.STRING
    case = "CASE"

    def fail(*about):
        raise ValueError("boom")

    async def fail_later(*about):
        await asyncio.sleep(0)
        fail()

    class Punctuating(Processor[str, str, str, str]):
        def init(self, context):
            context.schedule(1, PunctuationType.WALL_CLOCK_TIME, fail)

        def process(self, record):
            pass

    class Starting(Processor[str, str, str, str]):
        def init(self, context):
            fail()

        def process(self, record):
            pass

    @asynccontextmanager
    async def entering():
        fail()
        yield

    @asynccontextmanager
    async def exiting():
        yield
        fail()

    reads = Serde.of(str.encode, fail) if case == "deserializer" else S
    writes = Serde.of(fail, bytes.decode) if case == "serializer" else S
    partitioner = fail if case == "partitioner" else None
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(S, reads, timestamp_extractor=fail if case == "extractor" else None))
    if case == "map":
        stream = stream.map_values(lambda value: fail(value))
    elif case == "async":
        stream = stream.map_values(fail_later)
    elif case == "aggregator":
        stream = stream.group_by_key(Grouped(S, S)).aggregate(str, lambda *three: fail(*three), Materialized("st", S, S)).to_stream()
    elif case == "joiner":
        stream = stream.left_join(builder.table("table", Consumed(S, S)), lambda *two: fail(*two))
    elif case in ("punctuator", "init"):
        stream = stream.process(Punctuating if case == "punctuator" else Starting)
    stream.to("out", Produced(S, writes, partitioner=partitioner))

    def on_state(new, old):
        if new is InstanceState.RUNNING:
            asyncio.get_running_loop().call_soon(feed)

    def feed():
        global feeding
        feeding = asyncio.ensure_future(write())

    async def write():
        producer = await app.log.producer(client_id="test")
        await producer.send([Outgoing(TopicPartition("in", 0), Batch([b"k"], [b"v"], [1]))])
        await producer.close()
        if case == "exit":
            import os, signal
            os.kill(os.getpid(), signal.SIGTERM)

    services = [{"enter": entering, "exit": exiting}[case]()] if case in ("enter", "exit") else []
    config = StreamsConfig(application_id="shop", log="memory://", state_dir="state")
    app = App(builder.build(), config, topics={"in": 1, "out": 1, "table": 1}, services=services, on_state=on_state)
    if __name__ == "__main__":
        app.main()
"""
OF_RECORDS = ("map", "async", "aggregator", "joiner", "serializer", "deserializer", "partitioner", "extractor")
CASES = (*OF_RECORDS, "punctuator", "init", "enter", "exit")


def errors_of(case: str, tmp_path: Path, configured: str = "", command: tuple[str, ...] = ("failing.py",)) -> tuple[int, str]:
    """Run the program; return its exit code and stderr."""
    (tmp_path / "failing.py").write_text(textwrap.dedent(PROGRAM).replace("CASE", case).replace("CONFIGURED", configured), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(Path(__file__).parents[3])))}
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, *command], cwd=tmp_path, env=environment, check=False, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("case", CASES)
def test_a_failure_of_the_users_code_shows_the_users_frames_once(tmp_path: Path, case: str) -> None:
    """Those of the packages that call it are hidden, and the last line says the place of a record."""
    code, errors = errors_of(case, tmp_path)
    assert code == 1
    # A serializer is called again, to find the record.
    assert errors.count('raise ValueError("boom")') == (2 if case == "serializer" else 1), errors
    frames = [line for line in errors.splitlines() if line.startswith("  File ")]
    assert [frame for frame in frames if "failing.py" not in frame] == []
    if case in OF_RECORDS:
        assert "boom (task 0_0, node " in errors.splitlines()[-1] or "topic in, partition 0, offset 0" in errors.splitlines()[-1]
    assert len(errors.splitlines()) <= 40, errors


def test_a_log_has_the_users_frames_and_the_end_of_the_program_none(tmp_path: Path) -> None:
    """With logging configured, an entry shows them; the error itself is shown by its text."""
    _, errors = errors_of("map", tmp_path, "logging.basicConfig(level='WARNING')")
    log, _, end = errors.partition("shop ends: ")
    assert log.count(", in fail") == 1
    assert ", in fail" not in end
    assert "ks_actors._errors.ProcessingFailed: processing a record raised ValueError: boom (task 0_0" in end


def test_at_debug_tracebacks_are_whole(tmp_path: Path) -> None:
    """For reports of faults in the packages."""
    _, errors = errors_of("map", tmp_path, "logging.basicConfig(level='DEBUG')")
    assert "_worker.py" in errors.partition("shop ends: ")[2]


def test_the_command_line_shows_a_failing_service_and_module_without_its_own_frames(tmp_path: Path) -> None:
    """Of a record's failure it shows one line, below the log."""
    _, errors = errors_of("enter", tmp_path, command=("-m", "ks_actors", "run", "failing:app", "--quiet"))
    assert errors.count(", in fail") == 1
    assert {Path(line.split('"')[1]).name for line in errors.splitlines() if line.startswith("  File ")} <= {
        "failing.py",
        "__main__.py",
        "<frozen runpy>",
    }
