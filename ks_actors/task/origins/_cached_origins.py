"""The origins of cached rows."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from ks_actors.records import Batch
from ks_actors.task.origins._leaves import OriginLeaves
from ks_actors.task.origins._pages import OriginLeaf

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ks_actors.processors.api import RecordMetadata
    from ks_actors.records import Window
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.task.origins._pages import OriginPage, Place, RawRecord

_new = tuple.__new__  # A named tuple's own constructor calls this.
NONE_LATE: Final[Mapping[int, int | None]] = MappingProxyType({})


class _Batch(NamedTuple):
    """Records that have changed rows, all but those at `skipped`.

    `late` records have changed only the windows that end after a time (ms). If that time is None,
    the changed windows are unknown. `whole` says that keys are keys of rows, with their windows.
    """

    batch: Batch
    skipped: Collection[int]
    late: Mapping[int, int | None]
    whole: bool


class _Found(NamedTuple):
    """A record that may have changed a row.

    With an `end`, it changed the row of that window; otherwise the windows around time `begin` that
    end after `closed`.
    """

    begin: int
    end: int | None
    closed: int
    place: Place

    def changed(self, window: Window) -> bool:
        """Return whether the record has changed a window."""
        begin, end, closed, _ = self
        start, stop = window
        if end is not None:
            return start == begin and stop == end
        return start <= begin < stop and stop > closed


@final
class CachedOrigins(OriginLeaves[_Batch]):
    """The records that a cache has received since it was empty, as far as they are kept.

    Batches are noted as a whole, at no cost per record. The last record of a row is searched only
    after an error. `row` returns the cache's name for a key.
    """

    def __init__(
        self, current: RecordContextHolder, row: Callable[[Any], Any], *, windowed: bool
    ) -> None:
        super().__init__(current)
        self._row: Callable[[Any], Any] = row
        self._windowed: bool = windowed
        self._gone: int = 0
        self._seen: Seen | None = None

    def came(
        self,
        batch: Batch,
        skipped: Collection[int] = (),
        late: Mapping[int, int | None] = NONE_LATE,
        *,
        whole: bool = False,
    ) -> None:
        """Note a batch."""
        # Values are not looked for, so they are freed while they are in the CPU's cache.
        keys = Batch(batch.keys, [], batch.timestamps, None, batch.offsets)
        self._begin(_Batch(keys, skipped, late, whole))
        self._seen = None
        # A single record that follows is later than these batches.
        self.page: OriginPage | None = None
        self.leaf: OriginLeaf = OriginLeaf(None, self._number)

    def seen(self) -> Seen:
        """Return the batches so far."""
        seen = self._seen
        if seen is None:
            batches = [(leaf, batch) for leaf, batch, _ in self._kept if batch is not None]
            seen = self._seen = Seen(
                batches, self._weight, self._gone, self._row, windowed=self._windowed
            )
        return seen

    def clear(self) -> None:
        """Forget all origins: the cache is empty."""
        self._kept.clear()
        self._weight = 0
        self._seen = self._last = self.page = None
        self.leaf = OriginLeaf(None, self._number)

    def _let_go(self, leaf: OriginLeaf, extra: _Batch) -> None:  # noqa: ARG002 - for subclasses
        self._gone, self._seen = leaf.number, None


@final
class Seen:
    """The batches that had come to a cache by some moment.

    Batches up to number `gone` are no longer kept.
    """

    __slots__ = ("_index", "_row", "_weight", "_windowed", "batches", "gone")

    def __init__(
        self,
        batches: Sequence[tuple[OriginLeaf, _Batch]],
        weight: int,
        gone: int,
        row: Callable[[Any], Any],
        *,
        windowed: bool,
    ) -> None:
        self.gone: int = gone
        self.batches: Sequence[tuple[OriginLeaf, _Batch]] = batches
        self._weight: int = weight
        self._row: Callable[[Any], Any] = row
        self._windowed: bool = windowed
        self._index: dict[Any, list[_Found]] | None = None

    def __len__(self) -> int:
        return self._weight

    def last(self, key: Any) -> Place | None:
        """Return the place of a row's last record; None if these batches lack the record.

        The page is empty when the record may be one of several.
        """
        index = self._index
        if index is None:
            index = self._index = self._indexed()
        found = index.get(self._row(key))
        if not found:
            return None
        if not self._windowed:
            return found[0].place
        window: Window = key[1]
        for record in reversed(found):
            if record.changed(window):
                return record.place
        return None

    def _indexed(self) -> dict[Any, list[_Found]]:
        index: dict[Any, list[_Found]] = {}
        row, windowed = self._row, self._windowed
        for leaf, (batch, skipped, late, whole) in self.batches:
            nowhere = OriginLeaf(None, leaf.number)
            for number, (key, timestamp, offset) in enumerate(
                zip(batch.keys, batch.timestamps, batch.offsets, strict=True)
            ):
                if key is None or number in skipped:
                    continue
                closed = late.get(number, -1)
                place = (nowhere if closed is None else leaf, offset)
                if not windowed:
                    index[row(key)] = [_new(_Found, (timestamp, None, -1, place))]
                elif whole:
                    index.setdefault(row(key), []).append(
                        _Found(key[1].start, key[1].end, -1, place)
                    )
                else:  # batches have plain keys only in caches whose names for rows are the keys
                    index.setdefault(key, []).append(
                        _new(_Found, (timestamp, None, -1 if closed is None else closed, place))
                    )
        return index


@final
class Flushed:
    """Rows that a cache sends in one batch, as a page that addresses rows by their places."""

    __slots__ = ("_keys", "_places", "_seen")

    lasting: bool = False

    def __init__(self, keys: Sequence[Any], places: Sequence[Place | None], seen: Seen) -> None:
        self._keys: Sequence[Any] = keys
        self._places: Sequence[Place | None] = places
        self._seen: Seen = seen

    def metadata(self, offset: int) -> RecordMetadata | None:
        """Return the source position of a row's last record."""
        page, offset = self.place(offset)
        return None if page is None else page.metadata(offset)

    def raw(self, offset: int) -> RawRecord | None:
        """Return the last record of a row as it was fetched."""
        page, offset = self.place(offset)
        return None if page is None else page.raw(offset)

    def logged(self, offset: int) -> bool:
        """Return whether the log has the last record of a row."""
        page, offset = self.place(offset)
        return page is None or page.logged(offset)

    def origin(self, offset: int) -> Place | None:
        """Return a lasting place of a row's last record."""
        place = self._found(offset)
        return None if place is None or place[0].page is None else place

    def bare(self) -> None:
        """Return None: the last record of a row is not known in advance."""

    def __len__(self) -> int:
        return len(self._keys) + len(self._seen)

    def place(self, number: int) -> tuple[OriginPage | None, int]:
        """Return the page of a row's last record (None if unknown), and its offset there."""
        place = self._found(number)
        return (None, -1) if place is None else (place[0].page, place[1])

    def _found(self, number: int) -> Place | None:
        own = self._places[number] if self._places else None
        place = self._seen.last(self._keys[number]) if self._seen.batches else None
        if own is not None and own[0].number > (
            self._seen.gone if place is None else place[0].number
        ):
            return own
        return place
