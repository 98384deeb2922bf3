"""A member that stops itself (SIGSTOP) at one point of its work, as if its machine stood still.

It is the application of the chaos tester, with `--point` beside its options: `commit` (what was processed is written and acknowledged, and not
committed), `keep` (it is committed, and the stores do not know yet), `revoked` (it has agreed to a rebalance), `restore` (records of a changelog have
been read). It tells on stdout when it runs, and when it is about to stop. A point is reached in earnest after SIGUSR1, `restore` from the start.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ks_actors import InstanceState
from ks_actors.log.kafka.consumer._fetcher import KafkaFetcher
from ks_actors.log.kafka.group._membership import KafkaMembership
from ks_actors.log.kafka.transactions._transactional_producer import KafkaTransactionalProducer
from tests.chaos import app

POINTS = ("commit", "keep", "revoked", "restore")


class Point:
    """The point where the process stops, once."""

    def __init__(self, *, armed: bool) -> None:
        self.armed: bool = armed

    def arm(self) -> None:
        """Stop the next time."""
        self.armed = True

    def reached(self) -> None:
        """Stop here, if that is wanted."""
        if self.armed:
            self.armed = False
            tell("frozen")
            os.kill(os.getpid(), signal.SIGSTOP)
            tell("thawed")


def tell(what: str) -> None:
    """Say it to the test."""
    print(what, flush=True)  # noqa: T201 - this is a program


def freeze_at(point: Point, name: str) -> None:
    """Put the point into the path of that work."""
    if name in ("commit", "keep"):
        for cls in (KafkaTransactionalProducer, KafkaMembership):
            _wrap(cls, "commit", point, before=name == "commit", when=lambda arguments, _: bool(arguments[1]))
    elif name == "revoked":
        _stop_after(KafkaMembership, "revoked", point)
    elif name == "restore":
        _wrap(KafkaFetcher, "fetch", point, before=False, when=lambda arguments, found: bool(found) and "restore" in arguments[0].client_id)


def _wrap(cls: type, name: str, point: Point, *, before: bool, when: Callable[[Sequence[Any], Any], bool]) -> None:
    original = getattr(cls, name)

    @wraps(original)
    async def wrapped(*arguments: Any, **options: Any) -> Any:
        if before and when(arguments, None):
            point.reached()
        result = await original(*arguments, **options)
        if not before and when(arguments, result):
            point.reached()
        return result

    setattr(cls, name, wrapped)


def _stop_after(cls: type, name: str, point: Point) -> None:
    original = getattr(cls, name)

    @wraps(original)
    def wrapped(*arguments: Any) -> None:
        original(*arguments)
        point.reached()

    setattr(cls, name, wrapped)


def _note_state(new: InstanceState, _: InstanceState) -> None:
    if new is InstanceState.RUNNING:
        tell("running")


def main(arguments: Sequence[str]) -> int:
    """Be a member; return the exit code."""
    app.log_to_stderr()
    parser = argparse.ArgumentParser()
    parser.add_argument("--point", choices=POINTS, required=True)
    own, others = parser.parse_known_args(arguments)
    point = Point(armed=own.point == "restore")
    signal.signal(signal.SIGUSR1, lambda *_: point.arm())
    freeze_at(point, own.point)
    return asyncio.run(app.run_until_signal(app.run(app.parse(others), _note_state)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
