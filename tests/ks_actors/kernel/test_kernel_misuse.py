"""Acting Python objects and wrong arguments make errors, and never foreign memory or an error of another call."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

import pytest

from ks_actors import Window, Windowed
from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as typed

kernel: Any = typed  # misused on purpose
needs_kernel = pytest.mark.skipif(not HAS_KERNEL, reason="the kernel was not built")


@needs_kernel
def test_keys_of_windows_have_the_hash_of_equal_keys() -> None:
    """They are found in a dict, on each Python: from 3.14 on tuples keep their hash."""
    made = kernel.windowed(Windowed, ["k"], [Window(0, 10)])
    assert made == [Windowed("k", Window(0, 10))]
    assert hash(made[0]) == hash(Windowed("k", Window(0, 10)))
    assert {made[0]: 1}[Windowed("k", Window(0, 10))] == 1


@needs_kernel
def test_lists_that_change_meanwhile_are_an_error() -> None:
    """An `__index__` that clears the lists is not read behind their ends."""
    keys: list[bytes] = [b"a", b"b"]
    starts: list[Any] = []

    class Evil:
        def __index__(self) -> int:
            keys.clear()
            starts.clear()
            return 1

    starts += [Evil(), 2]
    with pytest.raises((ValueError, TypeError)):
        kernel.window_keys(keys, starts, None)


class Key:
    """A key that is looked at in the place of another one, and does something then; it may be equal to that."""

    def __init__(self, other: object, act: Callable[[], object], *, equal: bool) -> None:
        self.other, self.act, self.equal = other, act, equal

    def __hash__(self) -> int:
        return hash(self.other)

    def __eq__(self, other: object) -> bool:
        self.act()
        return self.equal


@needs_kernel
def test_times_that_go_while_a_key_is_looked_for_are_an_error() -> None:
    """An `__eq__` that clears the times is not read behind their end."""
    times = [5, 6]
    with pytest.raises(ValueError, match="times have changed"):
        kernel.meet({"a": 0}, array("q", [5]), ["v"], [Key("a", times.clear, equal=True), "a"], times, 1, 1, [])


@needs_kernel
def test_a_pane_is_held_on_to_while_the_window_before_ends() -> None:
    """The finalizer of a window may take all panes away; the record is counted in the one that was found."""
    panes: dict[int, dict[Any, Any]] = {0: {}, 10: {}}

    class Ending:
        def __del__(self) -> None:
            panes.clear()

    windows: dict[Any, Any] = {0: Ending()}
    found: list[Any] = []
    changes: list[Any] = []

    def end() -> None:
        """Leave the window to the kernel alone."""
        if found:
            windows.pop(0)
            found.clear()

    windows[Key(10, end, equal=False)] = None
    windows[10] = "w"
    later = panes[10]
    out: tuple[list[Any], list[Any], list[int], bool] = (found, changes, [], False)
    stopped = kernel.count_windows((panes, {}, windows, None), ["a", "b", "b"], [1, 11, 12], 0, out, (-1, 1000, 10, -1, 1000, 0))[0]
    assert panes == {}
    assert stopped == 3
    assert later == {"b": (2, 12)}
    assert changes == [(1, None), (1, None), (2, None)]


@needs_kernel
@pytest.mark.parametrize("track", [object(), 0, [], "x"])
def test_objects_that_are_no_dict_are_left_alone(track: Any) -> None:
    """`expire_windows` deletes nothing of it."""
    tracks = {1: track}
    kernel.expire_windows(tracks, [1], 5)
    assert tracks == {1: track}


@needs_kernel
@pytest.mark.parametrize("header", [4097, 2**63 - 1])
def test_a_header_that_is_too_long_is_an_error(header: int) -> None:
    """No memory is taken for it, and none is written."""
    with pytest.raises(ValueError, match="4096 bytes at most"):
        kernel.write_records([b"k"], [b"v"], [0], None, 0, 1 << 20, header)


class Ignored(Exception):
    """An error of a truth value."""


class Acting:
    """An int, and a truth value that there is none of."""

    def __index__(self) -> int:
        return len("x")

    def __bool__(self) -> bool:
        raise Ignored


@needs_kernel
@pytest.mark.parametrize(
    ("error", "call"),
    [
        (OverflowError, lambda: kernel.read_records(b"", 0, 2**70, Acting(), Acting(), 0, 0)),
        (OverflowError, lambda: kernel.write_records([b"k"], [b"v"], [0], None, 2**70, Acting(), Acting())),
        (OverflowError, lambda: kernel.RestoredRows().rows(2**70, b"", Acting())),
        (Ignored, lambda: kernel.count_up({}, {}, [], [], [], Acting(), [], [], Acting())),
        (OverflowError, lambda: kernel.meet({}, array("q"), [], [], [], 2**70, Acting(), [])),
    ],
)
def test_an_int_that_acts_runs_with_no_error_set(error: type[Exception], call: Callable[[], Any]) -> None:
    """The first argument that is none is the error, not that of the call that an `__index__` makes behind it."""
    with pytest.raises(error):
        call()


@needs_kernel
@pytest.mark.parametrize(
    "call",
    [
        lambda: kernel.write_changes([{}, {}, {}], [], (0, 0, 0), 0),
        lambda: kernel.write_changes(({}, {}, {}), [], [0, 0, 0], 0),
        lambda: kernel.engine_rows({}, [], (0, 0, 0, True, 0), b""),
        lambda: kernel.engine_rows(({}, {}, {}), [], None, b""),
        lambda: kernel.count_windows([{}, {}, {}, None], [], [], 0, ([], [], [], False), (0,) * 6),
        lambda: kernel.count_windows(({}, {}, {}, None), [], [], 0, None, (0,) * 6),
    ],
)
def test_objects_that_are_no_tuple_are_of_the_wrong_type(call: Callable[[], Any]) -> None:
    """It is the caller's mistake, and none of Python itself."""
    with pytest.raises(TypeError, match="takes tuples"):
        call()


