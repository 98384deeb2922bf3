"""Samples of the records on the edges of a topology."""

from __future__ import annotations

import asyncio
import reprlib
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from enum import Enum
from functools import partial
from itertools import islice
from numbers import Number
from threading import Lock
from time import monotonic
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, final
from uuid import UUID
from weakref import WeakSet

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ks_actors.log import Outgoing
    from ks_actors.processors.api import Process, ProcessBatch
    from ks_actors.records import Batch, Headers
    from ks_actors.serdes import Serde

T = TypeVar("T")
_KEPT: Final = 5
_EACH_S: Final = 1.0
_MOST_PER_S: Final = 50
_KEPT_AFTER_S: Final = 600.0
_CHARACTERS: Final = 500
_MEMBERS: Final = 20


class SampledRecord(msgspec.Struct, frozen=True):
    """A record on an edge: its time (ms), and its key and value as text, cut."""

    seen_ms: int
    timestamp: int
    key: str
    value: str


class EdgeSample(msgspec.Struct):
    """The last records on an edge; the ids of its ends are those of the page's graph.

    The edge from a sink to its topic has the records as the serdes of the sink read them back.
    """

    source: str
    target: str
    records: deque[SampledRecord]
    due: float = 0.0
    """The time of the monotonic clock (s) from which the next record may be taken."""


class Samples(Protocol):
    """A part of a task that has more to do for samples than to pass records on."""

    def sample(self, taps: EdgeTaps | None, /) -> None:
        """Begin to sample; with None, end."""
        ...


