"""A real broker that is away for minutes, with the default settings: the app goes on when it is back.

`python -m tests.kafka.away --seconds 150` stops the only broker under a count for so long, with each guarantee, or freezes it (`--frozen`). It prints
the seconds from the return of the broker to the first record that was sent after it, and to the last one. The exit code is 1 when the first one took
longer than `--within`, the app has ended, a record is lost, or, exactly once, a result is doubled.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ks_actors import App, Consumed, InstanceState, Materialized, Produced, StreamsBuilder, StreamsConfig
from ks_actors.serdes import BYTES, LONG
from tests.chaos.checks import GUARANTEES
from tests.kafka.broker import Broker
from tests.kafka.counting import PARTITIONS, Counting, counting
from tests.waiting import until

_LATER: Final = b"later"


class Return(NamedTuple):
    """Seconds from the broker's return to the processing of the first and the last record that were sent after it."""

    first: float
    last: float


def counting_app(here: Counting, directory: Path, seen: list[float]) -> App:
    """Return an app with the default settings that counts, and notes when it processes records that were sent after the outage."""
    builder = StreamsBuilder()

    def note(_: bytes, value: bytes) -> None:
        if value == _LATER:
            seen.append(time.monotonic())

    stream = builder.stream(here.source, Consumed(BYTES, BYTES)).peek(note)
    stream.group_by_key().count(Materialized("counts", BYTES, LONG)).to_stream().to(here.sink, Produced(BYTES, LONG))
    settings = {"application_id": here.name, "state_dir": str(directory / here.name), "processing_guarantee": here.guarantee}
    return App(builder.build(), StreamsConfig.of(settings), log=here.log)


async def be_away(broker: Broker, directory: Path, guarantee: str, seconds: float, *, frozen: bool, records: int = 5_000) -> Return:
    """Take the broker away for so long in the middle of some work. Raises AssertionError when a result is wrong, or the app has ended."""
    async with counting(broker, guarantee, directory) as here:
        seen: list[float] = []
        async with counting_app(here, directory, seen) as app:
            await here.feed(records)
            if frozen:
                broker.pause()
            else:
                broker.kill()
            await asyncio.to_thread(threading.Event().wait, seconds)
            if frozen:
                broker.resume()
            else:
                await asyncio.to_thread(broker.start)
            back = time.monotonic()
            await here.feed(100, _LATER)

            def processed() -> bool:
                assert app.state not in {InstanceState.ERROR, InstanceState.NOT_RUNNING}, f"the app has ended: {app.error}"
                return len(seen) >= 100 * PARTITIONS

            await until(processed)
            first, last = seen[0] - back, time.monotonic() - back
        # At its end the app has written what its caches held.
        await here.counted()
    return Return(first, last)


def main(arguments: Sequence[str]) -> int:
    """Have an outage with each guarantee; return 1 when something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.away", description=__doc__)
    parser.add_argument("--seconds", type=float, default=150.0, help="how long the broker is away")
    parser.add_argument("--guarantee", choices=GUARANTEES, action="append", help="default: both")
    parser.add_argument("--frozen", action="store_true", help="the broker is frozen: connections to it stay open")
    parser.add_argument("--within", type=float, default=5.0, help="seconds after the return in which a record is to be processed")
    options = parser.parse_args(arguments)
    wrong = False
    for guarantee in options.guarantee or GUARANTEES:
        with tempfile.TemporaryDirectory(prefix="away-") as name:
            broker = Broker(Path(name) / "broker")
            broker.start()
            try:
                back = asyncio.run(be_away(broker, Path(name), guarantee, options.seconds, frozen=options.frozen))
            except (AssertionError, TimeoutError) as error:
                wrong = True
                print(f"{guarantee}, away for {options.seconds:g} s: {type(error).__name__}: {error}", flush=True)  # noqa: T201 - a report for people
            else:
                wrong = wrong or back.first > options.within
                told = f"the first record came {back.first:.1f} s after the return, the last one {back.last:.1f} s; all results are right"
                print(f"{guarantee}, away for {options.seconds:g} s: {told}", flush=True)  # noqa: T201 - a report for people
            finally:
                broker.kill()
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