@needs_kernel
def test_each_function_is_fuzzed() -> None:
    """The table of arguments has them all: a new function is called with acting objects too."""
    from tests.fuzz.acting import TABLE  # noqa: PLC0415 - it needs a kernel

    owners: dict[str, Any] = {"": kernel, "Rows.": kernel.Rows, "RestoredRows.": kernel.RestoredRows}
    found = {prefix + name for prefix, owner in owners.items() for name in dir(owner) if name.islower() and callable(getattr(owner, name))}
    plain = {name for name in found if "__" not in name} | {"RestoredRows.__contains__"}
    assert plain - set(TABLE) == {"trim_memory", "Rows.steps", "RestoredRows.items"}  # they take nothing
    assert set(TABLE) <= plain


COUNT: Final = 300


class Columns:
    """Arguments of the kernel's functions: lists that a finalizer may change, and rows that it may add to."""

    def __init__(self) -> None:
        self.texts: list[Any] = [f"key {number}" for number in range(COUNT)]
        self.data: list[Any] = [b"%d" % number for number in range(COUNT)]
        self.numbers: list[Any] = list(range(1_000, 1_000 + COUNT))
        self.windows: list[Any] = [Window(number, number + 1) for number in range(COUNT)]
        self.starts = array("q", range(COUNT))
        self.index: dict[Any, Any] = {"k": list(range(COUNT))}
        self.entries: dict[Any, Any] = {text: (number, number) for number, text in enumerate(self.texts)}
        self.met: list[Any] = []
        self.rows = kernel.Rows(0, True, False)
        self.rows.add_all(["k"] * COUNT, list(range(COUNT)), list(range(COUNT)), list(self.data))
        self.restored = kernel.RestoredRows()
        self.restored.put(self.data, self.data, self.numbers)

    def destroy(self) -> None:
        """Do things that make a pointer into any of it wrong."""
        for each in (self.texts, self.data, self.numbers, self.windows, self.index, self.entries):
            each.clear()
        self.rows.add_all(["new"] * 9_000, [1] * 9_000, [1] * 9_000, [b""] * 9_000)
        self.restored.put([b"%d more" % number for number in range(2_000)], [b"v" * 99] * 2_000, [1] * 2_000)


Call: TypeAlias = tuple[Callable[..., Any], *tuple[Any, ...]]

