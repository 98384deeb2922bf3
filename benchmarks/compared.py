"""Run the programs of docs/compared.md, each with each tool on a Kafka of its own, and check their results.

Prints for each run whether the results were right, the seconds from the start of the program until they were there, and the lines of the program. The
seconds include pauses for programs whose results depend on an order of arrival: they are no measure of speed.

Needs java and javac; the first run makes an environment with the tools for Python, from the package index.

    python benchmarks/compared.py [--only fraud] [--tool quix]
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped]

from tests.kafka.broker import Broker, jars

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

PROGRAMS = Path(__file__).resolve().parent.parent / "examples" / "compared"
KAFKA_PORT, SCORER_PORT, PAGES_PORT = 9092, 8000, 8080  # the programs name them
BOOTSTRAP = f"localhost:{KAFKA_PORT}"
TOOLS = {"ks_actors": "ks-actors", "faust": "Faust", "quix": "Quix Streams", "faststream": "FastStream", "kafka_streams": "Kafka Streams"}
PEERS = ("faust-streaming==0.15.3", "quixstreams==3.28.1", "faststream[kafka]==0.7.8", "fastapi==0.165.0", "uvicorn==0.54.0", "httpx==0.28.1")
BEGAN_MS = 1_700_000_040_000  # a full minute
PATIENCE_S = 90.0
_PAUSE_S = 12.0
_LOOK_S = 0.3


class Sent(NamedTuple):
    """One record of the input."""

    topic: str
    key: str | None
    value: str | dict[str, Any]
    timestamp_ms: int


class Case(NamedTuple):
    """A program's topics, the output last, its input in steps with pauses between them, and the last value of each key in its output."""

    topics: tuple[str, ...]
    steps: tuple[tuple[Sent, ...], ...]
    expected: dict[str, Any]


CASES = {
    "word_count": Case(
        ("lines", "words", "counts"),
        (tuple(Sent("lines", None, line, BEGAN_MS) for line in ("to be or not to be", "that is the question")),),
        {"to": 2, "be": 2, "or": 1, "not": 1, "that": 1, "is": 1, "the": 1, "question": 1},
    ),
    "page_counter": Case(("visits",), (), {"a": 2, "b": 1}),
    "fraud": Case(
        ("payments", "alerts"),
        (tuple(Sent("payments", card, {"amount": 1.0}, BEGAN_MS + second * 1000) for second in range(5) for card in ("good", "bad")),),
        {"bad": {"payments": 5, "score": 0.9}},
    ),
    "enrichment": Case(
        ("customers", "orders", "parcels"),
        (
            tuple(Sent("customers", key, {"name": name, "city": city}, BEGAN_MS) for key, name, city in (("a", "Ann", "Rome"), ("b", "Bob", "Oslo"))),
            tuple(Sent("orders", key, {"amount": amount}, BEGAN_MS + 1000) for key, amount in (("a", 5.0), ("b", 7.0), ("c", 7.0))),
        ),
        {"a": {"city": "Rome", "amount": 5.0}, "b": {"city": "Oslo", "amount": 7.0}},
    ),
    "windowed_join": Case(
        ("impressions", "clicks", "effects"),
        (
            tuple(Sent("impressions", key, {"ad": ad}, BEGAN_MS) for key, ad in (("u", "shoes"), ("v", "hats"))),
            tuple(Sent("clicks", key, {"page": page}, BEGAN_MS + late) for key, page, late in (("u", "/shoes", 5000), ("v", "/hats", 15_000))),
        ),
        {"u": {"ad": "shoes", "page": "/shoes"}},
    ),
}


