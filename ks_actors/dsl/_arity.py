"""How many arguments a user's function wants."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ks_actors._errors import TopologyError

if TYPE_CHECKING:
    from collections.abc import Callable

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def arity(function: Callable[..., Any], *allowed: int) -> int:
    """Tell which of the `allowed` numbers of positional arguments a function is to be called with; the numbers ascend.

    A function with fitting required parameters takes as many as it requires; optional ones are left alone. One with `*args`, and a builtin
    without a signature, gets the fewest that it can take. A function that fits none of them is a TopologyError.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return allowed[0]
    required = sum(p.kind in _POSITIONAL and p.default is p.empty for p in parameters)
    most = sum(p.kind in _POSITIONAL for p in parameters)
    endless = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if not by_name:
        for count in allowed:
            if required <= count and (endless or count <= most):
                return count
    raise TopologyError(
        f"{function!r} cannot be called with {' or '.join(map(str, allowed))} positional arguments: "
        f"it requires {required}{f' and {by_name} by keyword' if by_name else ''}; give a function with that many parameters"
    )
