"""Processes by query: `--processes fraud=1,rest=3`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ks_actors import ConfigError, StreamsConfig, Topology, TopologyError
from ks_actors.app import _members
from ks_actors.app._members import part_of, processes_of


def shop() -> Topology:
    """Return a topology with the queries fraud, stats and rest."""
    topology = Topology()
    for query in ("fraud", "stats"):
        with topology.query(query):
            topology.add_source(query, f"of-{query}", key=str, value=str)
    topology.add_source("other", "other", key=str, value=str)
    return topology


def parts(monkeypatch: pytest.MonkeyPatch, groups: str, topology: Topology | None = None, **config: Any) -> list[set[str]]:
    """Return the queries of each member."""
    count, groups = processes_of(groups)
    found = []
    for number in range(1, count + 1):
        member = SimpleNamespace(number=number, count=count, groups=groups)
        monkeypatch.setattr(_members, "current_member", lambda member=member: member)
        found.append({*part_of(topology or shop(), StreamsConfig(application_id="shop", **config)).queries()})
    return found


@pytest.mark.parametrize("given", ["fraud=1,rest=3", "fraud=1, rest=3", {"fraud": 1, "rest": 3}])
def test_queries_are_given_as_text_or_mapping(given: Any) -> None:
    """The number of processes is the sum."""
    count, groups = processes_of(given)
    assert count == 4
    assert groups.replace(" ", "") == "fraud=1,rest=3"


@pytest.mark.parametrize("given", ["fraud=0", "fraud=x", "=1", "fraud=1,fraud=2", "fraud=1,rest", "fraud=300", {}, {"fraud": -1}])
def test_other_numbers_are_refused(given: Any) -> None:
    """The error shows the form."""
    with pytest.raises(ConfigError, match="fraud=1,rest=3"):
        processes_of(given)


def test_each_process_runs_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """`rest` is all that no other process runs, named queries included."""
    assert parts(monkeypatch, "fraud=1,rest=2") == [{"fraud"}, {"stats", "rest"}, {"stats", "rest"}]
    assert parts(monkeypatch, "rest=1,fraud=1,stats=1") == [{"rest"}, {"fraud"}, {"stats"}]
    assert parts(monkeypatch, "2") == [{"fraud", "stats", "rest"}] * 2


def test_a_query_that_no_process_runs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names it, and the remedy."""
    with pytest.raises(TopologyError, match="no process runs rest, stats: add rest=1"):
        parts(monkeypatch, "fraud=2")


def test_an_unknown_query_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt name lists the known ones."""
    with pytest.raises(TopologyError, match="no query 'fruad': choose among fraud, rest, stats"):
        parts(monkeypatch, "fruad=1,rest=1")


def test_queries_are_named_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting `queries` and processes by query exclude each other."""
    with pytest.raises(ConfigError, match="give one"):
        parts(monkeypatch, "fraud=1,rest=1", queries="fraud")
