"""Cases of ksql: compiled plans with the records that Kafka Streams gave."""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Case:
    name: str
    plan: Mapping[str, Any]
    spec: Mapping[str, Any]

    @property
    def version(self) -> tuple[int, ...]:
        """The version of ksql that compiled the plan and gave the records."""
        return tuple(int(part) for part in self.spec["version"].split("."))


def read_cases(place: Path) -> Iterator[Case]:
    """Read all cases of a file of lines (JSON, maybe with .xz), or the newest ones of ksql's folder `historical_plans`."""
    if place.is_dir():
        yield from _of_folder(place)
        return
    with lzma.open(place, "rt") if place.suffix == ".xz" else place.open() as lines:
        for line in lines:
            found = _read(line)
            yield Case(found["name"], found["plan"], found["spec"])


def _of_folder(folder: Path) -> Iterator[Case]:
    newest: dict[Path, tuple[list[int], Path]] = {}
    for spec in folder.rglob("spec.json"):
        # The folder of a case has one of each version, such as 8.0.0_1721231234567.
        version = [int(part) for part in spec.parent.name.replace("_", ".").split(".") if part.isdigit()]
        if spec.parent.parent not in newest or newest[spec.parent.parent][0] < version:
            newest[spec.parent.parent] = version, spec.parent
    for case, (_, place) in sorted(newest.items()):
        yield Case(case.name, _read((place / "plan.json").read_text()), _read((place / "spec.json").read_text()))


def _read(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)
