"""The keys of a foreign-key join whose results may be stale."""

from __future__ import annotations

from operator import index

from hypothesis import given
from hypothesis import strategies as st

from ks_actors.processors.foreign_keys._open_deletes import OpenDeletes
from ks_actors.serdes import STRING
from tests.ks_actors.processors.helpers import Node

KEYS = st.integers(0, 400).map("{:03}".format)


def opened(progress: dict[str, int]) -> tuple[OpenDeletes, Node]:
    """Return the keys of a task that has begun with the committed progress."""
    node = Node({})
    node.progress = dict(progress)
    return OpenDeletes.of(node, "topic", STRING), node


def committed(node: Node) -> dict[str, int]:
    return {name: index(value) for name, value in node.progress.items()}


def test_all_nodes_of_a_task_share_the_keys() -> None:
    """The sender notes a key, and the join resolves it, once."""
    deletes, node = opened({})
    assert OpenDeletes.of(node, "topic", STRING) is deletes
    deletes.add("a")
    assert (deletes.resolve("b"), deletes.resolve("a"), deletes.resolve("a")) == (False, True, False)


@given(st.lists(st.tuples(st.booleans(), KEYS), max_size=60), KEYS)
def test_a_key_that_was_open_may_be_stale_after_a_restart_until_it_is_resolved(steps: list[tuple[bool, str]], other: str) -> None:
    """Deletes that were noted and resolved before do not matter, nor do several restarts."""
    deletes, node = opened({})
    model: set[str] = set()
    for adds, key in steps:
        if adds:
            deletes.add(key)
            model.add(key)
        else:
            assert deletes.resolve(key) is (key in model)
            model.discard(key)
    _, node = opened(committed(node))
    deletes, _ = opened(committed(node))
    deletes.add(other)
    assert deletes.resolve(other)
    assert not deletes.resolve(other)
    assert all(deletes.resolve(key) for key in model - {other})
    assert not any(deletes.resolve(key) for key in model)


def test_few_other_keys_may_be_stale_after_a_restart() -> None:
    """With three keys open at the commit, about one in twenty, and each once."""
    deletes, node = opened({})
    for key in ("a", "b", "c"):
        deletes.add(key)
    deletes, node = opened(committed(node))
    others = [f"other-{number}" for number in range(2_000)]
    needless = [key for key in others if deletes.resolve(key)]
    assert 20 < len(needless) < 250
    assert not any(map(deletes.resolve, needless))


def test_of_two_commits_the_later_one_counts() -> None:
    """Partitions of a task may have the progress of different commits: the largest numbers are the latest."""
    deletes, node = opened({})
    earlier: dict[str, int] = {}
    for number in range(50):
        deletes.add(f"{number}")
        if number % 3:
            deletes.resolve(f"{number}")
        later = committed(node)
        assert all(later[name] > earlier.get(name, -1) for name in later)
        earlier = later
    assert all(value < 1 << 63 for value in earlier.values())
