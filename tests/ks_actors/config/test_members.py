"""The config of one of several processes of an app."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import ConfigError, StreamsConfig
from ks_actors.config._members import share

LEAST = 16 << 20


@given(st.integers(-1, 1 << 40), st.integers(1, 256))
def test_members_share_the_memory(amount: int, count: int) -> None:
    """Together they use no more than one process would, but for 16 MiB each; no limit and none stay so."""
    one = share(amount, count)
    assert one * count <= max(amount, min(amount, LEAST) * count)
    assert one >= min(amount, LEAST)
    assert one == amount if amount <= 0 or count == 1 else 0 < one <= amount


def test_each_member_has_a_place_and_names_of_its_own() -> None:
    """Member 1 has those of the only process, so that its state serves one process and several."""
    config = StreamsConfig(application_id="shop", client_id="till", group_instance_id="north", state_dir="/state", num_stream_threads=3)
    first, second = config.for_member(1, 2), config.for_member(2, 2)
    assert (first.client_id, first.group_instance_id, first.state_dir) == ("till", "north-1", Path("/state"))
    assert (second.client_id, second.group_instance_id, second.state_dir) == ("till-2", "north-2", Path("/state/shop/members/2"))
    assert {each.statestore_memory_max_bytes for each in (first, second)} == {config.statestore_memory_max_bytes // 2}
    assert {each.num_stream_threads for each in (first, second)} == {3}
    assert second.statestore_cache_max_bytes == 0
    assert config.for_member(1, 1) is config


@pytest.mark.parametrize(("address", "ports"), [("127.0.0.1:7070", [7070, 7071, 7072]), ("[::1]:0", [0, 0, 0])])
def test_each_member_answers_queries_at_its_own_port(address: str, ports: list[int]) -> None:
    """The ports follow that of the first member; any free port stays so."""
    config = StreamsConfig(application_id="shop", application_server=address)
    servers = [config.for_member(number, 3).application_server for number in (1, 2, 3)]
    assert servers == [f"{address.rpartition(':')[0]}:{port}" for port in ports]


@pytest.mark.parametrize("number", [0, 3])
def test_members_are_numbered_from_1(number: int) -> None:
    """Another supervisor may count from 0."""
    with pytest.raises(ConfigError, match=f"there is no member {number} of 2: members are 1 to 2"):
        StreamsConfig(application_id="shop").for_member(number, 2)
