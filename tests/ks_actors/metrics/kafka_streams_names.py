"""Print the metrics of Kafka Streams itself for the topology of `topology.py`: `python -m tests.ks_actors.metrics.kafka_streams_names > FILE`.

Needs Java and, the first time, Maven. Each line has group, name, level, and tags; names of threads, processes and versions are left out.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.kafka.broker import QUICK, Broker, jars

SOURCE = Path(__file__).parent / "kafka_streams" / "MetricNames.java"
TOPICS = ("in", "table", "out", "final")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="metric-names-") as directory:
        broker = Broker(Path(directory) / "broker", settings={"auto.create.topics.enable": "true"})
        broker.start()
        try:
            lines = run(Path(directory), broker.bootstrap)
        finally:
            broker.stop()
    sys.stdout.write("".join(f"{line}\n" for line in dict.fromkeys(map(plain, lines))))


def run(directory: Path, bootstrap: str) -> list[str]:
    """Compile and run the program; return its lines."""
    classes, lib = directory / "classes", f"{jars()}/*"
    create = ["org.apache.kafka.tools.TopicCommand"]
    for topic in TOPICS:
        options = ["--bootstrap-server", bootstrap, "--create", "--topic", topic, "--partitions", "1"]
        subprocess.run(["java", *QUICK, "-cp", lib, *create, *options], check=True, capture_output=True)  # noqa: S603, S607 - our own, by Java of this machine
    subprocess.run(["javac", "-nowarn", "-d", str(classes), "-cp", lib, str(SOURCE)], check=True)  # noqa: S603, S607 - our own, by Java of this machine
    options = ["--bootstrap", bootstrap, "--app-id", "app", "--state-dir", str(directory / "state")]
    done = subprocess.run(["java", *QUICK, "-cp", f"{classes}:{lib}", "MetricNames", *options], check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603, S607 - our own, by Java of this machine
    return done.stdout.splitlines()


def plain(line: str) -> str:
    """Return a line without names that differ from run to run."""
    return re.sub(r"(thread-id|process-id)=[^,}]+", r"\1=*", line)


if __name__ == "__main__":
    main()
