"""Kill an app at any point, many times, and check its output and state: `python -m tests.chaos.kills --kills 200 --seed 1`.

Exactly once, with the embedded log in a directory, commits every few ms, and memtables so small that something is always being written. Some lives
end otherwise: by a write to the database that fails, at random. After each end, of each task's state as it lies on disk:

- an offset is never ahead of the data: each store has all that its changelog has up to the offset, and nothing that was never committed,
- no commit is torn: with the changelog's tail all stores tell of the same commit,
- the totals are right: they are what has come out, once each and in order; and at the end what went in.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, final

import msgspec

from ks_actors.log import IsolationLevel, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records._batch import Batch
from ks_actors.serdes import LONG, STRING
from ks_actors.state import SharedResources, TaskStores
from tests.chaos.killed import APPLICATION, PARTITIONS, SINK, SOURCE, Life, specs

ROOT = Path(__file__).parents[2]
LIVES = 25
"""Ends in one directory, before the next one begins anew with other sizes."""
_PATIENCE_S = 300
_read_key, _read_count = STRING.deserializer(""), LONG.deserializer("")
_write_key, _write_count = STRING.serializer(""), LONG.serializer("")
_read_sum = msgspec.json.Decoder(list[int]).decode
Row = tuple[int, bytes, bytes | None, int]
"""Offset, key, value and timestamp."""


class Torn(AssertionError):
    """The remaining state breaks a rule."""


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def check(condition: object, what: str) -> None:
    if not condition:
        raise Torn(what)


def live(directory: Path, life: Life, seconds: float | None) -> str:
    """Run the app, kill it after some seconds, and return how it ended."""
    command = [sys.executable, "-m", "tests.chaos.killed", str(directory), msgspec.json.encode(life).decode()]
    environment = os.environ | {"PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as app:  # noqa: S603 - our own
        assert app.stdout is not None
        first = app.stdout.readline()
        with contextlib.suppress(subprocess.TimeoutExpired):
            app.wait(_PATIENCE_S if seconds is None else seconds)
        if seconds is None and app.poll() is None:
            app.send_signal(signal.SIGUSR1)  # it says what its tasks wait for
            with contextlib.suppress(subprocess.TimeoutExpired):
                app.wait(5)
        app.kill()
        rest, errors = app.communicate()
    check(first == "running\n", f"the app did not start: {first}{rest}{errors}")
    if app.returncode == -signal.SIGKILL:
        check(seconds is not None, f"the app did not come to its end within {_PATIENCE_S} s: {rest}{errors}")
        return "killed"
    check(app.returncode == 0 and rest.startswith("ended by "), f"the app ended by itself, {app.returncode}: {rest}{errors}")
    return rest.strip()


@final
class Left:
    """The content of the log, read as it grows: the committed records of each partition."""

    def __init__(self) -> None:
        self.rows: defaultdict[TopicPartition, list[Row]] = defaultdict(list)
        self._next: dict[TopicPartition, int] = {}

    async def read(self, directory: Path) -> None:
        """Read on; logs are not compacted, so records stay as they were read."""
        async with EmbeddedLog(directory / "log") as log:
            topics = [SOURCE, SINK, *(changelog(spec.name) for spec in specs())]
            found = await log.describe_topics()
            for partition in [TopicPartition(topic, number) for topic in topics if topic in found for number in range(PARTITIONS)]:
                await self._read(log, partition)

    def end(self, partition: TopicPartition) -> int:
        """Return the end of the decided records of a partition."""
        return self._next.get(partition, 0)

    async def _read(self, log: EmbeddedLog, partition: TopicPartition) -> None:
        at = self._next.get(partition, 0)
        end = (await log.end_offsets([partition], IsolationLevel.READ_COMMITTED))[partition]
        fetcher = log.fetcher(client_id="checker", isolation=IsolationLevel.READ_COMMITTED)
        fetcher.assign({partition: at})
        while at < end:
            for fetched in await fetcher.fetch(max_wait_ms=0):
                batch = fetched.batch
                self.rows[partition] += zip(batch.offsets, batch.keys, batch.values, batch.timestamps, strict=True)
                at = fetched.next_offset
        self._next[partition] = at
        await fetcher.close()


def changelog(store: str) -> str:
    return f"{APPLICATION}-{store}-changelog"


def check_output(left: Left) -> dict[str, int]:
    """Each count has come out once, and in order; return the last ones."""
    counts: Counter[str] = Counter()
    for number in range(PARTITIONS):
        for _, key, value, _ in left.rows[TopicPartition(SINK, number)]:
            name = _read_key(key)
            counts[name] += 1
            check(_read_count(value or b"") == counts[name], f"the {counts[name]}th count of {name} is {value!r}")
    return dict(counts)


def check_task(directory: Path, number: int, left: Left, counts: dict[str, int]) -> None:
    """Look at the state of a task as it is on disk, then as it is with the changelogs' tails."""
    state = directory / "state" / APPLICATION / f"0_{number}"
    if not state.exists():
        return
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "task"
        shutil.copytree(state, copy)
        topics = {spec.name: changelog(spec.name) for spec in specs()}
        stores = TaskStores(f"0_{number}", specs(), directory=copy, shared=SharedResources(), record_time=int, expired=print, topics=topics)
        stores.open()
        try:
            check_offsets(stores, number, left)
            check_totals(stores, number, left, counts)
        finally:
            stores.close(clean=False)


