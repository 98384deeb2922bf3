"""What Python's garbage collector, and the C library's memory, are told in a process that is an app and nothing else."""

from __future__ import annotations

import gc

from ks_actors.kernel import kernel as _kernel

_THRESHOLDS = (100_000, 10, 100)
_LARGE = 512 << 10


def tune_gc() -> None:
    """Set Python's garbage collector, for the whole process, as suits one that is an app and nothing else; and the C library's memory.

    What is in memory by now (modules, mostly) is never looked at again, and young objects are looked at a hundred thousand at a time instead of
    hundreds: batches are many small objects without cycles. `make bench-runtime` has the same applications with and without it. Where the C library
    is glibc, blocks of 512 KiB and more go back to the operating system when they are freed: else it comes to keep all that are no larger than the
    largest that ever was, and what brokers send are megabytes. `App.main()` calls it; programs that embed an app decide for themselves, after their
    imports: nothing else in the library changes what belongs to the process.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    if _kernel is not None:
        _kernel.map_large(_LARGE)
