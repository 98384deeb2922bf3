"""RelationalSmokeTest's judgement of our app."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.judges.drivers.options import Options, option
from tests.judges.drivers.run import Driver, Outcome, Run

SOURCE: Final = Path(__file__).with_name("Relational.java")
# As in Kafka's system test: the tables of articles and of comments have different ones.
_PARTITIONS: Final = {"in-article": 3, "in-comment": 5, "out-augmented-article": 3, "out-augmented-comment": 5}
_AGAIN_S: Final = 20


@dataclass(kw_only=True)
class RelationalOptions(Options):
    """All that can be set; times in seconds."""

    articles: int = option(1000, "that the driver writes")
    comments: int = option(10_000, "on these articles")
    seconds: int = option(60, "in which the driver writes them, at least")


@dataclass(frozen=True)
class Verdict:
    """The driver's word, and how the members ended."""

    outcome: Outcome

    @property
    def ok(self) -> bool:
        return self.outcome.code == 0 and self.outcome.clean

    def words(self) -> Sequence[str]:
        return self.outcome.said.splitlines()


async def judge(options: RelationalOptions, work: Path) -> Verdict:
    """Do one run in a directory."""
    arguments = ["generate", str(int(options.max_verify) - _AGAIN_S), str(options.articles), str(options.comments), str(options.seconds)]
    driver = Driver(
        source=SOURCE, app="tests.judges.relational.app", arguments=arguments, afterwards=["verify", str(_AGAIN_S)], partitions=_PARTITIONS
    )
    return Verdict(await Run(options, work, driver).main())
