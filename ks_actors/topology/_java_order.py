"""Iteration orders of Java's collections, without which a description differs from Kafka's text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")

_SMALLEST_TABLE = 16
_LOAD_FACTOR = 0.75


def string_hash(text: str) -> int:
    """Return Java's String.hashCode, as an unsigned number of 32 bits."""
    code = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code


def hash_order(texts: Iterable[str]) -> list[str]:
    """Return the texts in the iteration order of a HashMap or HashSet, added one by one."""
    unique = list(dict.fromkeys(texts))
    size = _SMALLEST_TABLE
    while len(unique) > size * _LOAD_FACTOR:
        size *= 2
    return _by_bucket(unique, size)


def copied_order(texts: Iterable[str]) -> list[str]:
    """Return the texts in the iteration order of a HashSet that was made from a collection.

    Such a set has a larger table from the beginning.
    """
    unique = list(dict.fromkeys(texts))
    # Java allocates for `size / 0.75 + 1` entries when it copies a collection.
    size = _SMALLEST_TABLE
    while int(len(unique) / _LOAD_FACTOR) + 1 > size:
        size *= 2
    return _by_bucket(unique, size)


def _by_bucket(texts: list[str], size: int) -> list[str]:
    def bucket(text: str) -> int:
        code = string_hash(text)
        # HashMap mixes the high bits into the low ones.
        return (code ^ code >> 16) & size - 1

    return sorted(texts, key=bucket)


class _Entry(Generic[T]):
    __slots__ = ("item", "left", "parent", "red", "right")

    def __init__(self, item: T, parent: _Entry[T] | None) -> None:
        self.item: T = item
        self.parent: _Entry[T] | None = parent
        self.left: _Entry[T] | None = None
        self.right: _Entry[T] | None = None
        self.red: bool = parent is not None


class TreeSet(Generic[T]):
    """Java's TreeSet, with its tree.

    Items whose order changes after their addition stay in place, and mislead later items. Items are
    never equal, so `before` (does the first precede the second?) decides.
    """

    def __init__(self, before: Callable[[T, T], bool]) -> None:
        self._before: Callable[[T, T], bool] = before
        self._root: _Entry[T] | None = None

    def add(self, item: T) -> None:
        """Put an item at its place by the present order of the others."""
        parent = self._root
        if parent is None:
            self._root = _Entry(item, None)
            return
        while True:
            left = self._before(item, parent.item)
            below = parent.left if left else parent.right
            if below is None:
                break
            parent = below
        entry = _Entry(item, parent)
        if left:
            parent.left = entry
        else:
            parent.right = entry
        self._balance(entry)

    def __iter__(self) -> Iterator[T]:
        stack: list[_Entry[T]] = []
        entry = self._root
        while stack or entry is not None:
            while entry is not None:
                stack.append(entry)
                entry = entry.left
            entry = stack.pop()
            yield entry.item
            entry = entry.right

    def _balance(self, entry: _Entry[T]) -> None:
        while (parent := entry.parent) is not None and parent.red:
            above = cast("_Entry[T]", parent.parent)  # a root is never red
            left = parent is above.left
            uncle = above.right if left else above.left
            # A red uncle: recolor, and continue above.
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                above.red = True
                entry = above
                continue
            # Turn an inner child into an outer one, for the rotation below.
            if entry is (parent.right if left else parent.left):
                self._rotate(parent, left=left)
                entry, parent = parent, entry
            parent.red = False
            above.red = True
            self._rotate(above, left=not left)
        cast("_Entry[T]", self._root).red = False

    def _rotate(self, entry: _Entry[T], *, left: bool) -> None:
        """Move an entry down to the left (or right) and its other child up."""
        child = cast("_Entry[T]", entry.right if left else entry.left)
        inner = child.left if left else child.right
        if left:
            entry.right, child.left = inner, entry
        else:
            entry.left, child.right = inner, entry
        if inner is not None:
            inner.parent = entry
        above = entry.parent
        child.parent = above
        entry.parent = child
        if above is None:
            self._root = child
        elif above.left is entry:
            above.left = child
        else:
            above.right = child
