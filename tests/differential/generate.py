"""Random input for the topologies, made to sit on the edges of their time parameters.

    python -m tests.differential.generate --seed 2 --n 100 --topologies tumbling,hopping

writes one JSON case per line. A case depends on seed, topology and index alone, whatever else is generated.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

Params: TypeAlias = dict[str, Any]
Step: TypeAlias = dict[str, Any]
MakeParams: TypeAlias = Callable[[random.Random], Params]

HOUR_MS = 3_600_000
KEYS = ("k1", "k2", "k3", "k4", "k5")
LETTERS = ("a", "a", "b", "b", "c", "c", "d", "e")
AGGREGATED = ("a", "b", "c", "d", "a", "b", "c", "z")  # "z" deletes the aggregate
REGROUPED = ("a1", "a2", "a3", "b1", "b2", "c1", "a1", "b1", "n1", "N1", "m1")
FOREIGN = ("f1|x", "f1|y", "f2|x", "f2|y", "f3|x", "f3|z", "null|x", "null|y")
GRACES = (0, 0, 1, 2, 5, 10, 20, 50)
LEFT_RIGHT = ("left", "right")


# ---- parameters


def _store(r: random.Random) -> str:
    return r.choice(["in_memory", "in_memory", "rocksdb"])


def _nothing(_: random.Random) -> Params:
    return {}


def _store_only(r: random.Random) -> Params:
    return {"store": _store(r)}


def _flags(*names: str) -> MakeParams:
    def make(r: random.Random) -> Params:
        return {"store": _store(r), **{name: r.random() < 0.5 for name in names}}

    return make


def _default_branch(r: random.Random) -> Params:
    return {"default": r.random() < 0.6}


def _emission(r: random.Random, p: Params) -> Params:
    p["op"] = r.choice(["count", "reduce", "aggregate", "aggregate"])
    if r.random() < 0.35:
        p["emit"], p["retention"] = "close", HOUR_MS
    else:
        p["emit"] = "update"
        p["retention"] = r.choice([None, None, HOUR_MS])
    return p


def _tumbling(r: random.Random) -> Params:
    return _emission(r, {"store": _store(r), "size": r.choice([1, 5, 10, 10, 20]), "grace": r.choice(GRACES)})


def _hopping(r: random.Random) -> Params:
    size = r.choice([4, 10, 10, 12])
    p = {"store": _store(r), "size": size, "advance": min(size, r.choice([2, 3, 5, size // 2, size - 1])), "grace": r.choice(GRACES)}
    return _emission(r, p)


def _sliding(r: random.Random) -> Params:
    return _emission(r, {"store": _store(r), "diff": r.choice([1, 3, 5, 10, 10, 20]), "grace": r.choice(GRACES)})


def _session(r: random.Random) -> Params:
    return _emission(r, {"store": _store(r), "gap": r.choice([0, 1, 3, 5, 10, 10]), "grace": r.choice(GRACES)})


def _cogroup_windowed(r: random.Random) -> Params:
    window = r.choice(["time", "hopping", "sliding", "session"])
    p = {"time": _tumbling, "hopping": _hopping, "sliding": _sliding, "session": _session}[window](r)
    del p["op"], p["emit"]
    return {"window": "time" if window == "hopping" else window, **p}


def _session_table(r: random.Random) -> Params:
    p = _session(r)
    del p["op"], p["emit"]
    p["retention"] = r.choice([None, HOUR_MS])
    return p


def _suppress_session(r: random.Random) -> Params:
    p = _session_table(r)
    p["op"] = r.choice(["count", "reduce", "aggregate"])
    return p


def _window_table(r: random.Random) -> Params:
    p = r.choice([_tumbling, _hopping])(r)
    del p["op"], p["emit"]
    p["retention"] = r.choice([None, HOUR_MS])
    return p


def _suppress_window(r: random.Random) -> Params:
    p = _window_table(r)
    p["op"] = r.choice(["count", "reduce", "aggregate"])
    return p


def _join_window(r: random.Random) -> Params:
    kind = r.random()
    if kind < 0.4:
        before = after = r.choice([0, 1, 5, 10, 20])
    elif kind < 0.85:
        before, after = r.choice([(0, 10), (10, 0), (3, 12), (12, 3), (5, 20), (1, 5)])
    else:
        before, after = r.choice([(-2, 10), (10, -3), (-5, 5)])
    return {"store": _store(r), "before": before, "after": after, "grace": r.choice([0, 0, 1, 3, 5, 10, 20, 100])}


def _self_join(r: random.Random) -> Params:
    return {**_join_window(r), "optimization": r.choice(["all", "none"])}


def _join_then_window(r: random.Random) -> Params:
    return {**_join_window(r), "size": r.choice([5, 10, 20])}


def _suppress_limit(r: random.Random) -> Params:
    p = {"store": _store(r), "source": r.choice(["table", "count"]), "limit": r.choice([0, 1, 2, 5, 10, 20, 100])}
    p["max_records"] = r.choice([None, None, 1, 2, 3])
    return p


def _limit_only(r: random.Random) -> Params:
    return {"store": _store(r), "limit": r.choice([0, 1, 5, 10, 20])}


def _history(r: random.Random) -> Params:
    return {"store": _store(r), "history": r.choice([0, 1, 5, 20, 50, 1000])}


def _history_and_grace(r: random.Random) -> Params:
    history = r.choice([5, 20, 50, 1000])
    return {"store": _store(r), "history": history, "grace": r.choice([None, 0, 1, 3, 5, 5, history])}


def _histories(r: random.Random) -> Params:
    left, right = (r.choice([None, 5, 20, 1000]) for _ in LEFT_RIGHT)
    if left is None and right is None:
        left = 20
    return {"store": _store(r), "history_left": left, "history_right": right}


def _start(r: random.Random) -> Params:
    return {"store": _store(r), "start": r.choice([0, 5, 20])}


def _punctuation(r: random.Random) -> Params:
    return {"store": _store(r), "interval": r.choice([1, 5, 10, 20]), "clear": r.random() < 0.5, "start": r.choice([None, None, 0, 3, 25])}


def _dedup(r: random.Random) -> Params:
    window = r.choice([0, 1, 5, 10, 20])
    return {"store": _store(r), "window": window, "retention": 2 * window + 1 + r.choice([0, 5, 100])}


# ---- topologies


class Spec(NamedTuple):
    """The input of a topology: the shares of null keys, null values, values that occur once, and steps that move the wall clock."""

    params: MakeParams = _store_only
    topics: tuple[str, ...] = ("in",)
    values: tuple[str, ...] = LETTERS
    null_keys: float = 0.06
    null_values: float = 0.10
    unique: float = 0.0
    wall: bool = False
    max_steps: int = 60
    topic_values: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    topic_keys: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def _table(params: MakeParams = _store_only, values: tuple[str, ...] = LETTERS) -> Spec:
    return Spec(params, values=values, null_values=0.2, null_keys=0.05)


def _tables(params: MakeParams = _store_only, topics: tuple[str, ...] = LEFT_RIGHT, null_values: float = 0.25) -> Spec:
    return Spec(params, topics=topics, null_values=null_values, null_keys=0.05)


def _streams(params: MakeParams = _join_window, topics: tuple[str, ...] = LEFT_RIGHT, max_steps: int = 60) -> Spec:
    return Spec(params, topics=topics, unique=0.7, null_values=0.06, max_steps=max_steps)


_FOREIGN_KEYS = Spec(
    _flags("mat"),
    topics=LEFT_RIGHT,
    null_values=0.2,
    null_keys=0.04,
    topic_values={"left": FOREIGN, "right": ("p", "q", "r")},
    topic_keys={"left": KEYS[:4], "right": ("f1", "f2", "f3", "f4")},
)
_GLOBAL = Spec(
    topics=LEFT_RIGHT,
    null_values=0.12,
    null_keys=0.1,
    topic_values={"left": ("g1", "g1", "g2", "g3", "n"), "right": ("p", "q", "r")},
    topic_keys={"left": KEYS[:3], "right": ("g1", "g2", "g3")},
)
_REPARTITIONED = Spec(_join_window, topics=LEFT_RIGHT, values=("a1", "a2", "b1", "b2", "c1", "c2", "c3"))

SPECS: dict[str, Spec] = {
    "stateless_chain": Spec(_nothing, values=("a", "b", "c", "d", "e", "x", "ee", "ab"), null_keys=0.12),
    "branch_merge": Spec(_default_branch, null_keys=0.12),
    "merge_count": Spec(topics=("a", "b", "c")),
    "selectkey_count": Spec(values=("a1", "a2", "b1", "b2", "c"), null_values=0.12),
    "repartition_reduce": Spec(values=("a", "b", "c"), null_keys=0.15, null_values=0.12),
    "stream_count": Spec(),
    "stream_reduce": Spec(values=AGGREGATED),
    "stream_aggregate": Spec(values=AGGREGATED),
    "groupby_aggregate": Spec(values=("a1", "a2", "b1", "b2", "n")),
    "aggregate_filter_table": Spec(),
    "table_source": _table(_flags("mat")),
    "table_filter_map": _table(_flags("not", "mat_filter", "mat_map")),
    "table_chain_groupby": _table(values=("a", "b", "c", "d", "ab", "ac", "dd")),
    "table_transform": _table(_flags("mat"), values=("a", "b", "c")),
    "table_groupby_count": _table(values=REGROUPED),
    "table_groupby_reduce": _table(values=REGROUPED),
    "table_groupby_aggregate": _table(values=REGROUPED),
    "table_samekey_aggregate": _table(),
    "to_table": _table(_flags("mat"), values=("a", "b", "c", "x")),
    "to_table_repartition": _table(values=("a1", "a2", "b1", "b2")),
    "tumbling": Spec(_tumbling, values=AGGREGATED),
    "hopping": Spec(_hopping, values=AGGREGATED, max_steps=45),
    "sliding": Spec(_sliding, values=AGGREGATED, max_steps=40),
    "session": Spec(_session, values=AGGREGATED),
    "unlimited_count": Spec(_start),
    "window_filter_table": Spec(_window_table),
    "window_regroup": Spec(_window_table, max_steps=40),
    "session_regroup": Spec(_session_table, max_steps=40),
    "cogroup": Spec(topics=("a", "b"), values=AGGREGATED),
    "cogroup_windowed": Spec(_cogroup_windowed, topics=("a", "b"), values=AGGREGATED, max_steps=40),
    "ss_inner": _streams(),
    "ss_left": _streams(),
    "ss_outer": _streams(),
    "ss_self": _streams(_self_join, topics=("in",), max_steps=40),
    "ss_inner_repartition": _REPARTITIONED,
    "ss_left_repartition": _REPARTITIONED,
    "ss_join_window": _streams(_join_then_window, max_steps=45),
    "ss_chain": _streams(topics=("left", "right", "third"), max_steps=45),
    "st_inner": Spec(topics=LEFT_RIGHT, null_values=0.15),
    "st_left": Spec(topics=LEFT_RIGHT, null_values=0.15),
    "st_left_aggtable": Spec(topics=LEFT_RIGHT, values=AGGREGATED),
    "st_left_repartition": Spec(
        topics=LEFT_RIGHT,
        null_values=0.15,
        null_keys=0.05,
        topic_values={"left": ("a1", "a2", "b1", "c1"), "right": ("p", "q")},
        topic_keys={"left": KEYS[:3], "right": ("a", "b", "c")},
    ),
    "sg_inner": _GLOBAL,
    "sg_left": _GLOBAL,
    "tt_inner": _tables(_flags("mat")),
    "tt_left": _tables(_flags("mat")),
    "tt_outer": _tables(_flags("mat")),
    "tt_chain": _tables(topics=("left", "right", "third")),
    "tt_diamond": _table(),
    "tt_join_groupby": _tables(null_values=0.2),
    "fk_inner": _FOREIGN_KEYS,
    "fk_left": _FOREIGN_KEYS,
    "fk_left_groupby": _FOREIGN_KEYS._replace(params=_store_only),
    "suppress_window": Spec(_suppress_window, values=AGGREGATED),
    "suppress_session": Spec(_suppress_session, values=AGGREGATED),
    "suppress_limit": _table(_suppress_limit, values=("a", "b", "c", "a1", "b1")),
    "suppress_limit_groupby": _table(_limit_only, values=("a", "b", "c", "a1", "b1")),
    "versioned_st_inner": Spec(_history_and_grace, topics=LEFT_RIGHT, null_values=0.15),
    "versioned_st_left": Spec(_history_and_grace, topics=LEFT_RIGHT, null_values=0.15),
    "versioned_tt_inner": _tables(_histories, null_values=0.2),
    "versioned_tt_left": _tables(_histories, null_values=0.2),
    "versioned_tt_outer": _tables(_histories, null_values=0.2),
    "versioned_filter": _table(_history),
    "versioned_groupby": _table(_history, values=("a1", "a2", "b1", "b2", "c1")),
    "multi_subtopology": Spec(values=("a1", "a2", "b1", "b2", "c")),
    "punctuate_stream": Spec(_punctuation),
    "punctuate_wall": Spec(_punctuation, wall=True),
    "dedup": Spec(_dedup, values=("a", "b")),
    "process_values": Spec(values=("a", "b", "c", "d", "dd"), null_values=0.12),
    "papi_router": Spec(null_values=0.12),
}

# ---- steps

_TIMES = ("size", "advance", "grace", "gap", "diff", "before", "after", "limit", "window", "interval", "history", "start")
_TIMES_OF_SIDES = ("history_left", "history_right")
_KINDS = ("tie", "step", "edge", "late_edge", "align", "late", "jump")
_WEIGHTS = ((30, 40, 8, 8, 6, 6, 1), (15, 15, 20, 20, 12, 15, 2), (20, 20, 12, 20, 8, 20, 1))


def distances(p: Params) -> list[int]:
    """Return the distances at which something can change: each time parameter, and the sums that define closing and retention."""
    grace = p.get("grace") or 0
    found = {abs(p[name]) for name in _TIMES + _TIMES_OF_SIDES if isinstance(p.get(name), int)}
    for name in ("size", "gap", "diff", "before", "after"):
        if name in p:
            found |= {abs(p[name] + grace), abs(2 * p[name] + grace)}
    if "before" in p:
        found |= {abs(p["before"] + p["after"]), abs(p["before"] + p["after"] + grace)}
    if "diff" in p:
        found |= {2 * p["diff"], 2 * p["diff"] + 1, p["diff"] + 1}
    return sorted({distance for distance in found if distance <= 1000} | {1, 5})


def timestamps(r: random.Random, p: Params) -> Iterator[int]:
    """Yield endless timestamps around the edges of the topology's time parameters."""
    near = distances(p)
    reach = max(12, max(near) + 2)
    step = r.choice([1, 2, 4, 8])
    weights = r.choice(_WEIGHTS)
    size = p.get("size") or p.get("interval") or p.get("gap") or 10
    advance = p.get("advance") or size
    grace = p.get("grace") or 0
    top = r.choice([0, 0, 3, 10, 100, 1000])
    seen = [top]
    yield top
    while True:
        kind = r.choices(_KINDS, weights)[0]
        if kind == "tie":
            time = r.choice([top, top, seen[-1], r.choice(seen[-8:])])
        elif kind == "step":
            time = top + r.randint(0, step)
        elif kind == "edge":
            time = r.choice([top, *seen[-6:]]) + r.choice([x for x in near if x <= 60] or [1]) + r.choice([-1, 0, 1])
        elif kind == "late_edge":
            time = r.choice([top, top, r.choice(seen[-6:])]) - r.choice(near) + r.choice([-1, 0, 0, 1])
        elif kind == "align":
            time = (top // advance + r.choice([-1, 0, 1])) * advance + r.choice([0, size, size + grace, grace]) + r.choice([-1, 0, 0, 1])
            if time > top + 150:
                time = top + 1
        elif kind == "late":
            time = top - r.randint(0, min(reach * 2, 300))
        else:
            time = top + r.choice([10 * reach, 1000, 61_000, 200_000])
        time = max(0, time)
        top = max(top, time)
        seen.append(time)
        yield time


def make_case(name: str, seed: int, index: int) -> dict[str, Any]:
    """Make the input of one case of topology `name`."""
    spec = SPECS[name]
    r = random.Random(f"{seed}:{name}:{index}")
    p = {parameter: value for parameter, value in spec.params(r).items() if value is not None}
    length = r.randint(5, spec.max_steps)
    number_of_keys = r.randint(2, 5)
    times = timestamps(r, p)
    stay = r.choice([0.0, 0.3, 0.6])
    topic = spec.topics[0]
    steps: list[Step] = []
    count = 0
    last: dict[tuple[str, str | None], str | None] = {}
    clean = r.random() < 0.25  # a quarter of the cases has no nulls at all
    for _ in range(length):
        if spec.wall and r.random() < 0.35:
            every = p["interval"]
            steps.append({"advance_wall_ms": r.choice([1, every - 1 or 1, every, every + 1, 2 * every, 3 * every + 2])})
            continue
        if r.random() >= stay:
            topic = r.choice(spec.topics)
        keys = spec.topic_keys.get(topic) or KEYS[:number_of_keys]
        key = None if not clean and r.random() < spec.null_keys else r.choice(keys)
        if key is None and topic == "left" and "grace" in p and name == "versioned_st_left":
            key = keys[0]  # Kafka Streams 4.4.0 crashes on a null stream key here
        count += 1
        x = r.random()
        value: str | None
        if not clean and r.random() < spec.null_values:
            value = None
        elif x < 0.1 and (topic, key) in last:
            value = last[topic, key]
        elif r.random() < spec.unique:
            value = topic[0].upper() + str(count)
        else:
            value = r.choice(spec.topic_values.get(topic) or spec.values)
        last[topic, key] = value
        steps.append({"topic": topic, "key": key, "value": value, "timestamp": next(times)})
    return {"id": f"{name}-{seed}-{index:04d}", "topology": name, "params": p, "steps": steps}


# ---- one case per graph

_SHAPE = ("default", "mat", "not", "mat_filter", "mat_map", "window", "optimization", "source", "history_left", "history_right", "grace")


def _shape(name: str, p: Params) -> tuple[tuple[str, Any], ...]:
    """Return the parameters that change the graph of a topology, those of versioned stores by being there or not."""
    names = [parameter for parameter in _SHAPE if parameter in p]
    if not name.startswith("versioned_st"):
        names = [parameter for parameter in names if parameter != "grace"]
    if name != "cogroup_windowed":
        names = [parameter for parameter in names if parameter != "window"]
    return tuple((parameter, parameter.startswith(("history", "grace")) or p[parameter]) for parameter in names)


def graph_of(name: str, p: Params) -> str:
    """Return the identity of a graph: the topology's name, and the parameters that change its graph."""
    shape = _shape(name, p)
    return name + (" [" + ", ".join(f"{parameter}={value}" for parameter, value in shape) + "]" if shape else "")


def graphs() -> Iterator[dict[str, Any]]:
    """Yield a case without steps for each graph; its id is that of the graph."""
    for name in SPECS:
        seen = set()
        for index in range(100):
            case = make_case(name, 1, index)
            graph = graph_of(name, case["params"])
            if graph in seen:
                continue
            seen.add(graph)
            if "store" in case["params"]:
                case["params"]["store"] = "in_memory"
            yield {**case, "id": graph, "steps": []}


def _with_headers(case: dict[str, Any], form: str) -> None:
    """Have the stores in a format, on disk, and give most records a header of their own."""
    case["params"].update(format=form, store="rocksdb")
    for number, step in enumerate(case["steps"]):
        if "topic" in step and number % 4:
            step["headers"] = [["n", str(number)]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--n", type=int, default=100, help="cases per topology")
    parser.add_argument("--topologies", default="all", help="names with commas between them")
    parser.add_argument("--graphs", action="store_true", help="instead, one case without steps for each graph")
    parser.add_argument("--format", default="", help="dsl.store.format; the records have headers then")
    parser.add_argument("--cache", type=int, default=0, help="bytes of updates that may be held back")
    options = parser.parse_args()
    names = list(SPECS) if options.topologies == "all" else options.topologies.split(",")
    unknown = [name for name in names if name not in SPECS]
    if unknown:
        parser.error(f"unknown topology {', '.join(unknown)}; one of {' '.join(SPECS)}")
    cases = graphs() if options.graphs else (make_case(name, options.seed, index) for name in names for index in range(options.n))
    for case in cases:
        if options.cache:
            case["params"]["cache"] = options.cache
        if options.format:
            _with_headers(case, options.format)
        sys.stdout.write(json.dumps(case, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
