"""Measure state stores: transactional against direct writes, commits, restoring and restarts.

Kafka Streams is measured beside them where it has the same. The table goes to stdout, progress to
stderr; the last line of stdout is one JSON object. Measurements in this process have a warm-up, and
alternate with their counterpart. The parts with restarts need Java 17 and Maven, and Linux. They
start a broker, and stop it at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console

from benchmarks import _kafka_process as process
from benchmarks._kafka_inputs import PARTITIONS, Workload, beginning, load
from benchmarks._kafka_report import OURS, THEIRS, TRANSACTIONAL
from benchmarks._state_overlay import Outcome, direct, large_commit, transactional
from benchmarks._state_report import Report
from benchmarks._state_takeover import SESSION_S, takeover
from ks_actors import tune_gc
from ks_actors.log import NewTopic, TopicPartition, open_log
from tests.kafka.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.log import Log

UPDATES = 1_000_000
FEW_KEYS, MANY_KEYS = 10_000, 1_000_000
COMMITS_S = (0.1, 30.0)
LARGE_BYTES = 64 << 20
CHANGELOG = 5_000_000
TARGETS = {"overlay_ratio_10k": 2.0, "overlay_ratio_1m": 1.0}
STALL_MS = 10
RESTART_S = 1.0
RESTORE_PER_S = 500_000
TIMEOUT_S = 900
_LOOK_S = 0.1


def main() -> None:
    """Run the measurements named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often each part in this process is measured (default 3)")
    parser.add_argument("--records", type=int, default=CHANGELOG, help=f"updates of the count that is killed and restarted (default {CHANGELOG:,})")
    parser.add_argument("--without-kafka", action="store_true", help="only the parts in this process")
    parser.add_argument("--alone", action="store_true", help="without Kafka Streams")
    parser.add_argument("--transactional", action="store_true", help="also Kafka Streams with transactional stores (KIP-892)")
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="also write the section of this page")
    parser.add_argument("--updates", type=int, default=UPDATES, help=f"of each part in this process (default {UPDATES:,})")
    parser.add_argument("--large-bytes", type=int, default=LARGE_BYTES, help="of the large commit (default 64 MiB)")
    options = parser.parse_args()
    if options.transactional and (options.alone or options.without_kafka):
        parser.error("--transactional is about Kafka Streams: leave out --alone and --without-kafka")
    tune_gc()
    report = Report()
    _overlay(options, report)
    if not options.without_kafka:
        asyncio.run(_restarts(options, report))
    command = shlex.join(["python", "benchmarks/state.py", *sys.argv[1:]])
    Console(width=None if sys.stdout.isatty() else 170).print(report.table(command))
    if options.markdown:
        report.write_markdown(options.markdown, command)
    print(json.dumps(report.figures), flush=True)