CALLS: Final[dict[str, Callable[[Columns], Call]]] = {
    "windowed": lambda columns: (kernel.windowed, Windowed, columns.texts, columns.windows),
    "partitions": lambda columns: (kernel.partitions, columns.data, 7),
    "encode_texts": lambda columns: (kernel.encode_texts, columns.texts),
    "encode_longs": lambda columns: (kernel.encode_longs, columns.numbers),
    "window_keys": lambda columns: (kernel.window_keys, columns.data, columns.numbers, None),
    "write_records": lambda columns: (kernel.write_records, columns.data, columns.data, columns.numbers, None, 0, 1 << 20, 0),
    "route_records": lambda columns: (kernel.route_records, columns.texts, columns.data, columns.numbers, (1, 0), 3, 1 << 20),
    "entry_columns": lambda columns: (kernel.entry_columns, columns.entries, {}, columns.texts),
    "absent": lambda columns: (kernel.absent, {}, columns.texts, 0),
    "engine_rows": lambda columns: (kernel.engine_rows, (columns.entries, {}, {}), columns.texts, (0, 1, 2, True, 0), b""),
    "write_changes": lambda columns: (kernel.write_changes, (columns.entries, {}, {}), columns.texts, (0, 1, 2), 1 << 20),
    "window_values": lambda columns: (kernel.window_values, {0: columns.entries}, {}, [(text, 0) for text in columns.texts], True),
    "meet": lambda columns: (kernel.meet, columns.index, columns.starts, columns.data, ["k"], [5], 9, COUNT, columns.met),
    "Rows.meet": lambda columns: (columns.rows.meet, ["k"], [5], 9, COUNT, None, columns.met),
    "Rows.entries": lambda columns: (columns.rows.entries, "k", 0, COUNT),
    "Rows.places": lambda columns: (columns.rows.places, "k", 0, COUNT),
    "Rows.column": lambda columns: (columns.rows.column, 3, 0, COUNT),
    "Rows.names": lambda columns: (columns.rows.names, 0, COUNT),
    "RestoredRows.items": lambda columns: (columns.restored.items,),
}


@pytest.fixture
def _collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@needs_kernel
@pytest.mark.usefixtures("_collector")
@pytest.mark.parametrize("name", CALLS)
def test_finalizers_wait_until_a_call_has_ended(name: str) -> None:
    """On Python 3.11 any allocation may run the collector, and that a finalizer; there it does not find the kernel at work."""
    other, columns = Columns(), Columns()
    (function, *arguments), (call, *rest) = CALLS[name](other), CALLS[name](columns)
    expected, given = function(*arguments), tuple(rest)

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            columns.destroy()

    gc.collect()
    gc.disable()
    Cycle()
    # Lists and pairs that were freed are taken first, and run nothing.
    held: Any = [[] for _ in range(200)], [(number, number) for number in range(5_000)], [(number, number, number) for number in range(5_000)]
    gc.set_threshold(1, 1, 1)
    gc.enable()
    found = call(*given)
    gc.set_threshold(700, 10, 10)
    del held
    assert (found, columns.met) == (expected, other.met)
    gc.collect()
    assert columns.texts == []


@needs_kernel
@pytest.mark.parametrize("collects", [True, False])
def test_a_call_leaves_the_collector_as_it_was(collects: bool) -> None:
    """On or off, whether it returns or raises."""
    (gc.enable if collects else gc.disable)()
    try:
        kernel.partitions([b"k"], 3)
        with pytest.raises(TypeError):
            kernel.partitions(["k"], 3)
        assert gc.isenabled() is collects
    finally:
        gc.enable()


class Pair(tuple[Any, ...]):
    """A class of tuples that is made in Python."""

    __slots__ = ()


@needs_kernel
@pytest.mark.parametrize("kind", [os.stat_result, type(sys.version_info), type(sys.flags), os.terminal_size, object, int, 5])
def test_pairs_are_made_only_of_classes_of_plain_tuples(kind: Any) -> None:
    """A class in C may look like one, and rely on more items than two: its destructor reads them."""
    with pytest.raises(TypeError):
        kernel.windowed(kind, ["a"], ["b"])
    assert kernel.windowed(Pair, ["a"], ["b"]) == [Pair(("a", "b"))]