def check_offsets(stores: TaskStores, number: int, left: Left) -> None:
    for name in stores.names:
        rows = left.rows[TopicPartition(changelog(name), number)]
        offset = stores.next_offset(name) or 0
        end = left.end(TopicPartition(changelog(name), number))  # what was aborted may be at the end, too
        check(offset <= end, f"task 0_{number}: store {name} is at {offset}, behind the end of its changelog, {end}")
        if name in CHECKED_BY_ROWS:
            CHECKED_BY_ROWS[name](stores.store(name), [row for row in rows if row[0] < offset], rows, f"task 0_{number}: store {name} at {offset}")
            continue
        committed = {_read_key(key): value for _, key, value, _ in rows}
        written = {_read_key(key): value for at, key, value, _ in rows if at < offset}
        for key, value in written.items():
            check(count_in(stores, name, key) >= count_of(name, value), f"task 0_{number}: store {name} is at {offset} and lacks {value!r} of {key}")
        for key, value in committed.items():
            check(count_in(stores, name, key) <= count_of(name, value), f"task 0_{number}: store {name} has a value of {key} that is not committed")


def check_spans(store: Any, written: list[Row], committed: list[Row], where: str) -> None:
    """Counts by window only grow: they are the written ones, or higher, but not higher than the committed ones."""
    latest = {at_start(key): _read_count(value or b"") for _, key, value, _ in committed}
    found = dict(store.all())
    for _, row, value, _ in written:
        check(found.get(at_start(row), 0) >= _read_count(value or b""), f"{where} lacks {value!r} of {at_start(row)}")
    for key, count in found.items():
        check(count <= latest.get(key, 0), f"{where} has a value of {key} that is not committed")


def check_pieces(store: Any, written: list[Row], committed: list[Row], where: str) -> None:
    """All written records are there, and all of them were committed, once."""
    told = Counter((at_start(key), _read_key(value or b"")) for _, key, value, _ in committed)
    found = Counter(store.all())
    for _, row, value, _ in written:
        check(found[at_start(row), _read_key(value or b"")], f"{where} lacks {value!r} of {at_start(row)}")
    check(found <= told, f"{where} has rows that are not committed: {found - told}")


def check_session(store: Any, _: list[Row], committed: list[Row], where: str) -> None:
    """All rows were committed. A session that has grown is another row: data that is ahead of the offset may be the end of one alone."""
    told = {(key, value) for _, key, value, _ in committed}
    for window, count in store.fetch_range(None, None):
        row = (_write_key(window.key) + window.window.end.to_bytes(8, "big") + window.window.start.to_bytes(8, "big"), _write_count(count))
        check(row in told, f"{where} has a value of {window} that is not committed")


CHECKED_BY_ROWS = {"spans": check_spans, "pieces": check_pieces, "session": check_session}


