"""The time for which a member may rely on its partitions."""

from __future__ import annotations

import sys
import time

import pytest

from ks_actors.lifecycle._clock import elapsed_time
from ks_actors.log import Lease


def test_a_lease_holds_until_its_time_is_over() -> None:
    """It holds before the time that it was extended to, not from then on, and no extension makes it shorter."""
    now = [100.0]
    lease = Lease(lambda: now[0])
    assert not lease.holds()
    lease.extend(lease.time() + 10)
    lease.extend(lease.time() + 5)
    now[0] = 109.9
    assert lease.holds()
    now[0] = 110.0
    assert not lease.holds()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the clock has another name")
def test_the_clock_goes_on_in_sleep() -> None:
    """It is the one of Linux that counts the time in which the machine sleeps."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now = elapsed_time()
    assert before <= now <= time.clock_gettime(time.CLOCK_BOOTTIME)
