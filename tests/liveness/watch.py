"""The rule: no task that has records, and may read them, stands still for longer than a bound."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tests.liveness.ledger import Ledger, Place
from tests.liveness.plan import Lane, Plan
from tests.liveness.topology import TICK_S

BOUND_S: Final = 4.0
"""How long a task may stand still that nothing of its own holds up."""
LOOK_S: Final = 0.25
_SLICE_S: Final = 0.005
_GIVEN_UP_S: Final = 60
_QUIET_LOOKS: Final = 8
_QUIET_STEPS: Final = 300


class Spinning(AssertionError):
    """An app is busy that has nothing to do."""


class Standstill(AssertionError):
    """Records have waited for longer than anything explains."""


class Watch:
    """Look now and then for how long each task has stood still while it had records and nothing excused it."""

    def __init__(self, plan: Plan, ledger: Ledger) -> None:
        self._plan = plan
        self._ledger = ledger
        self._lanes: dict[str, Lane] = {lane.name: lane for lane in plan.lanes}
        self._stood: dict[Place, float] = {}
        self._before: Counter[Place] = Counter()
        self._ticking = [Place(lane.name, "in", number) for lane in plan.lanes if lane.shape == "tick" for number in range(lane.partitions)]
        self._still: dict[Place, float] = {}
        self._ticks_before: Counter[Place] = Counter()
        self.slow_commits: float = 0.0
        self.longest: float = 0.0
        self._quiet: int = 0
        self._steps: int = 0

    def look_at_steps(self, steps: int) -> None:
        """Look at how many messages actors have handled, when no record was sent or read since the last look. Raises Spinning."""
        busy = steps - self._steps > _QUIET_STEPS
        self._steps = steps
        self._quiet = self._quiet + 1 if busy else 0
        if self._quiet >= _QUIET_LOOKS:
            raise Spinning(f"actors handle more than {_QUIET_STEPS / LOOK_S:g} messages a second, and there is nothing to do")

    def something_happens(self, steps: int) -> None:
        """Take note that there was something to do."""
        self._quiet, self._steps = 0, steps

    def excuse(self) -> None:
        """Count from now on: something has held up everything."""
        self._stood.clear()
        self._still.clear()

    def look(self, seconds: float) -> None:
        """Look, so long after the last time. Raises Standstill."""
        self._look_at_ticks(seconds)
        read = self._ledger.read
        for place, count in self._ledger.waiting.items():
            if count <= 0 or read[place] != self._before[place]:
                self._before[place] = read[place]
                self._stood.pop(place, None)
                continue
            stood = self._stood[place] = self._stood.get(place, 0) + seconds
            self.longest = max(self.longest, stood)
            if stood > self._bound(place):
                raise Standstill(
                    f"task {place.partition} of {place.lane} ({place.part}) has stood still for {stood:g} s with {count} records to be read; "
                    f"it may for {self._bound(place):g} s"
                )

    def _look_at_ticks(self, seconds: float) -> None:
        for place in self._ticking:
            ticks = self._ledger.ticks[place]
            if ticks != self._ticks_before[place]:
                self._ticks_before[place] = ticks
                self._still.pop(place, None)
                continue
            still = self._still[place] = self._still.get(place, 0) + seconds
            if still > self._bound(place) + self._between_calls(place) + TICK_S:
                raise Standstill(f"task {place.partition} of {place.lane} has had no punctuation for {still:g} s; it has one each {TICK_S:g} s")

    def _between_calls(self, place: Place) -> float:
        """Return how much longer a call by the clock may have to wait: it may come to be due while the next calls of its task are ended, too.

        It does when a task begins anew, or the clock is set back: its interval is counted from there, and may be over when the task drains again.
        """
        work = self._lanes[place.lane].work
        begins_anew = any(fault.kind in {"join", "set back"} for fault in self._plan.faults)
        return work.seconds if work.kind == "async" and begins_anew else 0.0

    def _bound(self, place: Place) -> float:
        plan, lane = self._plan, self._lanes[place.lane]
        config = plan.config
        bound: float = BOUND_S + max(0, config["max_task_idle_ms"]) / 1000 + 20 * plan.latency
        if lane.work.kind == "async":
            # When its calls have ended it waits for the commit that is under way before it takes anything new.
            bound += lane.work.seconds + self.slow_commits
        bound += plan.slack
        joins = any(fault.kind == "join" for fault in plan.faults)
        if joins:
            # A member that leaves has its tasks until its last commit is over, and that waits for calls that it had begun.
            bound += self.slow_commits + max((each.work.seconds for each in plan.lanes if each.work.kind == "async"), default=0.0)
        # A function that holds its thread does so for a slice and one call, though others wait.
        bound += sum(each.partitions * (_SLICE_S + each.work.seconds) for each in plan.lanes if each.work.kind == "blocking")
        if place.part == "by":
            # Output that is made while a commit ends is sent when it has ended.
            bound += 2 * self.slow_commits + lane.work.seconds
            if any(fault.kind == "outage" and fault.seconds >= _GIVEN_UP_S for fault in plan.faults):
                # A rollback has the calls made anew whose output was waited for, one after the other where they are in order.
                bound += lane.work.seconds * sum(self._ledger.waiting[Place(place.lane, "by", number)] for number in range(lane.partitions))
            if plan.exactly_once:
                # It can be read when it is committed.
                bound += 2 * config["commit_interval_ms"] / 1000
        return bound