@needs_kernel
def test_starts_at_odd_addresses_are_refused() -> None:
    """An int64 is not read where none may be."""
    view = memoryview(bytearray(33))[1:].cast("q")
    with pytest.raises(ValueError, match="an array of int64"):
        kernel.meet({"a": 0}, view, ["v"], ["a"], [0], 0, 0, [])
    with pytest.raises(ValueError, match="an array of int64"):
        kernel.add_places({}, ["a"] * 4, view, 0, [0, 1, 2, 3])


@needs_kernel
@pytest.mark.parametrize("base", [1, 2**62, 2**63 - 1])
def test_places_that_are_not_there_are_refused(base: int) -> None:
    """The check holds also where the sum of two lengths exceeds the range of numbers."""
    with pytest.raises(ValueError, match="one length"):
        kernel.add_places({}, ["a"], array("q", [5]), base, [1])


EXTREMES: Final = (-(1 << 70), -(1 << 63), -1, 0, (1 << 63) - 1, 1 << 63, 1 << 70)


@needs_kernel
@pytest.mark.parametrize("grace", EXTREMES)
@pytest.mark.parametrize("retention", EXTREMES)
@pytest.mark.parametrize("now", EXTREMES)
def test_windows_are_open_as_for_numbers_of_any_size(now: int, grace: int, retention: int) -> None:
    """Sums that are beyond int64 do not turn around; numbers that are beyond it themselves are left to Python."""
    store: Any = ({0: {}}, {}, {0: "w"}, None)
    stop, *clock, _, _ = kernel.count_windows(store, ["a"], [5], 0, ([], [], [], False), (now, grace, 10, now, retention, 0))
    is_open = max(now, 5) - grace < 10 and max(now, 0) - retention < 0
    small = all(-(1 << 63) <= number < 1 << 63 for number in (now, grace, retention))
    assert stop == int(is_open and small)
    assert clock == ([max(now, 5), max(now, 0)] if stop else [now, now])


@needs_kernel
@pytest.mark.parametrize("entry", [(1, 5), (1, 2**70), (2**70, 5), (1, -(2**70))])
@pytest.mark.parametrize("time", [7, 2**63 - 1, 2**63, 2**70, -(2**70)])
def test_counts_with_times_of_any_size_are_left_to_python(entry: tuple[int, int], time: int) -> None:
    """A number that does not fit into int64 is no error: the kernel stops there."""
    view = {"k": entry}
    times: list[int] = []
    small = all(-(1 << 63) <= number < 1 << 63 for number in (*entry, time))
    assert kernel.count_up(view, {}, ["k"], [b""], [time], 0, [], times, True) == ((1, 1) if small else (0, 0))
    assert view == {"k": (entry[0] + 1, max(entry[1], time)) if small else entry}
    assert times == ([max(entry[1], time)] if small else [])


@needs_kernel
@pytest.mark.parametrize("time", [2**63 - 1, 2**63, 2**63 + 4, 2**70, -(2**70), -1])
@pytest.mark.parametrize(("before", "after"), [(10, 10), (2**63 - 1, 2**63 - 1), (-5, 5)])
def test_rows_are_met_by_times_of_any_size(time: int, before: int, after: int) -> None:
    """Near times are near, also where the time itself is beyond int64, as the Python code has it."""
    starts = [0, 5, 2**63 - 9, 2**63 - 2]
    low, high = (min(max(0, each), 2**63 - 1) for each in (time - before, time + after))
    expected = [(0, start, b"v") for start in starts if low <= start <= high]
    found: list[Any] = []
    kernel.meet({"k": [0, 1, 2, 3]}, array("q", starts), [b"v"] * 4, ["k"], [time], before, after, found)
    assert found == expected
    for base, some in ((0, starts[:2]), (2**63 - 100, starts[2:])):
        rows = kernel.Rows(base, True, False)
        rows.add_all(["k"] * 2, some, [1, 2], [b"v"] * 2)
        found = []
        rows.meet(["k"], [time], before, after, [2**70 * -1], found)
        assert found == [each for each in expected if each[1] in some]


@needs_kernel
@pytest.mark.parametrize("sequence", [2**31, -(2**31) - 1, 2**32])
def test_numbers_are_not_cut_off(sequence: int) -> None:
    """A sequence number has 32 bits, with and without the kernel."""
    assert kernel.window_keys(["k"], [5], [2**31 - 1]) == [b"k" + (5).to_bytes(8) + b"\x7f\xff\xff\xff"]
    with pytest.raises(OverflowError):
        kernel.window_keys(["k"], [5], [sequence])


