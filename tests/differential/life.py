"""The times when processors are initialized, called, punctuated and closed: random topologies, in Kafka Streams and here.

python -m tests.differential.life --seed 2 --n 1000 >CASES       cases, one JSON object per line
python -m tests.differential.life --compare CASES EVENTS         what `oracle.Life` has made of them, compared with ours
python -m tests.differential.life --combine CASES EVENTS FILE    both in one file, which the tests read
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ks_actors import Processor, ProcessorContext, PunctuationType, Record, Topology
from ks_actors.serdes import STRING
from ks_actors.testing import TopologyTestDriver

CASES = Path(__file__).parent / "cases" / "life.jsonl.xz"
TYPES = {"stream": PunctuationType.STREAM_TIME, "wall": PunctuationType.WALL_CLOCK_TIME}
Case = dict[str, Any]


def generate(seed: int, count: int) -> Iterator[Case]:
    """Yield cases: up to three sources, up to nine processors that are added in any order that parents allow, with up to three schedules each."""
    for number in range(count):
        r = random.Random(f"{seed}-{number}")
        names = r.sample("ABCDEFGHIJKLMNOP", 12)
        nodes: list[Case] = []
        sources = r.randint(1, 3)
        for at, name in enumerate(names[: sources + r.randint(1, 9)]):
            parents = [] if at < sources else r.sample([node["name"] for node in nodes], min(len(nodes), r.choice([1, 1, 1, 2, 3])))
            count_of = r.choice([0, 1, 1, 2, 3]) if parents else 0
            schedules: list[dict[str, Any]] = [
                {
                    "clock": r.choice(["stream", "stream", "wall"]),
                    "every": r.choice([5, 10, 10, 10, 20, 30]),
                    "cancel_after": r.choice([0, 0, 0, 1, 2, 3]),
                    "cancels": r.randrange(count_of),
                }
                for _ in range(count_of)
            ]
            for place, schedule in enumerate(schedules):
                schedule["cancels"] = min(schedule["cancels"], place)  # what comes later may not be scheduled yet
            nodes.append({"name": name, "parents": parents, "schedules": schedules})
        steps: list[Case] = []
        time = 0
        for _ in range(r.randint(3, 8)):
            if r.random() < 0.3:
                steps.append({"advance_wall_ms": r.choice([5, 10, 30, 100])})
            else:
                time += r.choice([0, 3, 5, 10, 25, 60])
                steps.append({"topic": f"{r.choice(names[:sources])}-topic", "timestamp": time})
        yield {"id": f"{seed}-{number}", "nodes": nodes, "steps": steps}


class Recording(Processor[str, str, str, str]):
    """Note everything that happens to it, and hand records on."""

    def __init__(self, node: Case, events: list[str]) -> None:
        self._name: str = node["name"]
        self._schedules: list[Case] = node["schedules"]
        self._events = events
        self._calls = [0] * len(self._schedules)
        self._cancels: list[Callable[[], None]] = []

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        self._events.append(f"init {self._name}")
        for number, schedule in enumerate(self._schedules):
            self._cancels.append(context.schedule(schedule["every"], TYPES[schedule["clock"]], partial(self._punctuate, number)))

    def _punctuate(self, number: int, now: int) -> None:
        self._events.append(f"punctuate {self._name} {number} {now}")
        self._calls[number] += 1
        if self._calls[number] == self._schedules[number]["cancel_after"]:
            self._cancels[self._schedules[number]["cancels"]]()

    def process(self, record: Record[str, str]) -> None:
        self._events.append(f"process {self._name} {record.timestamp}")
        self.context.forward(record)

    def close(self) -> None:
        self._events.append(f"close {self._name}")


def events_of(case: Case) -> list[str]:
    """Run a case; return its events."""
    events: list[str] = []
    topology = Topology()
    for node in case["nodes"]:
        if node["parents"]:
            topology.add_processor(node["name"], partial(Recording, node, events), *node["parents"])
        else:
            topology.add_source(node["name"], f"{node['name']}-topic", key=STRING, value=STRING)
    with TopologyTestDriver(topology) as driver:
        for step in case["steps"]:
            if "advance_wall_ms" in step:
                driver.advance_wall_clock_time(step["advance_wall_ms"])
            else:
                driver.create_input_topic(step["topic"], STRING, STRING).pipe_input("k", "v", step["timestamp"])
    return events


def read_cases() -> Iterator[Case]:
    """Yield the cases of the tests, with the events of Kafka Streams for each under `events`."""
    yield from map(json.loads, lzma.decompress(CASES.read_bytes()).decode().splitlines())


def _joined(cases: Path, events: Path) -> list[Case]:
    lines = zip(cases.read_text().splitlines(), events.read_text().splitlines(), strict=True)
    return [{**json.loads(case), "events": json.loads(told)} for case, told in lines]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--compare", nargs=2, type=Path)
    parser.add_argument("--combine", nargs=3, type=Path)
    options = parser.parse_args()
    if options.combine:
        cases = _joined(*options.combine[:2])
        text = "".join(json.dumps(case, separators=(",", ":")) + "\n" for case in cases)
        options.combine[2].write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    elif options.compare:
        cases = _joined(*options.compare)
        wrong = [case["id"] for case in cases if events_of(case) != case["events"]]
        sys.stdout.write(f"{len(cases)} cases, {len(wrong)} differ {wrong[:10]}\n")
        sys.exit(bool(wrong))
    else:
        for case in generate(options.seed, options.n):
            sys.stdout.write(json.dumps(case) + "\n")


if __name__ == "__main__":
    main()
