"""Serdes for whole columns: what they do to one object, done to a list of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ks_actors.kernel import kernel as _kernel

if TYPE_CHECKING:
    from collections.abc import Callable

_FORMS: Final[list[tuple[Callable[[Any], Any], Callable[[list[Any]], list[Any]]]]] = []


def has_form(convert: Callable[[Any], Any], name: str) -> None:
    """Note that the kernel's function `name` does to a column what `convert` does to an object."""
    if _kernel is not None:
        _FORMS.append((convert, getattr(_kernel, name)))


def for_column(convert: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    """Return the function that does to a list what `convert` does to each object of it; None stays None.

    When it raises, whatever it raises, somebody who has to know which object is to blame converts
    them one by one: what the error says may differ.
    """
    for known, form in _FORMS:
        if known is convert:
            return form
    return partial(_one_by_one, convert) if _kernel is None else partial(_kernel.convert, convert)


def _one_by_one(convert: Callable[[Any], Any], column: list[Any]) -> list[Any]:
    return [None if each is None else convert(each) for each in column]