@needs_kernel
@pytest.mark.parametrize("name", ["Rows", "RestoredRows"])
def test_names_that_nobody_asks_for_are_refused(name: str) -> None:
    """No argument is taken and ignored."""
    with pytest.raises(TypeError, match="takes no names"):
        getattr(kernel, name)(*((0, True, True) if name == "Rows" else ()), x=1)


@needs_kernel
def test_each_function_names_its_description() -> None:
    """`help()` has a line for each."""
    assert all("_kernel.pyi" in getattr(kernel, name).__doc__ for name in dir(kernel) if callable(getattr(kernel, name)) and name.islower())


NOTED: Any = ({}, {}, {})
ODD: Any = (([], {}, {}), ({}, [], {}), ({}, {}, []), ({}, {}))
OUT: Any = ([], [], [], False)
NUMBERS = array("q", [1])
RECORD = b"\x10\0\0\0\x02k\x02v\0"
REFUSED: Final[dict[str, list[tuple[Any, ...]]]] = {
    "absent": [(), ([], [], 0), ({}, (), 0), ({}, [], "a")],
    "add_places": [({}, [], array("i"), 0, []), ({}, ["a"], array("q"), 0, [0]), ({"a": 9}, ["a"], NUMBERS, 0, [0])],
    "count_windows": [
        (),
        ((*NOTED, None), [], [], 0, OUT, (0, 0, 0, 0, 0, 0)),
        (NOTED, [], [], 0, OUT, (0, 0, 1, 0, 0, 0)),
        ((*NOTED, None), ["a"], [], 0, OUT, (0, 0, 1, 0, 0, 0)),
        (({0: 5}, {}, {0: "w"}, None), ["a"], [0], 0, OUT, (0, 0, 1, 0, 5, 0)),
    ],
    "engine_rows": [
        (),
        *((noted, [], (0, 0, 0, True, 0), b"") for noted in ODD),
        (NOTED, (), (0, 0, 0, True, 0), b""),
        *((NOTED, [], forms, b"") for forms in ((0, 0, 0, True), (3, 0, 0, True, 1), (0, 0, 0, True, 1), (1, 0, 0, True, 0), (2, 0, 0, True, -1))),
        (NOTED, [], (0, 0, 0, True, 0), "p"),
        (NOTED, [[]], (0, 0, 0, True, 0), b""),
    ],
    "entry_columns": [({}, {}), ({}, [], []), ({}, {}, ("a",))],
    "expire_windows": [([], [], 0), ({}, [], "a")],
    "meet": [
        ([], array("q"), [], [], [], 0, 0, []),
        ({"a": 0}, NUMBERS, [], ["a"], [1], 0, 0, []),
        ({"a": 0}, NUMBERS, ["x"], ["a"], ["b"], 0, 0, []),
    ],
    "window_keys": [(["a"], [], None), (["a"], ["b"], None)],
    "window_values": [({}, [], [], True)],
    "windowed": [(Windowed, ["a"], []), (str, ["a"], ["w"])],
    "route_records": [
        (),
        (["a"], ["b"], [1], (1, 1), 0, 99),
        (["a"], ["b"], [1], (1, 3), 1, 99),
        (["a"], ["b"], [1], [1, 1], 1, 99),
        (["a"], [], [1], (1, 1), 1, 99),
        ([], [], [], (1, 1), 1 << 31, 99),
        ((), [], [], (1, 1), 1, 99),
    ],
    "join_records": [
        (),
        ([], 0, 99, 0),
        ([(RECORD, 0, 9, 1, 0, False)], 1, 99, 0),
        ([(RECORD, 0, 9, 1, 0, False)], 0, 99, 5_000),
        ([(RECORD, 0, 9, 1, 0, False)], -1, 99, 0),
        *(([(RECORD, *bounds, 0, False)], 0, 99, 0) for bounds in ((0, 9, -1), (0, 9, 2), (0, 8, 1), (-1, 9, 1), (0, 10, 1), (5, 4, 1))),
        ([[RECORD, 0, 9, 1, 0, False]], 0, 99, 0),
        ([(b"\2\0", 0, 2, 1, 0, False)], 0, 99, 0),
    ],
    "skip_records": [(), (RECORD, 9_999, 1), (RECORD, "a", 1), (RECORD[:-1], 0, 1, True), (b"\x10\0\0\0\x02k\x02v\2", 0, 1, True)],
    "write_changes": [
        (),
        (NOTED, (), (0, 0, 0), 1),
        *((noted, [], (0, 0, 0), 1) for noted in ODD),
        *((NOTED, [], forms, 1) for forms in ((3, 0, 0), (0, -1, 0), (0, 0, 3), (0, 0, "a"))),
        (NOTED, [], (0, 0, 0), "a"),
        (NOTED, [[]], (0, 0, 0), 1),
    ],
    "Rows": [(), ("base", True, True), (1 << 64, True, True)],
    "Rows.add": [
        (),
        ("k", 0, 0, "text", 0),
        ("\ud800", 0, 0, b"", 0),
        ("k", 1 << 32, 0, b"", 0),
        ("k", 0, 1 << 31, b"", 0),
        ("k", 1 << 64, 0, b"", 0),
    ],
    "Rows.add_all": [(["k"], [0], [0], []), (("k",), [0], [0], [b""])],
    "Rows.replace": [(1, b"", 0), (-1, b"", 0), (0, "text", 0)],
    "Rows.cut": [("all",)],
    "Rows.places": [("k", 0, "x")],
    "Rows.column": [(6, 0, 1), (-1, 0, 1)],
    "Rows.names": [(0,)],
    "Rows.write": [(0, 1, 100), (0, 1, "x", 0), (0, 0, 100, 0), (1, 2, 100, 0), (0, 1, 100, -1), (0, 1, 100, 1 << 60)],
    "Rows.meet": [
        ([], [], 0, 0, None, ()),
        (["k"], [], 0, 0, None, []),
        (["k"], [0], 0, 0, [], []),
        (["k"], [0], -(1 << 63), 0, None, []),
        (["k"], ["x"], 0, 0, None, []),
    ],
    "RestoredRows.put": [([], []), ([b"a"], (b"x",), [0]), ([b"a"], [], [0]), (["a"], [b"x"], [0]), ([b"a"], [b"x"], [1 << 63])],
    "RestoredRows.get": [("a", None), (b"a",)],
    "RestoredRows.discard": [("a",)],
    "RestoredRows.__contains__": [("a",)],
    "RestoredRows.take_over": [({},)],
    "RestoredRows.arranged": [(0,), ("a",)],
    "RestoredRows.rows": [(1, "a", 0), (1, b"a", 9), (-1, b"a", 0), (1, b"a", 0)],
    "RestoredRows.written": [("a",)],
}