def _overlay(options: argparse.Namespace, report: Report) -> None:
    """Compare counting in a transactional store with counting in RocksDB."""
    rounds, large_bytes, figures = options.rounds, options.large_bytes, report.figures
    for keys_count, name in ((FEW_KEYS, "overlay_ratio_10k"), (MANY_KEYS, "overlay_ratio_1m")):
        source = random.Random(keys_count)  # noqa: S311 - no secrets here
        keys = [f"k{number:07d}" for number in source.choices(range(keys_count), k=options.updates)]
        ratios = []
        for commit_s in COMMITS_S:
            _say(f"counting over {keys_count:,} keys, commits each {commit_s * 1000:.0f} ms")
            ours, theirs = _alternate(rounds, lambda part: transactional(part, commit_s), lambda part: direct(part, commit_s), keys)  # noqa: B023 - used at once
            ratios.append(median(ours) / median(theirs))
            report.add(
                f"count, {keys_count:,} keys, commit each {commit_s * 1000:,.0f} ms: updates/s, transactional and direct; ratio",
                f"{_spread(ours)}, {_spread(theirs)}; {ratios[-1]:.2f}",
                f"at least {TARGETS[name]:g}",
                met=ratios[-1] >= TARGETS[name],
            )
        figures[name] = round(min(ratios), 2)
    large_commit(large_bytes // 8)
    stalls = [large_commit(large_bytes) for _ in range(rounds)]
    figures["commit_64mib_worst_stall_ms"] = round(max(commit for commit, _ in stalls), 1)
    figures["flush_64mib_worst_stall_ms"] = round(max(flush for _, flush in stalls), 1)
    for name, what in (("commit", f"commit of {large_bytes >> 20} MiB"), ("flush", "writing it to RocksDB")):
        worst = figures[f"{name}_64mib_worst_stall_ms"]
        report.add(f"{what}: longest standstill of the event loop, of {rounds}, ms", f"{worst:.1f}", f"at most {STALL_MS}", met=worst <= STALL_MS)


def _alternate(
    rounds: int, one: Callable[[list[str]], Outcome], other: Callable[[list[str]], Outcome], keys: list[str]
) -> tuple[list[float], list[float]]:
    first: list[float] = []
    second: list[float] = []
    for measure in (one, other):
        measure(keys[: len(keys) // 10])
    for number in range(rounds):
        # Alternate the order, so that a drift of the machine favors neither.
        for measure, rates in ((one, first), (other, second))[:: 1 if number % 2 == 0 else -1]:
            rates.append(measure(keys).records_per_s)
    return first, second


def _spread(rates: list[float]) -> str:
    return f"{median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"


async def _restarts(options: argparse.Namespace, report: Report) -> None:
    """Kill an exactly-once count after its last commit; restart it, also on an empty disk."""
    contenders = {OURS: process.ours()} | ({} if options.alone else {THEIRS: process.kafka_streams()})
    if options.transactional:
        contenders[TRANSACTIONAL] = process.transactional(contenders[THEIRS])
    directory = Path(tempfile.mkdtemp(prefix="ks-bench-kafka-"))
    broker = Broker(directory, settings={"num.partitions": str(PARTITIONS)}, quick=False)
    try:
        broker.start()
        log = open_log(f"kafka://{broker.bootstrap}")
        await log.start()
        try:
            workload = Workload(options.records, MANY_KEYS)
            _say(f"{options.records:,} records go in")
            await load(log, workload, "kv", beginning())
            for name, contender in contenders.items():
                restarted, restored = await _restart(log, broker, workload, name, contender)
                _note(name, restarted, restored, report)
            await _takeover(log, broker, workload, report)
        finally:
            await log.close()
    finally:
        broker.kill()
        shutil.rmtree(directory, ignore_errors=True)


async def _restart(log: Log, broker: Broker, workload: Workload, name: str, contender: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    app_id, state = f"restart-{time.time_ns()}", Path(tempfile.mkdtemp(prefix="ks-bench-"))
    topic, output = workload.topic("kv"), f"out-{app_id}"
    await log.create_topics([NewTopic(output, PARTITIONS)])
    command = [
        *contender,
        *("--bootstrap", broker.bootstrap, "--app", "count", "--guarantee", "exactly_once_v2", "--cache", "0"),
        *("--input", topic, "--output", output, "--app-id", app_id, "--state-dir", str(state)),
    ]
    try:
        _say(f"{name}: counting")
        # Expect one record more than there is, so that it waits until it is killed.
        running = subprocess.Popen(  # noqa: S603, ASYNC220 - ours
            [*command, "--expect", str(workload.records + 1), "--timeout-s", str(TIMEOUT_S)], stdout=subprocess.DEVNULL, env=process.environment()
        )
        try:
            await _until_committed(broker.bootstrap, app_id, topic, workload.records, running)
        finally:
            running.kill()
            running.wait()
        _say(f"{name}: starting again")
        restarted = await asyncio.to_thread(process.run, [*command, "--mode", "restore"], broker.pid, TIMEOUT_S)
        await asyncio.to_thread(_empty, state)
        _say(f"{name}: restoring all")
        restored = await asyncio.to_thread(process.run, [*command, "--mode", "restore"], broker.pid, TIMEOUT_S)
    finally:
        shutil.rmtree(state, ignore_errors=True)
    return restarted.said, restored.said


def _empty(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


async def _until_committed(bootstrap: str, group: str, topic: str, records: int, running: subprocess.Popen[bytes]) -> None:
    """Wait until a group has committed all of a topic.

    Raises SystemExit when the app ends earlier, or takes too long.
    """
    from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    from aiokafka.errors import KafkaError  # type: ignore[import-untyped]  # noqa: PLC0415 - likewise

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while True:
            try:
                committed = await admin.list_consumer_group_offsets(group)
            except KafkaError:
                committed = {}  # the group does not exist yet
            if sum(max(0, entry.offset) for where, entry in committed.items() if TopicPartition(*where).topic == topic) >= records:
                return
            if running.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the app that is to be killed has ended, or has not committed its input in {TIMEOUT_S} s")
            await asyncio.sleep(_LOOK_S)
    finally:
        await admin.close()


def _note(name: str, restarted: dict[str, Any], restored: dict[str, Any], report: Report) -> None:
    ours = name == OURS
    suffix = {OURS: "", THEIRS: "_kafka_streams", TRANSACTIONAL: "_kafka_streams_transactional"}[name]
    figures = report.figures
    figures[f"eos_restart_s{suffix}"] = restarted["restore_s"]
    figures[f"eos_restart_records{suffix}"] = restarted["restored"]
    figures[f"restore_per_s{suffix}"] = restored["active_records_per_s"]
    report.add(
        f"{name}: start after kill -9, exactly once, its state on disk: s until it runs, s of reading, records read",
        f"{restarted['restore_s']:.2f}, {restarted['restore_active_s']:.2f}, {restarted['restored']:,}",
        f"less than {RESTART_S:g} s" if ours else "",
        met=restarted["restore_s"] < RESTART_S if ours else None,
    )
    report.add(
        f"{name}: start with nothing on disk: records/s while it reads, s until it runs, records read",
        f"{restored['active_records_per_s']:,}, {restored['restore_s']:.2f}, {restored['restored']:,}",
        f"at least {RESTORE_PER_S:,}" if ours else "",
        met=restored["active_records_per_s"] >= RESTORE_PER_S if ours else None,
    )


async def _takeover(log: Log, broker: Broker, workload: Workload, report: Report) -> None:
    """Kill an active member, and measure the takeover by its standby."""

    async def committed(group: str, topic: str, running: subprocess.Popen[bytes]) -> None:
        await _until_committed(broker.bootstrap, group, topic, workload.records, running)

    _say("an active member is killed, and its standby takes over")
    found = await takeover(log, broker.bootstrap, process.ours(), workload, committed, TIMEOUT_S)
    report.figures["standby_takeover_s"] = round(found.seconds, 3)
    report.figures["standby_takeover_since_kill_s"] = round(found.since_kill, 3)
    report.figures["standby_takeover_records"] = found.restored
    report.add(
        f"{OURS}: kill -9 of an active member, {found.partitions} tasks; from when the group tells its standby until that has committed results of "
        f"all of them, s; since the kill, with its session of {SESSION_S:g} s; records read, of those in the changelogs",
        f"{found.seconds:.2f}; {found.since_kill:.2f}; {found.restored:,} of {found.changelog:,}",
        f"less than {RESTART_S:g} s",
        met=found.seconds < RESTART_S,
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
