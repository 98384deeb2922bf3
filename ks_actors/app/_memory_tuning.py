"""Settings of Python's garbage collector and the C library for a process that is one app."""

from __future__ import annotations

import gc

from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel

_THRESHOLDS = (50_000, 10, 100)
_LARGE = 512 << 10


def tune_gc() -> None:
    """Set the garbage collector and the C library's memory for a process that is only an app.

    The settings are process-wide. Objects in memory by now (modules, mostly) are never scanned
    again. Young objects are scanned fifty thousand at a time instead of hundreds, because batches
    are many small objects without cycles. With more of them, a scan would hold the event loop for
    more than some 10 ms while many tasks begin. `make bench-runtime` measures applications with and
    without these settings.

    Where the C library is glibc, freed blocks of 512 KiB and more go back to the operating system.
    By default it would keep all blocks up to the largest size so far, and brokers send megabytes.
    `App.main()` calls this. Programs that embed an app decide for themselves, after their imports:
    nothing else in the library changes process-wide settings.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    if HAS_KERNEL:
        _kernel.map_large(_LARGE)