def at_start(row: bytes) -> tuple[str, int]:
    """Return key and start of a window's row in a changelog."""
    return _read_key(row[:-12]), int.from_bytes(row[-12:-4], "big")


def check_totals(stores: TaskStores, number: int, left: Left, counts: dict[str, int]) -> None:
    for name in stores.names:
        offset = stores.next_offset(name) or 0
        rows = [row for row in left.rows[TopicPartition(changelog(name), number)] if row[0] >= offset]
        if rows:
            stores.restore(name, Batch([row[1] for row in rows], [row[2] for row in rows], [row[3] for row in rows]), rows[-1][0] + 1)
    found = {key: value for key, value in counts.items() if key.startswith(f"{number}-")}
    check(dict(stores.store("counts").all()) == found, f"task 0_{number}: its counts are not those that have come out")
    for name, latest in told_by(stores, found).items():
        check(latest == found, f"task 0_{number}: {name} is of another commit than counts")


def told_by(stores: TaskStores, keys: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return the counts in each store."""
    history = stores.store("history")
    spans: Counter[str] = Counter()
    for (key, _), count in stores.store("spans").all():
        spans[key] = max(spans[key], count)
    pieces: defaultdict[str, list[int]] = defaultdict(list)
    for (key, _), piece in stores.store("pieces").all():
        pieces[key].append(int(piece))
    return {
        "sums": {key: count for key, (count, _) in stores.store("sums").all()},
        "history": {key: version.value for key in keys if (version := history.get(key)) is not None},
        "spans": dict(spans),
        "pieces": {key: len(found) if found == list(range(1, len(found) + 1)) else -1 for key, found in pieces.items()},
        "session": {window.key: count for window, count in stores.store("session").fetch_range(None, None)},
    }


def count_in(stores: TaskStores, name: str, key: str) -> int:
    value: Any = stores.store(name).get(key)
    return 0 if value is None else int(value if name == "counts" else value[0])


def count_of(name: str, value: bytes | None) -> int:
    assert value is not None
    return _read_sum(value)[0] if name == "sums" else int(_read_count(value))


def check_input(left: Left, counts: dict[str, int]) -> None:
    """All that went in has been counted."""
    fed = Counter(_read_key(key) for number in range(PARTITIONS) for _, key, _, _ in left.rows[TopicPartition(SOURCE, number)])
    check(dict(fed) == counts, "what was counted is not what went in")


def lives(dice: random.Random) -> Iterator[tuple[Life, float]]:
    """Yield how to live, and for how many seconds, in one directory."""
    keys, tail, memtable = dice.choice((10, 100, 2000)), dice.choice((20, 100, 1000)), dice.choice((16, 32, 128)) << 10
    interval, batch = dice.choice((2, 5, 20)), dice.choice((10, 50, 200))
    while True:
        failing = dice.randrange(1, 60) if dice.random() < 0.25 else 0
        yield Life(dice.randrange(1 << 32), keys, batch, interval, tail, memtable, failing), 3.0 if failing else dice.uniform(0, 0.5)


async def run(kills: int, seed: int) -> Counter[str]:
    """Kill so many times; raise Torn when something is wrong. Return how lives ended."""
    say(f"seed {seed}")
    dice = random.Random(seed)
    ends: Counter[str] = Counter()
    while ends["killed"] < kills:
        with tempfile.TemporaryDirectory() as place:
            directory, left, drawn = Path(place), Left(), lives(dice)
            for _ in range(LIVES):
                life, seconds = next(drawn)
                how = live(directory, life, seconds)
                ends[how.partition("(")[0]] += 1
                await left.read(directory)
                counts = check_output(left)
                for number in range(PARTITIONS):
                    check_task(directory, number, left, counts)
                if ends["killed"] == kills:
                    break
            live(directory, msgspec.structs.replace(life, failing_write=0, finish=True), None)
            await left.read(directory)
            check_input(left, check_output(left))
            say(f"{dict(ends)}: {sum(counts.values()):,} records in the last directory, {life}")
    return ends


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    ends = asyncio.run(run(options.kills, options.seed))
    say(f"seed {options.seed}: {dict(ends)}, and nothing was torn")


if __name__ == "__main__":
    main()
