"""Run one application on Kafka until its input is processed and committed, and the app closed.

Prints one JSON line, the last of stdout. All contenders of benchmarks/kafka.py have this command
line.
"""

from __future__ import annotations

import time

_BEGAN = time.time()

import argparse  # noqa: E402 - what imports take is measured
import asyncio  # noqa: E402 - imports are part of the time
import json  # noqa: E402 - imports are part of the time
import logging  # noqa: E402 - imports are part of the time
import os  # noqa: E402 - imports are part of the time
import platform  # noqa: E402 - imports are part of the time
import sys  # noqa: E402 - imports are part of the time
from pathlib import Path  # noqa: E402 - imports are part of the time

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._peer_apps import Tally, topology  # noqa: E402 - needs the path
from benchmarks._peer_watch import Restoring, Watch  # noqa: E402 - needs the path
from benchmarks._runtime_child import memory  # noqa: E402 - needs the path
from ks_actors import App, StreamsConfig, tune_gc  # noqa: E402 - needs the path
from ks_actors.log import IsolationLevel, TopicPartition, open_log  # noqa: E402 - needs the path

REPARTITIONING = {"wordcount"}
DEFAULT = "default"


def main() -> None:
    """Run the app named on the command line."""
    options = _parse()
    logging.basicConfig(level=options.log)
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        figures = runner.run(_run(options))
    print(json.dumps({**figures, "cpu_s": round(time.process_time(), 3), "rss_mb": round(memory())}), flush=True)
    sys.exit(0 if figures["ok"] else 1)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("bootstrap", "app", "input", "output", "app-id", "state-dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--guarantee", default="at_least_once", choices=["at_least_once", "exactly_once_v2"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", default=DEFAULT, metavar="BYTES", help="statestore_cache_max_bytes")
    parser.add_argument("--commit-ms", default=DEFAULT)
    parser.add_argument("--mode", default="run", choices=["run", "restore"])
    parser.add_argument("--expect", type=int, help="records to take in (default: what the inputs hold)")
    parser.add_argument("--timeout-s", type=float, default=300)
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of StreamsConfig; may be repeated")
    parser.add_argument("--log", default="WARNING", help="level of logging")
    return parser.parse_args()


def _configured(options: argparse.Namespace) -> StreamsConfig:
    settings: dict[str, object] = {
        "application.id": options.app_id,
        "bootstrap.servers": options.bootstrap,
        "state.dir": options.state_dir,
        "processing.guarantee": options.guarantee,
        "num.stream.threads": options.threads,
    }
    if options.commit_ms != DEFAULT:
        settings["commit.interval.ms"] = options.commit_ms
    if options.cache != DEFAULT:
        settings["statestore.cache.max.bytes"] = options.cache
    settings.update(each.split("=", 1) for each in options.conf)
    return StreamsConfig.of(settings)


async def _run(options: argparse.Namespace) -> dict[str, object]:
    inputs = options.input.split(",")
    ends = await _ends(options.bootstrap, inputs)
    tally, restoring = Tally(), Restoring()
    app = App(topology(options.app, inputs, options.output, tally), _configured(options), restore_listener=restoring)
    expected = sum(ends.values()) if options.expect is None else options.expect
    watch = Watch(app, tally, expected, repartitions=options.app in REPARTITIONING)
    tune_gc()
    watching = asyncio.create_task(watch.run(options.timeout_s)) if options.mode == "run" else None
    began = time.perf_counter()
    launched = time.time() - _launch()
    error: Exception | None = None
    running = began
    try:
        await app.start()
        running = time.perf_counter()
        complete = watching is None or await watching
        await app.close()
    except Exception as failed:  # noqa: BLE001 - whatever it is, it goes into the report
        complete, error = False, failed
    done, cpu_done = time.perf_counter(), time.process_time()
    figures = restoring.figures(began, running) if watching is None else watch.figures(began, done, cpu_done)
    if watching is not None:
        figures["uncommitted"] = await _uncommitted(options, ends)
    return {
        "peer": "ks-actors",
        "app": options.app,
        "mode": options.mode,
        "guarantee": options.guarantee,
        "threads": options.threads,
        "cache": options.cache,
        "commit_ms": options.commit_ms,
        "python": platform.python_version(),
        "ok": complete and error is None and (expected == 0 or done > running),
        "startup_s": round(running - began, 3),
        "launch_to_start_s": round(launched, 3),
        **({"process_to_first_s": round(launched + float(str(figures["first_s"])), 3)} if "first_s" in figures else {}),
        **({"error": repr(error)} if error is not None else {} if complete else {"error": f"timeout: {figures.get('records')} of {expected}"}),
        **figures,
    }


def _launch() -> float:
    """Return the start time of this process (s since the epoch).

    Where the system does not provide it, return the current time.
    """
    try:
        ticks = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
        up = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    except OSError:
        return _BEGAN
    return time.time() - (up - ticks / os.sysconf("SC_CLK_TCK"))


async def _ends(bootstrap: str, topics: list[str]) -> dict[TopicPartition, int]:
    log = open_log(f"kafka://{bootstrap}")
    await log.start()
    try:
        described = await log.describe_topics(topics)
        missing = set(topics) - set(described)
        if missing:
            raise SystemExit(f"there is no topic {', '.join(sorted(missing))}")
        partitions = [TopicPartition(name, number) for name, topic in described.items() for number in range(topic.partitions)]
        return dict(await log.end_offsets(partitions, IsolationLevel.READ_COMMITTED))
    finally:
        await log.close()


async def _uncommitted(options: argparse.Namespace, ends: dict[TopicPartition, int]) -> int:
    """Return the number of input records that the group has not committed."""
    from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]  # noqa: PLC0415 - only now that nothing is measured

    admin = AIOKafkaAdminClient(bootstrap_servers=options.bootstrap)
    await admin.start()
    try:
        committed = await admin.list_consumer_group_offsets(options.app_id)
    finally:
        await admin.close()
    found = {TopicPartition(partition.topic, partition.partition): max(0, entry.offset) for partition, entry in committed.items()}
    return sum(end - found.get(partition, 0) for partition, end in ends.items())


if __name__ == "__main__":
    main()