class _Repr(reprlib.Repr):
    """Make the text of one value, with no more work than its first 500 characters need.

    A class that only has the `__repr__` of a container or of a struct is shown by its parts. Any
    other `__repr__` may make a text without bounds: then the type is shown.
    """

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 5
        self.maxstring = self.maxother = self._left = _CHARACTERS
        self.maxdict = self.maxlist = self.maxtuple = _MEMBERS
        self.maxset = self.maxfrozenset = self.maxdeque = _MEMBERS

    def repr1(self, x: Any, level: int) -> str:
        """Return the text of a part while there is room, else dots."""
        if (left := self._left) <= 0:
            return self.fillvalue
        text = self._text(x, level)
        self._left = min(self._left, left - len(text))
        return text

    def _text(self, value: Any, level: int) -> str:
        kind: type[Any] = type(value)
        if (method := _WALKED.get(kind.__repr__)) is not None:
            return str(getattr(self, method)(value, level))
        if (names := _shown_fields(kind)) is not None:
            shown = islice(names, _MEMBERS if level > 0 else 0)
            parts = [f"{name}={self.repr1(getattr(value, name), level - 1)}" for name in shown]
            if len(parts) < len(names):
                parts.append(self.fillvalue)
            return f"{kind.__name__}({', '.join(parts)})"
        if isinstance(value, _SHORT):
            return self.repr_instance(value, level)
        if isinstance(value, _Unreadable):
            return value.text
        return f"<{kind.__name__}>"

    def repr_bytes(self, value: bytes, _: int) -> str:
        """Return the text of the first bytes."""
        cut = "" if len(value) <= _CHARACTERS else f"... ({len(value)} bytes)"
        return f"{value[:_CHARACTERS]!r}{cut}"

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Return the text of the first entries, of which alone the base class sorts the keys."""
        return super().repr_dict(dict(islice(x.items(), _MEMBERS + 1)), level)

    def repr_set(self, x: Any, level: int) -> str:
        """Return the text of the first members."""
        return super().repr_set(set(islice(x, _MEMBERS + 1)), level)


# Objects whose text is short.
_SHORT: Final = (Number, date, time, timedelta, UUID, Enum, NoneType)
# The methods for the types whose parts are shown, by the `__repr__` of these types.
_WALKED: Final[Mapping[Any, str]] = {
    **{kind.__repr__: f"repr_{kind.__name__}" for kind in (str, bytes, int, list, tuple, deque)},
    **dict.fromkeys((set.__repr__, frozenset.__repr__), "repr_set"),
    **dict.fromkeys(
        (each.__repr__ for each in (dict, OrderedDict, defaultdict, Counter)), "repr_dict"
    ),
    bytearray.__repr__: "repr_bytes",
}


def _shown_fields(kind: type[Any]) -> Sequence[str] | None:
    """Return the fields in the text that a library makes for a class; None for other classes."""
    own: Any = kind.__repr__
    if own is msgspec.Struct.__repr__:
        return tuple(kind.__struct_fields__)
    if is_dataclass(kind) and hasattr(own, "__wrapped__"):  # else the class has its own
        return [each.name for each in fields(kind) if each.repr]
    match getattr(own, "__module__", ""):
        case "collections" if hasattr(kind, "_fields"):
            return tuple(kind._fields)
        case "pydantic.main":
            return [name for name, each in kind.model_fields.items() if each.repr]
    return None


@final
class RecordSamples:
    """Samples of the records of an instance; off unless somebody has begun them for a while.

    At most one record a second is taken on an edge, and at most 50 on all edges together. While
    samples are off, the functions of tasks are those that the compiler made: nothing is added.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._taps: WeakSet[EdgeTaps] = WeakSet()
        self._edges: dict[tuple[str, str], EdgeSample] = {}
        self._until: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._second: int = 0
        self._taken: int = 0
        # Tasks in threads take records, too.
        self._lock = Lock()

    @property
    def left_ms(self) -> int:
        """The time (ms) until the samples end; 0 while they are off."""
        return 0 if self._until is None else max(1, round((self._until - monotonic()) * 1000))

    def begin(self, seconds: float) -> None:
        """Take samples for so long, counted from now; a first call forgets earlier samples.

        Call it on the event loop of the app.
        """
        if self._until is None:
            self._edges.clear()
            for taps in tuple(self._taps):
                taps.switch(on=True)
        self._until = monotonic() + seconds
        self._set_timer(seconds, self._pause)

    def end(self) -> None:
        """End the samples, and forget the records."""
        self._pause()
        self._forget()

    def _pause(self) -> None:
        self._until = None
        for taps in tuple(self._taps):
            taps.switch(on=False)
        # The records are users' data, so they do not stay for ever.
        self._set_timer(_KEPT_AFTER_S, self._forget)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._edges.clear()

    def _set_timer(self, seconds: float, then: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, then)

    def edges(self) -> list[EdgeSample]:
        """Return the edges on which records were taken, by their ends."""
        with self._lock:
            found = sorted(self._edges.items())
            return [
                EdgeSample(one.source, one.target, deque(one.records))
                for _, one in found
                if one.records
            ]

    def add(self, taps: EdgeTaps) -> None:
        """Add the edges of a task that was compiled; they are forgotten with the task."""
        self._taps.add(taps)
        if self._until is not None:
            taps.switch(on=True)

    def edge(self, source: str, target: str) -> EdgeSample:
        """Return the samples of an edge."""
        with self._lock:
            found = self._edges.get((source, target))
            if found is None:
                found = EdgeSample(source, target, deque(maxlen=_KEPT))
                self._edges[source, target] = found
            return found

    def wants(self, edge: EdgeSample) -> bool:
        """Return whether a record may be taken on an edge now."""
        return edge.due <= monotonic()

    def take(self, edge: EdgeSample, key: object, value: object, timestamp: int) -> None:
        """Take a record, unless there are enough of this second."""
        with self._lock:
            now = monotonic()
            if int(now) != self._second:
                self._second, self._taken = int(now), 0
            if self._taken >= _MOST_PER_S:
                return
            self._taken += 1
            edge.due = now + _EACH_S
        # Make the texts now: users' code may change the objects later.
        record = SampledRecord(self._now(), timestamp, self._shown(key), self._shown(value))
        with self._lock:
            edge.records.append(record)

    def _shown(self, value: object) -> str:
        try:
            text = _Repr().repr(value)
        except Exception as error:  # noqa: BLE001 - users' classes must not fail the task
            return f"<{type(value).__name__}, whose text raised {type(error).__name__}>"
        return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}…"


class _Tap(NamedTuple):
    """A function at an edge: `exchange` puts another one into its place."""

    edge: tuple[str, str]
    wrap: Callable[[RecordSamples, EdgeSample, Any], Any]
    function: Any
    exchange: Callable[[Any], None]


