"""Members and broker, and the faults done to them."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import signal
from collections.abc import Callable
from time import monotonic
from typing import Any, final

from tests.chaos.clients import Trouble
from tests.chaos.faults import Fault, Plan
from tests.chaos.members import CLEAN, Member, Status
from tests.chaos.options import Options
from tests.chaos.supervised import Children
from tests.kafka.broker import Broker

_LOOK_S = 0.1
_RESTART_S = 1.0
_AGREE_S = 10.0
_NEEDS_A_MEMBER = frozenset({"kill_keep", "kill_wipe", "zombie", "term", "scale_down", "child_kill", "child_freeze", "hup"})


@final
class Stage:
    """All processes of a run but the tester's own. `make` makes the member of a number, `say` reports events."""

    def __init__(self, options: Options, broker: Broker, make: Callable[[int], Member], say: Callable[[str], None], at: Callable[[], float]) -> None:
        self._options = options
        self._broker = broker
        self._make = make
        self._say = say
        self._at = at
        self._order = itertools.count()
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._starting: asyncio.Task[None] | None = None
        self.broker_up: bool = True
        self.members: list[Member] = []
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self.violations: list[str] = []
        self.unexpected: int = 0
        self.unclean: int = 0

    def start(self) -> None:
        """Start the members."""
        self.members = [self._make(number) for number in range(self._options.members)]
        for member in self.members:
            member.start()

    def told(self) -> dict[str, Any]:
        """Return the entries of the report about supervised processes."""
        found = [member.children.report() for member in self.members if member.children is not None]
        return {"processes": found} if found else {}

    @property
    def calm(self) -> bool:
        """Whether all members are in their places, and no event is due by itself."""
        return self.settled and all(member.status in (Status.UP, Status.GONE) for member in self.members)

    @property
    def settled(self) -> bool:
        """Whether no restart is pending."""
        return not self._later and self.broker_up and all(each.complete for each in self.children)

    @property
    def children(self) -> list[Children]:
        """The processes of the supervisors that are to run; none where members are no supervisors."""
        return [member.children for member in self.members if member.children is not None and member.status is not Status.GONE]

    def step(self) -> None:
        """Carry out due actions; notice ended members."""
        while self._later and self._later[0][0] <= monotonic():
            heapq.heappop(self._later)[2]()
        if self._starting is not None and self._starting.done():
            starting, self._starting = self._starting, None
            try:
                starting.result()
            except RuntimeError as error:
                raise Trouble(f"the broker did not come back: {error}") from error
            self._say("the broker is back")
            self.broker_up = True
        for member in self.members:
            member.look()
            if member.status in (Status.UP, Status.STOPPED) and member.ended() is not None:
                self._ended_by_itself(member)

    def _ended_by_itself(self, member: Member) -> None:
        self.unexpected += 1
        self._say(f"member {member.number} ended by itself with {member.ended()}")
        last = " | ".join(member.tail(2))[:300]
        self.notes.append(f"{self._at():.1f} s: member {member.number} ended by itself with {member.ended()}: {last}")
        member.status = Status.DOWN
        self._in(_RESTART_S, member.start)

    def _in(self, delay: float, call: Callable[[], object]) -> None:
        heapq.heappush(self._later, (monotonic() + delay, next(self._order), call))

    # --- faults ---------------------------------------------------------------------------------------------------------------

    def inject(self, plan: Plan) -> Fault:
        """Do it."""
        up = [member for member in self.members if member.status is Status.UP]
        kind = self._scale(plan) if plan.kind == "scale" else plan.kind
        fault = Fault(kind, monotonic(), self._at())
        self.faults.append(fault)
        if (kind.startswith("broker") and not self.broker_up) or (kind in _NEEDS_A_MEMBER and not up):
            fault.skipped = True
            self._say(f"fault {kind} skipped: there is nothing to hit")
            return fault
        if kind.startswith("broker"):
            self._hit_broker(kind, plan, fault)
        elif kind == "scale_up":
            self._scale_up(fault)
        else:
            self._hit_member(kind, up[int(plan.pick * len(up))], plan, fault)
        self._say(f"fault {len(self.faults)}: {fault}")
        return fault

    def _scale(self, plan: Plan) -> str:
        there = sum(member.status is not Status.GONE for member in self.members)
        fewest, most = max(1, self._options.members - 1), self._options.members + self._options.scale_max
        return "scale_up" if there <= fewest or (there < most and plan.coin < 0.5) else "scale_down"

    def _scale_up(self, fault: Fault) -> None:
        member = next((member for member in self.members if member.status is Status.GONE), None)
        if member is None:
            member = self._make(len(self.members))
            self.members.append(member)
        fault.facts["member"] = member.number
        member.start()

    def _hit_member(self, kind: str, member: Member, plan: Plan, fault: Fault) -> None:
        fault.facts["member"] = member.number
        member.look()
        if member.children is not None:
            self._hit_children(kind, member.children, plan, fault)
        if fault.skipped or kind in ("child_kill", "child_freeze"):
            return
        if kind == "hup":
            member.signal(signal.SIGHUP)
        elif kind in ("kill_keep", "kill_wipe"):
            fault.facts["restart_after_s"] = plan.delay
            member.kill()
            self._in(plan.delay, lambda: member.start(wipe=kind == "kill_wipe"))
        elif kind == "zombie":
            fault.facts["stopped_s"] = plan.pause
            member.signal(signal.SIGSTOP)
            member.status = Status.STOPPED
            self._in(plan.pause, lambda: self._thaw(member))
        else:
            if kind == "term":
                fault.facts["restart_after_s"] = plan.delay
            member.signal(signal.SIGTERM)
            member.status = Status.ENDING
            self._in(_LOOK_S, lambda: self._look(member, plan, fault))

    def _hit_children(self, kind: str, children: Children, plan: Plan, fault: Fault) -> None:
        """Hit one process of a supervisor, or note that a signal to the supervisor ends all."""
        running = sorted(children.running, key=lambda child: child.number)
        if kind == "hup" and children.complete:
            # Before, the supervisor may not have begun to heed signals.
            children.roll()
            return
        if kind not in ("hup", "child_kill", "child_freeze"):
            children.will_end(kind)
            return
        if kind == "hup" or not running:
            fault.skipped = True
            return
        child = running[int(plan.coin * len(running))]
        fault.facts["process"] = child.number
        if kind == "child_kill":
            child.why = kind
            children.signal(child, signal.SIGKILL)
        else:
            fault.facts["stopped_s"] = plan.pause
            children.signal(child, signal.SIGSTOP)
            self._in(plan.pause, lambda: children.signal(child, signal.SIGCONT))

    def _thaw(self, member: Member) -> None:
        self._say(f"member {member.number} goes on")
        member.signal(signal.SIGCONT)
        member.status = Status.UP

    def _look(self, member: Member, plan: Plan, fault: Fault) -> None:
        """See whether a member that was told to has ended."""
        took = monotonic() - fault.time
        if member.ended() is None and took < self._options.stop_timeout:
            self._in(_LOOK_S, lambda: self._look(member, plan, fault))
            return
        self._note_end(member)
        fault.facts["stop_took_s"] = round(took, 2)
        member.status = Status.DOWN if fault.kind == "term" else Status.GONE
        if fault.kind == "term":
            self._in(plan.delay, member.start)

    def _note_end(self, member: Member) -> None:
        code = member.ended()
        if code is None:
            member.kill()
        if code not in CLEAN:
            self.unclean += 1
            how = f"did not end within {self._options.stop_timeout:g} s" if code is None else f"ended with {code}"
            self.notes.append(f"{self._at():.1f} s: member {member.number} {how} after SIGTERM")

    def _hit_broker(self, kind: str, plan: Plan, fault: Fault) -> None:
        fault.facts["down_s"] = plan.down
        self.broker_up = False
        if kind == "broker":
            self._broker.kill()
            self._in(plan.down, self._start_broker)
        else:
            self._broker.pause()
            self._in(plan.down, self._resume_broker)

    def _start_broker(self) -> None:
        self._starting = asyncio.create_task(asyncio.to_thread(self._broker.start))

    def _resume_broker(self) -> None:
        self._broker.resume()
        self.broker_up = True

    # --- the end --------------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End all members as their operator would."""
        await self._compare_restarts()
        stopping = [member for member in self.members if member.status is Status.UP]
        for member in stopping:
            member.signal(signal.SIGTERM)
            member.status = Status.ENDING
        deadline = monotonic() + self._options.stop_timeout
        while any(member.ended() is None for member in stopping) and monotonic() < deadline:
            await asyncio.sleep(_LOOK_S)
        for member in stopping:
            self._note_end(member)
            member.status = Status.GONE
        for member in self.members:
            member.look()
            if member.children is not None:
                if left := member.children.left():
                    self.violations.append(f"member {member.number} has left the processes {left}")
                if unexplained := member.children.unexplained():
                    self.violations.append(f"processes of member {member.number} ended by themselves: {unexplained}")

    async def _compare_restarts(self) -> None:
        """Compare the restarts that each supervisor tells with those that were seen."""
        for member in self.members:
            if member.children is not None and member.status is Status.UP:
                deadline = monotonic() + _AGREE_S
                while True:
                    # A process may start between the look and the answer.
                    member.look()
                    told, seen = await asyncio.to_thread(member.children.told)
                    if told == seen or monotonic() >= deadline:
                        break
                    await asyncio.sleep(_LOOK_S)
                self._say(f"member {member.number} tells {told} restarts of its processes; seen were {seen}")
                if told != seen:
                    self.violations.append(f"member {member.number} tells {told} restarts of its processes; seen were {seen}")
                member.children.will_end("end")

    async def clear(self) -> None:
        """Leave nothing behind."""
        for member in self.members:
            member.kill()
            if member.children is not None:
                member.children.kill()
        if self._starting is not None:
            await asyncio.gather(self._starting, return_exceptions=True)
        self._broker.kill()
