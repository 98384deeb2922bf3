"""SmokeTestDriver's judgement of our app."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.chaos.checks import EXACTLY_ONCE
from tests.judges.drivers.options import Options, option
from tests.judges.drivers.run import PARTITIONS, Driver, Outcome, Run

SOURCE: Final = Path(__file__).with_name("Smoke.java")
# The topics that get one record for each of the input.
_ONE_FOR_ONE: Final = ("echo", "min", "max", "sum", "cnt", "min-raw")


@dataclass(kw_only=True)
class SmokeOptions(Options):
    """All that can be set; times in seconds."""

    keys: int = option(20, "that the driver writes")
    records: int = option(1000, "of each key")


@dataclass(frozen=True)
class Verdict:
    """The driver's word, and how the members ended.

    `doubled` is how many records the driver itself wrote twice: its producer tries again what it has sent to a broker that goes away.
    """

    passed: bool
    doubled: int
    outcome: Outcome

    @property
    def ok(self) -> bool:
        return self.passed and self.outcome.clean

    def words(self) -> Sequence[str]:
        told = [line for line in self.outcome.said.splitlines() if not line.startswith(("\t", "{", "[")) and "resetting retry" not in line]
        if self.doubled:
            told.append(f"the driver wrote {self.doubled} records twice, as the broker went away: its verdict counts them as faults")
        return told


def hours_back(now: datetime) -> int:
    """Return how much older members take records for, so that no window of a day ends within six hours: the driver expects one for each key."""
    return 0 if 6 <= now.hour < 18 else 12


async def judge(options: SmokeOptions, work: Path) -> Verdict:
    """Do one run in a directory."""
    once = options.guarantee == EXACTLY_ONCE
    arguments = [str(options.keys), str(options.records), str(options.seconds), str(once).lower()]
    back = ["--hours-back", str(hours_back(datetime.now(UTC)))]
    driver = Driver(source=SOURCE, app="tests.judges.smoke.app", arguments=arguments, member_arguments=back)
    outcome = await Run(options, work, driver).main()
    return _verdict(options, outcome)


def _verdict(options: SmokeOptions, outcome: Outcome) -> Verdict:
    # The driver tells now and then how many records it has read of each topic.
    told = [line for line in outcome.said.splitlines() if line.startswith("{") and "data=" in line]
    counts = {topic: int(count) for topic, count in re.findall(r"([\w-]+)=(\d+)", told[-1] if told else "")}
    generated = options.keys * options.records
    # One more record in each partition moves time at the end.
    doubled = max(counts.get("data", 0) - PARTITIONS - generated, 0)
    passed = outcome.code == 0
    if outcome.code == 1 and "ALL-RECORDS-DELIVERED" in outcome.said and "PROCESSED-MORE-THAN-GENERATED" in outcome.said:
        # Kafka's system test takes this for a success at least once: records may be processed again after a crash.
        # Exactly once, each record that was written twice is to be processed twice, and no other.
        once = {counts.get(topic) for topic in _ONE_FOR_ONE} == {generated + doubled} and doubled > 0
        passed = once or options.guarantee != EXACTLY_ONCE
    return Verdict(passed, doubled, outcome)
