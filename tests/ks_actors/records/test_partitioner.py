"""The default partitioner."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors.records import _partitioner
from ks_actors.records._partitioner import CACHE, FEW, REST, Partitioner, murmur2, partition, partitions_of

# Computed by org.apache.kafka.common.utils.Utils.murmur2 of kafka-clients 4.3.1.
JAVA = {
    b"": 275646681,
    b"a": -1563381124,
    b"ab": 316155434,
    b"abc": 479470107,
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    bytes.fromhex("359d41baf78afe0de1bbe7ae28c0450ce43c084f4bbb2bf1839dee466d852cb5be"): -1981155330,
}


@pytest.fixture(params=["kernel", "numpy", "neither"], autouse=True)
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test is passed by each way to do it; not by `monkeypatch`, which hypothesis would want to be undone for each example."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "kernel":
            patch.setattr(_partitioner, "HAS_KERNEL", False)
        if request.param == "neither":
            patch.setattr(_partitioner, "_murmur2_batch", lambda _: None)
        yield


def one_by_one(keys: list[bytes], partitions: int) -> list[int]:
    return [partition(key, partitions) for key in keys]


@pytest.mark.parametrize(("key", "expected"), JAVA.items())
def test_the_hash_is_that_of_java(key: bytes, expected: int) -> None:
    """Sign included."""
    assert murmur2(key) == expected


def test_the_partition_is_that_of_a_java_producer() -> None:
    """The sign bit is cut off, then the rest is divided."""
    assert {key: partition(key, 7) for key in JAVA} == {key: (value & 0x7FFFFFFF) % 7 for key, value in JAVA.items()}


def test_a_batch_gives_the_partitions_of_single_keys_for_the_keys_of_java() -> None:
    """In the order of the keys."""
    keys = list(JAVA) * FEW
    assert partitions_of(keys, 1000) == one_by_one(keys, 1000)


def test_there_may_be_no_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are hashed one by one without it."""
    monkeypatch.setitem(sys.modules, "numpy", None)
    keys = list(JAVA) * FEW
    assert partitions_of(keys, 1000) == one_by_one(keys, 1000)


@given(
    st.lists(st.binary(max_size=40)) | st.integers(0, 12).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=FEW)),
    st.integers(1, 1 << 31),
)
def test_a_batch_gives_the_partitions_of_single_keys(keys: list[bytes], partitions: int) -> None:
    """For any lengths, as lists of plain ints."""
    found = partitions_of(keys, partitions)
    assert found == one_by_one(keys, partitions)
    assert {type(number) for number in found} <= {int}


@pytest.mark.parametrize("longest", [1, 3, 4, FEW, 3000])
def test_a_few_long_keys_do_no_harm(longest: int) -> None:
    """They are hashed by themselves."""
    source = random.Random(longest)
    keys = [source.randbytes(source.randint(0, 9)) for _ in range(2 * FEW)] + [source.randbytes(source.randint(0, longest)) for _ in range(FEW)]
    source.shuffle(keys)
    assert partitions_of(keys, 12) == one_by_one(keys, 12)


@given(st.lists(st.lists(st.binary(max_size=3), max_size=3 * FEW), max_size=2 * REST), st.integers(1, 50))
def test_remembered_values_equal_computed_ones(batches: list[list[bytes]], partitions: int) -> None:
    """Keys come again, or do not."""
    partitioner, single = Partitioner(partitions), Partitioner(partitions)
    for keys in batches:
        assert partitioner(keys) == one_by_one(keys, partitions)
        assert list(map(single.one, keys)) == one_by_one(keys, partitions)


def test_keys_that_do_not_come_again_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitioner looks now and then whether keys come again."""
    monkeypatch.setattr(_partitioner, "HAS_KERNEL", False)
    source = random.Random(1)
    partitioner = Partitioner(12)
    for _ in range(2 * (REST + 1)):
        partitioner([source.randbytes(9) for _ in range(FEW)])
    assert len(partitioner._known) == 2 * FEW


def test_remembered_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is full, it starts anew."""
    monkeypatch.setattr(_partitioner, "CACHE", 20)
    partitioner = Partitioner(12)
    for number in range(100):
        assert partitioner([b"%d" % number]) == [partition(b"%d" % number, 12)]
        assert len(partitioner._known) <= 20
        assert partitioner.one(b"-%d" % number) == partition(b"-%d" % number, 12)
        assert len(partitioner._known) <= 20
    assert CACHE > 20