@needs_kernel
@pytest.mark.parametrize("name", REFUSED)
def test_wrong_arguments_are_refused(name: str) -> None:
    """With an error, for any arguments; rows stay as they were, also those that have no order yet."""
    rows, restored = kernel.Rows(0, True, False), kernel.RestoredRows()
    rows.add("k", 5, 1, b"v", 5)
    restored.put([b"there"], [b"x"], [0])
    owner, _, method = name.rpartition(".")
    for arguments in REFUSED[name]:
        with pytest.raises((TypeError, ValueError, OverflowError, IndexError)):
            getattr({"Rows": rows, "RestoredRows": restored, "": kernel}[owner], method)(*arguments)
        assert (len(rows), rows.entries("k", 0, 9)) == (1, [(5, (b"v", 5))])
        assert restored.items() == [(b"there", bytes(8) + b"x")]
    with pytest.raises(TypeError):
        restored.take_over(restored)


BUILT = find_spec("ks_actors.kernel._kernel") is not None


@pytest.mark.parametrize(("value", "there"), [("1", False), ("0", BUILT), ("", BUILT)])
def test_the_environment_leaves_it_out(value: str, there: bool) -> None:
    """KS_ACTORS_WITHOUT_KERNEL=1, when the package is imported."""
    code = "from ks_actors.kernel import HAS_KERNEL; print(HAS_KERNEL)"
    run = subprocess.run(  # noqa: S603 - its own interpreter
        [sys.executable, "-c", code], env={**os.environ, "KS_ACTORS_WITHOUT_KERNEL": value}, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == str(there)
