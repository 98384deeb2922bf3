"""The judgment of one case."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.judges.ksql.compare import difference
from tests.judges.ksql.exceptions import exception
from tests.judges.ksql.play import Play
from tests.judges.ksql.reasons import LeftOut

if TYPE_CHECKING:
    from tests.judges.ksql.cases import Case


class Verdict(NamedTuple):
    """`outcome` is passed, excused, left out or failed; `detail` is the reason or the difference."""

    outcome: str
    detail: str = ""


def judge(case: Case) -> Verdict:
    """Play a case and compare. Never raises: an error of the application is a failure."""
    if not {"inputs", "outputs"} <= case.spec["testCase"].keys():
        return Verdict("left out", "no records: the statement is refused")
    try:
        play = Play(case)
        play.run(case)
        expected = play.expected(case)
    except Exception as error:  # noqa: BLE001 - whatever a case raises is its result
        reason = left_out(error)
        return Verdict("failed", f"{type(error).__name__}: {error}") if reason is None else Verdict("left out", reason)
    found = difference(play.written, expected)
    if found is None:
        return Verdict("passed")
    reason = exception(case, play, expected)
    return Verdict("failed", found) if reason is None else Verdict("excused", reason)


def left_out(error: BaseException) -> str | None:
    """Return why a case is left out, if that is at the bottom of an error."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, LeftOut):
            return str(below)
        below = below.__cause__ or below.__context__
    return None
