"""Actor tests in virtual time, under seeded schedules. No test needs to sleep."""

from actors.testing._clock import ManualClock, ManualTimer
from actors.testing._inline import InlineExecutor
from actors.testing._kit import TestKit
from actors.testing._loop import VirtualLoop
from actors.testing._probe import Probe
from actors.testing._run import FailingSeed, explore, run
from actors.testing._run import is_failure as is_failure

__all__ = [
    "FailingSeed",
    "InlineExecutor",
    "ManualClock",
    "ManualTimer",
    "Probe",
    "TestKit",
    "VirtualLoop",
    "explore",
    "run",
]
