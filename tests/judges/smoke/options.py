"""The options of a run, of its command line or of a test."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from tests.chaos.checks import EXACTLY_ONCE, GUARANTEES

if TYPE_CHECKING:
    from collections.abc import Sequence


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(kw_only=True)
class Options:
    """All that can be set; times in seconds."""

    guarantee: str = _option(EXACTLY_ONCE, "that of the app")
    members: int = _option(3, "processes of the app")
    workers: int = _option(3, "workers of each member")
    standbys: int = _option(0, "standbys of each task")
    kills: int = _option(8, "members that are killed (kill -9) and started again")
    freezes: int = _option(0, "members that stand still (SIGSTOP) for about the session timeout")
    broker_restarts: int = _option(0, "restarts of the only broker")
    session_timeout: float = _option(6.0, "that of the app's group")
    keys: int = _option(20, "that the driver writes")
    records: int = _option(1000, "of each key")
    seconds: int = _option(90, "in which the driver writes them")
    max_verify: float = _option(300.0, "in which the driver is to have its verdict after that")
    seed: int = _option(7, "of the faults")
    work_dir: str = _option("", "for logs and state; a temporary directory if not given")


def parse(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(description="Kafka's SmokeTestDriver judges an app of ours: see docs/judges.md.")
    for each in fields(Options):
        choices = GUARANTEES if each.name == "guarantee" else None
        name = f"--{each.name.replace('_', '-')}"
        parser.add_argument(name, type=type(each.default), default=each.default, choices=choices, help=f"{each.metadata['help']} (%(default)s)")
    return Options(**vars(parser.parse_args(arguments)))