@final
class EdgeTaps:
    """The edges of one compiled task, whose functions can be exchanged for sampling ones."""

    def __init__(self, samples: RecordSamples) -> None:
        self._samples = samples
        self._taps: list[_Tap] = []
        self._switches: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self._parts: tuple[Samples, ...] = ()
        self._serdes: dict[str, tuple[Serde[Any], Serde[Any]]] = {}

    def enter(
        self,
        entrances: dict[str, T],
        sampled: Callable[[Callable[[str, Any, Any, int], None], T], T],
    ) -> None:
        """Add the entrances of sources, by node; `sampled` makes one that offers its records."""
        for source, entrance in entrances.items():
            offering = sampled(partial(self._read, source), entrance)
            plain = partial(entrances.__setitem__, source)
            self._switches.append((partial(plain, offering), partial(plain, entrance)))

    def tap(
        self, parent: str, child: str, process: Process, exchange: Callable[[Process], None]
    ) -> None:
        """Add an edge between nodes: its function, and the function that exchanges it."""
        edge = f"node:{parent}", f"node:{child}"
        self._taps.append(_Tap(edge, _sampling, process, exchange))

    def tap_batch(
        self,
        parent: str,
        child: str,
        process: ProcessBatch,
        exchange: Callable[[ProcessBatch], None],
    ) -> None:
        """Add the function of an edge for batches."""
        edge = f"node:{parent}", f"node:{child}"
        self._taps.append(_Tap(edge, _sampling_batch, process, exchange))

    def write(self, sink: str, serdes: tuple[Serde[Any], Serde[Any]]) -> None:
        """Add a sink with its serdes of keys and values."""
        self._serdes[sink] = serdes

    def complete(self, *parts: Samples | None) -> None:
        """Note that all edges are there, with the parts of the task that sample in their own way.

        If samples are on, they begin at once.
        """
        self._parts = tuple(part for part in parts if part is not None)
        self._samples.add(self)

    def switch(self, *, on: bool) -> None:
        """Exchange the functions of all edges for sampling ones, or put them back."""
        for tap in self._taps:
            tap.exchange(
                tap.wrap(self._samples, self._samples.edge(*tap.edge), tap.function)
                if on
                else tap.function
            )
        for begin, end in self._switches:
            (begin if on else end)()
        for part in self._parts:
            part.sample(self if on else None)

    def _read(self, source: str, topic: str, key: object, value: object, timestamp: int) -> None:
        """Offer a record that a source has read from a topic."""
        edge = self._samples.edge(f"topic:{topic}", f"node:{source}")
        if self._samples.wants(edge):
            self._samples.take(edge, key, value, timestamp)

    def output(self, output: Sequence[Outgoing], sinks: Mapping[str, str]) -> None:
        """Offer the output of a slice; `sinks` are the nodes by topic.

        Output that no sink has written, such as dead letters, is left out.
        """
        for outgoing in output:
            topic, batch = outgoing.partition.topic, outgoing.batch
            sink = sinks.get(topic)
            serdes = None if sink is None else self._serdes.get(sink)
            if serdes is None or not len(batch):
                continue
            edge = self._samples.edge(f"node:{sink}", f"topic:{topic}")
            if self._samples.wants(edge):
                # A copy of the last record, as the others may stay bytes.
                last = batch.slice(len(batch) - 1, len(batch))
                key = _decoded(serdes[0], topic, last.keys[0], is_key=True)
                value = _decoded(serdes[1], topic, last.values[0], is_key=False)
                self._samples.take(edge, key, value, last.timestamps[0])


class _Unreadable:
    def __init__(self, error: Exception) -> None:
        self.text: str = f"<not readable by the serde: {type(error).__name__}>"


def _decoded(serde: Serde[Any], topic: str, content: bytes | None, *, is_key: bool) -> object:
    try:
        return None if content is None else serde.deserializer(topic, is_key=is_key)(content)
    except Exception as error:  # noqa: BLE001 - a user's serde, which may only write
        return _Unreadable(error)


def _sampling(samples: RecordSamples, edge: EdgeSample, process: Process) -> Process:
    def sample(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if samples.wants(edge):
            samples.take(edge, key, value, timestamp)
        process(key, value, timestamp, headers)

    return sample


def _sampling_batch(
    samples: RecordSamples, edge: EdgeSample, process: ProcessBatch
) -> ProcessBatch:
    def sample(records: Batch) -> None:
        if len(records) and samples.wants(edge):
            samples.take(edge, records.keys[-1], records.values[-1], records.timestamps[-1])
        process(records)

    return sample