class Scorer(BaseHTTPRequestHandler):
    """A service that distrusts one card."""

    def do_GET(self) -> None:
        """Answer with a number."""
        body = b"0.9" if self.path.endswith("/bad") else b"0.1"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def scorer() -> Iterator[None]:
    """Serve scores at the address that the programs call."""
    with ThreadingHTTPServer(("localhost", SCORER_PORT), Scorer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def source(program: str, tool: str) -> Path | None:
    """Return the file of a program, None where the tool cannot do it."""
    (java,) = (PROGRAMS / program).glob("*.java")
    path = java if tool == "kafka_streams" else PROGRAMS / program / f"with_{tool}.py"
    return path if path.exists() else None


def lines_of(path: Path) -> int:
    """Count the lines that are neither blank nor comment nor docstring."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".java":
        lines = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).splitlines()
        return sum(1 for line in lines if line.strip() and not line.lstrip().startswith("//"))
    said: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            said.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    numbered = enumerate(text.splitlines(), 1)
    return sum(1 for number, line in numbered if line.strip() and number not in said and not line.lstrip().startswith("#"))


def peers_python() -> Path:
    """Return the interpreter of an environment with the tools for Python, which is made the first time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ks-actors-tests"
    like = repr((sys.version_info[:2], PEERS)).encode()
    place = cache / f"compared-{zlib.crc32(like):08x}"
    if not (place / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)  # noqa: S603 - our own
        subprocess.run([str(place / "bin" / "python"), "-m", "pip", "install", "-q", *PEERS], check=True)  # noqa: S603 - our own
        (place / "complete").touch()
    return place / "bin" / "python"


def command(path: Path, tool: str, directory: Path) -> list[str]:
    """Return how a program is run; a Java program is compiled into the directory."""
    if tool == "kafka_streams":
        subprocess.run(["javac", "-nowarn", "-cp", f"{jars()}/*", "-d", str(directory), str(path)], check=True)  # noqa: S603, S607 - our own
        flags = ["-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={directory}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        return ["java", *flags, "-cp", f"{directory}:{jars()}/*", path.stem]
    python = sys.executable if tool == "ks_actors" else str(peers_python())
    return [python, str(path), *(["worker", "-l", "warn"] if tool == "faust" else [])]


@asynccontextmanager
async def running(arguments: list[str], directory: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program with its state in the directory, and end it as an operator would."""
    environment = os.environ | {"TMPDIR": str(directory)}
    with (directory / "output").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *arguments, cwd=directory, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), 15)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def value_of(data: bytes) -> Any:
    """Decode a number of Kafka's serializers, or JSON; Faust adds a field of its own to each record."""
    if data[:1] == b"\0":
        return int.from_bytes(data, "big")
    value = json.loads(data)
    return {name: field for name, field in value.items() if not name.startswith("__")} if isinstance(value, dict) else value


async def fed_records(case: Case, process: asyncio.subprocess.Process) -> bool:
    """Write the input, and read the output until it is as expected, and stays so for a second."""
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP) as producer:
        for number, step in enumerate(case.steps):
            if number > 0:
                await asyncio.sleep(_PAUSE_S)
            for sent in step:
                value = sent.value if isinstance(sent.value, str) else json.dumps(sent.value)
                key = None if sent.key is None else sent.key.encode()
                await producer.send_and_wait(sent.topic, value.encode(), key=key, timestamp_ms=sent.timestamp_ms)
    found: dict[str, Any] = {}
    deadline = time.monotonic() + PATIENCE_S
    consumer = AIOKafkaConsumer(case.topics[-1], bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest", isolation_level="read_committed")
    async with consumer:
        while time.monotonic() < deadline and process.returncode is None:
            records = await consumer.getmany(timeout_ms=1000)
            found |= {record.key.decode(): value_of(record.value) for part in records.values() for record in part}
            if not records and found == case.expected:
                return True
    print(f"found {found}, expected {case.expected}", file=sys.stderr)
    return False


async def fed_visits(case: Case, process: asyncio.subprocess.Process, *, posts: bool) -> bool:
    """Visit pages, and read the counts until they are as expected."""
    visits = [page for page, count in case.expected.items() for _ in range(count)]
    found: dict[str, Any] = {}
    deadline = time.monotonic() + PATIENCE_S
    async with httpx.AsyncClient(base_url=f"http://localhost:{PAGES_PORT}", timeout=5) as client:
        while time.monotonic() < deadline and process.returncode is None:
            # They refuse connections, and some of them answer with errors, until they have started.
            with suppress(httpx.HTTPError):
                while visits:
                    (await client.request("POST" if posts else "GET", f"/visit/{visits[-1]}")).raise_for_status()
                    visits.pop()
                for page in case.expected:
                    found[page] = (await client.get(f"/count/{page}")).raise_for_status().json()["count"]
                if found == case.expected:
                    return True
            await asyncio.sleep(_LOOK_S)
    print(f"found {found}, expected {case.expected}", file=sys.stderr)
    return False


async def checked(path: Path, tool: str, directory: Path) -> tuple[bool, float]:
    """Run a program on the broker that is there; return whether its results are right, and the seconds that it took."""
    case = CASES[path.parent.name]
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 2, 1) for topic in case.topics])
    finally:
        await admin.close()
    arguments = command(path, tool, directory)
    began = time.monotonic()
    async with running(arguments, directory) as process:
        if not case.steps:
            right = await fed_visits(case, process, posts=tool not in {"faust", "kafka_streams"})
        else:
            right = await fed_records(case, process)
        seconds = time.monotonic() - began
    if not right:
        print((directory / "output").read_text(errors="replace")[-4000:], file=sys.stderr)
    return right, seconds


def run(path: Path, tool: str) -> tuple[bool, float]:
    """Run a program of a tool on a new Kafka. Raises SystemExit when something else listens at Kafka's port: its topics are not ours to use."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", KAFKA_PORT)) == 0:
            raise SystemExit(f"something listens at {BOOTSTRAP}; the programs need a Kafka of their own there: stop that one")
    with tempfile.TemporaryDirectory(prefix="compared-", ignore_cleanup_errors=True) as place, ExitStack() as stack:
        broker = Broker(Path(place) / "broker", port=KAFKA_PORT)
        broker.start()
        stack.callback(broker.kill)
        stack.enter_context(scorer())
        directory = Path(place) / "program"
        directory.mkdir()
        return asyncio.run(checked(path, tool, directory))


def main() -> None:
    """Run what the options of the command line name, and end with 1 if a result was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=CASES, action="append", help="this program; may be given more than once (default: all)")
    parser.add_argument("--tool", choices=TOOLS, action="append", help="this tool; may be given more than once (default: all)")
    options = parser.parse_args()
    print("| program | tool | results | seconds | lines |\n|---|---|---|---|---|")
    ok = True
    for program in options.only or CASES:
        for tool in options.tool or TOOLS:
            path = source(program, tool)
            if path is None:
                print(f"| {program} | {TOOLS[tool]} | none | | |", flush=True)
                continue
            right, seconds = run(path, tool)
            ok = ok and right
            print(f"| {program} | {TOOLS[tool]} | {'right' if right else 'WRONG'} | {seconds:.1f} | {lines_of(path)} |", flush=True)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
