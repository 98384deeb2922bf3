"""Any function with any arguments, among them objects that act while they are looked at: it returns or raises, and reads nothing that is not there.

A SystemError is a fault, too: Python says by it that a function has run somebody's code with an error set, or has returned nothing without one.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable
from random import Random
from typing import Any, Final

from ks_actors import Window, Windowed
from ks_actors.kernel import _kernel
from tests.fuzz.values import EDGES, any_key

TABLE: Final[dict[str, str]] = {
    "read_records": "data number number number number flag flag number",
    "skip_records": "data number number flag",
    "read_batches": "data number number number number number number",
    "behind_batches": "data",
    "write_records": "list list times headers number number number",
    "route_records": "list list times pair count number",
    "join_records": "runs number number number",
    "write_changes": "changed list forms number",
    "engine_rows": "noted list timed data",
    "crc32c": "data flag",
    "partitions": "list count",
    "convert": "function list",
    "encode_texts": "list",
    "decode_texts": "list",
    "encode_longs": "list",
    "decode_longs": "list",
    "check_bytes": "list",
    "absent": "dict list number",
    "entry_columns": "dict dict list",
    "count_up": "dict dict list list list number list list flag",
    "count_windows": "store list times number out clock",
    "windowed": "class list list",
    "window_values": "dict dict handles flag",
    "expire_windows": "tracks list number",
    "window_keys": "list numbers numbers",
    "add_places": "dict list starts number numbers",
    "meet": "dict starts list list times number number list",
    "map_large": "number",
    "Rows.add": "key number number key number",
    "Rows.add_all": "list times numbers list",
    "Rows.replace": "number key number",
    "Rows.cut": "number",
    "Rows.places": "key number number",
    "Rows.entries": "key number number",
    "Rows.meet": "list times number number times list",
    "Rows.column": "number number number",
    "Rows.names": "number number",
    "Rows.write": "number number number number",
    "Rows.take": "list list",
    "RestoredRows.put": "list list times",
    "RestoredRows.take_over": "restored",
    "RestoredRows.get": "key key",
    "RestoredRows.discard": "key",
    "RestoredRows.__contains__": "key",
    "RestoredRows.arranged": "number",
    "RestoredRows.rows": "number data number",
    "RestoredRows.written": "number",
}
"""The functions of the kernel, and what each takes; one that is missing here is refused by the tests."""

FEW: Final = 40


class Failing(Exception):
    """An error of an object that is looked at."""


class Acting:
    """An object that changes its surroundings whenever it is looked at, and at its end."""

    def __init__(self, scene: Scene) -> None:
        self.scene: Scene = scene

    def __index__(self) -> int:
        return self.scene.act(1)

    def __bool__(self) -> bool:
        return bool(self.scene.act(1))

    def __hash__(self) -> int:
        return self.scene.act(hash("k1"))

    def __eq__(self, other: object) -> bool:
        return bool(self.scene.act(0))

    def __repr__(self) -> str:
        return f"acting {self.scene.act(1)}"

    def __call__(self, argument: object) -> object:
        return self.scene.act(1)

    def __del__(self) -> None:
        self.scene.change()


class Finalized(tuple[Any, ...]):
    """A pair that may be at its end in the middle of a call."""

    __slots__ = ()


class Scene:
    """Lists, dicts and rows that the functions are given, and that acting objects change."""

    def __init__(self, random: Random) -> None:
        self.random: Random = random
        self.live: bool = False
        """Whether a function is being called: else nothing acts."""
        self.failing: float = random.choice((0, 0, 0.1))
        self.lists: list[list[Any]] = []
        self.dicts: list[dict[Any, Any]] = []
        self.rows: Any = _kernel.Rows(0, True, random.random() < 0.5)
        self.restored: Any = _kernel.RestoredRows()
        self.rows.add_all(["k1"] * FEW, list(range(FEW)), list(range(FEW)), [None] * FEW)
        self.lists += [[self.item() for _ in range(random.choice((0, 3, 33, 70)))] for _ in range(4)]
        self.dicts += [{self.key(): self.item() for _ in range(random.choice((0, 3, 40)))} for _ in range(3)]
        self.dicts.append({self.key(): {number: self.item() for number in range(random.choice((0, 3, 40)))} for _ in range(5)})

    # --- acting ---------------------------------------------------------------------------------------------------------------

    def act(self, answer: int) -> int:
        """Change something, and answer or raise."""
        self.change()
        if self.live and self.random.random() < self.failing:
            raise Failing
        return answer

    def change(self) -> None:
        """Change something that a function may be at; this raises nothing."""
        if not self.live:
            return
        random, one, other = self.random, self.random.choice(self.lists), self.random.choice(self.dicts)
        what = random.random()
        if what < 0.1:
            one.clear()
        elif what < 0.2:
            del one[len(one) // 2 :]
        elif what < 0.3:
            one += [b"more", "more", 5]
        elif what < 0.4:
            self.dicts[-1].clear()
        elif what < 0.5:
            dict.clear(other)
        elif what < 0.6:
            other.update((f"new {number}", (number, number)) for number in range(20))
        elif what < 0.7:
            self.rows.add_all(["k1", "new"], [1, 2], [1, 2], [None, None])
            self.rows.cut(random.randrange(FEW))
        elif what < 0.8:
            self.restored.put([b"%d" % number for number in range(9)], [b""] * 9, [1] * 9)
        elif what < 0.82:
            gc.collect(0)

    def call(self, function: Callable[..., Any], arguments: list[Any]) -> None:
        """Call a function; any error of it is good, but a SystemError."""
        self.live = True
        try:
            function(*arguments)
        except SystemError as error:
            raise AssertionError(f"{function} ends in {error!r}, caused by {error.__cause__!r}") from error
        except Exception:  # noqa: BLE001, S110 - the arguments may be anything
            pass
        finally:
            self.live = False

    # --- what is given --------------------------------------------------------------------------------------------------------

    def key(self) -> Any:
        return Acting(self) if self.random.random() < 0.15 else any_key(self.random)

    def number(self) -> Any:
        random = self.random
        return Acting(self) if random.random() < 0.1 else random.choice((0, 0, 1, 2, 5, 5, -1, *EDGES, 1 << 70))

    def item(self) -> Any:
        random = self.random
        key = self.key()
        return random.choice(
            (key, key, b"v", "k1", random.randrange(9), (1, 1), (key, 1), ("k1", random.randrange(9)), None, Finalized((Acting(self), 1)))
        )

    def any_list(self) -> list[Any]:
        random = self.random
        if random.random() < 0.5:
            return random.choice(self.lists)
        made = [random.choice((self.item, self.key))() for _ in range(random.choice((0, 3, 33)))]
        self.lists.append(made)
        return made

    def numbers(self) -> list[Any]:
        made = [Acting(self) if self.random.random() < 0.05 else self.random.randrange(5) for _ in range(self.random.choice((0, 3, 33)))]
        self.lists.append(made)
        return made

    def any_dict(self) -> dict[Any, Any]:
        return self.random.choice(self.dicts)

    def given(self, kind: str) -> Any:
        """Return something of a kind, and sometimes of none."""
        random = self.random
        if random.random() < 0.03:
            return random.choice((None, [], {}, (), "x", b"x", 1.5, Acting(self), array("q", [1])))
        return getattr(self, f"_{kind}")()

    _key, _number, _list, _dict, _numbers, _times, _tracks, _handles = item, number, any_list, any_dict, numbers, numbers, any_dict, any_list

    def _count(self) -> Any:
        return self.random.choice((1, 5, 7, 0, -1, 1 << 31, 1 << 70, Acting(self)))  # others may take gigabytes

    def _flag(self) -> Any:
        return self.random.choice((True, False, Acting(self)))

    def _data(self) -> Any:
        return self.random.choice((b"", b"\x10\0\0\0\x02k\x02v\0", bytearray(b"xyz"), memoryview(b"abcd")))

    def _headers(self) -> Any:
        return self.random.choice((None, [(("h", b"v"),), (), None, ((Acting(self), b""),), (("\ud800", None),)] * 3, self.any_list()))

    def _forms(self) -> Any:
        return tuple(self.random.choice((0, 1, 2, 0, 1, 2, 3, Acting(self))) for _ in range(3))

    def _pair(self) -> Any:
        return self._forms()[1:]

    def _runs(self) -> Any:
        number = self.number
        self.lists.append([(self._data(), number(), self.random.choice((9, number())), number(), number(), self._flag()) for _ in range(3)])
        return self.lists[-1]

    def _timed(self) -> Any:
        return (*self._forms(), self._flag(), self.random.choice((0, 10, self.number())))

    def _changed(self) -> Any:
        return tuple(self.any_dict() for _ in range(3))

    _noted = _changed

    def _function(self) -> Any:
        return self.random.choice((Acting(self), len, str, None))

    def _store(self) -> Any:
        starts = {start: {self.key(): (1, 1) for _ in range(5)} for start in range(0, 50, 10)}
        self.dicts += [starts, *starts.values()]
        return starts, self.any_dict(), self.random.choice(({start: Finalized((Acting(self), 1)) for start in starts}, self.any_dict())), Acting(self)

    def _out(self) -> Any:
        return self.any_list(), [], [], self._flag()

    def _clock(self) -> Any:
        return -1, 1000, self.random.choice((10, 10, self.number())), -1, 1000, 0

    def _class(self) -> Any:
        return self.random.choice((Windowed, Finalized, Window, object, int))

    def _restored(self) -> Any:
        made = _kernel.RestoredRows()
        made.put([b"k%d" % self.random.randrange(9)], [b"v"], [1])
        return self.random.choice((made, self.restored, self.rows))

    def _starts(self) -> Any:
        return array("q", range(self.random.choice((0, 3, 33))))


def session(random: Random) -> None:
    """Call some functions."""
    scene = Scene(random)
    for _ in range(random.randrange(1, 20)):
        name = random.choice(list(TABLE))
        owner, _, method = name.rpartition(".")
        function = getattr({"Rows": scene.rows, "RestoredRows": scene.restored, "": _kernel}[owner], method)
        scene.call(function, [scene.given(kind) for kind in TABLE[name].split()])
        assert len(scene.rows) == len(scene.rows.column(0, 0, 1 << 40)) == len(scene.rows.names(0, 1 << 40))
        assert len(scene.restored) == len(scene.restored.items())
