"""The kernel does the same as Python, for some random sessions of each kind and for all recorded batches; `python -m tests.fuzz` goes on."""

from __future__ import annotations

from random import Random

import pytest

from ks_actors.kernel import HAS_KERNEL
from ks_actors.log.kafka.wire._batch_header import HEADER

pytestmark = pytest.mark.skipif(not HAS_KERNEL, reason="there is no kernel")
if HAS_KERNEL:
    from tests.fuzz import batches, sections

SESSIONS = 150


@pytest.mark.parametrize("section", sections.SECTIONS if HAS_KERNEL else [])
def test_the_kernel_does_the_same_as_python(section: str) -> None:
    """For any arguments: the same results and errors, in any order of operations."""
    for seed in range(SESSIONS):
        sections.play(section, seed)


@pytest.mark.parametrize("name", batches.BATCHES if HAS_KERNEL else [])
def test_batches_that_were_kept_are_read_alike(name: str) -> None:
    """With the kernel and without it, with any number of records at a time; later ones are read when one cannot be."""
    raw, random = batches.BATCHES[name], Random(name)
    for position, limit in ((0, 1000), (0, 1), (1, 2)):
        for aborted in (None, [(7, 0)]):
            batches.compare(raw, aborted, position, limit)
            batches.compare(raw + batches.BATCHES["plain"], aborted, position, limit)
    for _ in range(20):
        batches.read_exactly(random, raw[HEADER.size :])


def test_a_session_is_always_the_same_one() -> None:
    """The number that is printed is enough to play it again."""
    drawn = [[batches.batch(Random(f"batches:{seed}")) for seed in range(20)] for _ in range(2)]
    assert drawn[0] == drawn[1]
