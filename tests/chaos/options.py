"""The options of a run of the chaos tester, from its command line or from a test."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from tests.chaos.checks import EXACTLY_ONCE, GUARANTEES

_FAULTS = "kill=8,zombie=3,term=3,scale=3,broker=1"
_FAULTS_OF_PROCESSES = "child_kill=8,child_freeze=4,hup=2,kill_keep=2,term=1,broker=1"
Mode = Literal["storm", "isolated"]
_WORDS = {"guarantee": GUARANTEES, "mode": ("storm", "isolated"), "alos_gaps": ("report", "fail")}


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(kw_only=True)
class Options:
    """All that can be set, by the names of the command line; times in seconds."""

    app_cmd: str = _option(f"{sys.executable} -m tests.chaos.app", "command of one member; {member} is replaced by its number")
    guarantee: str = _option(EXACTLY_ONCE, "what the app is to hold")
    mode: str = _option("storm", "storm: faults at random times, they overlap; isolated: each after the last one has been recovered from")
    seed: int = _option(1, "of all that is random")
    processes: int = _option(0, "each member is a supervisor with so many processes, the members of the group")
    members: int = _option(3, "how many processes the app has")
    partitions: int = _option(8, "of the input")
    out_partitions: int = _option(0, "of the output; 0: as many")
    keys: int = _option(200, "how many there are")
    records: int = _option(200_000, "how many are fed after the warm-up; in isolated mode feeding goes on until the last fault")
    rate: float = _option(5_000, "records per second")
    kills: int = _option(20, "number of faults")
    faults: str = _option("default", f"kinds with weights, see faults.py; {_FAULTS}, or with processes {_FAULTS_OF_PROCESSES}")
    wipe: float = _option(0.3, "share of kills whose state directory is wiped before the restart")
    restart_max: float = _option(10, "a member is restarted within this time")
    session_timeout: float = _option(6, "the app's session timeout: zombies are stopped for longer")
    zombie_max: float = _option(5, "by how much longer, at most; 1 at least")
    broker_down_max: float = _option(3, "how long the broker is away, or stands still, before it is started again")
    scale_max: int = _option(2, "members above `members`, at most")
    settle: float = _option(3, "isolated: calm seconds before the next fault")
    warmup_max: float = _option(60, "begin with the faults after this time, even if the app has not caught up")
    stall_limit: float = _option(90, "fail when nothing moves for this long while input waits")
    max_time: float = _option(0, "of the whole run; 0: the feed and 600, isolated 40 more per fault")
    stop_timeout: float = _option(40, "how long a member may take to end after SIGTERM")
    txn_wait: float = _option(60, "how long to wait for the broker to end transactions of killed members")
    max_exits: int = _option(50, "give up after so many members ended by themselves")
    alos_gaps: str = _option("report", "at least once: whether counts that never reach the output are a violation")
    strict: bool = _option(False, "members that end by themselves, or not cleanly, are violations")
    quick_broker: bool = _option(False, "a broker that comes back, and times transactions out, sooner than by the defaults of Kafka and of its JVM")
    apart: bool = _option(False, "members know nothing of each other but through Kafka, as on machines of their own")
    work_dir: str = _option("chaos-work", "logs, state and the broker's data; only the logs stay")
    report: str = _option("", "a file for the report, beside the last line of stdout")

    def __post_init__(self) -> None:
        if self.faults == "default":
            self.faults = _FAULTS_OF_PROCESSES if self.processes else _FAULTS
        self.out_partitions = self.out_partitions or self.partitions
        self.max_time = self.max_time or self.records / self.rate + 600 + (40 * self.kills if self.mode == "isolated" else 0)


def parse(arguments: Sequence[str]) -> Options:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description="See tests/chaos/README.md.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    for each in fields(Options):
        name, text = "--" + each.name.replace("_", "-"), each.metadata["help"]
        if isinstance(each.default, bool):
            parser.add_argument(name, action="store_true", help=text)
        else:
            parser.add_argument(name, type=type(each.default), default=each.default, help=text, choices=_WORDS.get(each.name))
    return Options(**vars(parser.parse_args(arguments)))
