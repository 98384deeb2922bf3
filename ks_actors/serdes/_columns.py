"""Conversions for whole columns: the conversion of one object, applied to a list."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel

if TYPE_CHECKING:
    from collections.abc import Callable

_FORMS: Final[list[tuple[Callable[[Any], Any], Callable[[list[Any]], list[Any]]]]] = []

_OWN: Final = "_ks_actors_column_form"


def has_form(convert: Callable[[Any], Any], name: str) -> None:
    """Register the kernel's function `name` as the column form of `convert`."""
    if HAS_KERNEL:
        _FORMS.append((convert, getattr(_kernel, name)))


def has_column(convert: Callable[[Any], Any], form: Callable[[list[Any]], list[Any]]) -> None:
    """Attach the column form of a function that one serde has made for itself."""
    setattr(convert, _OWN, form)


def for_column(convert: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    """Return the function that applies `convert` to each object of a list; None stays None.

    If it raises, a caller that must know the failed object converts the objects one by one; the
    error text may then differ.
    """
    for known, form in _FORMS:
        if known is convert:
            return form
    own: Callable[[list[Any]], list[Any]] | None = getattr(convert, _OWN, None)
    return own or partial(_kernel.convert if HAS_KERNEL else _one_by_one, convert)


def _one_by_one(convert: Callable[[Any], Any], column: list[Any]) -> list[Any]:
    return [None if each is None else convert(each) for each in column]
