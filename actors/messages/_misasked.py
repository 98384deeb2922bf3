"""The error of an ask whose request cannot be constructed."""

from __future__ import annotations

import inspect


def explained(error: TypeError, path: str, request: object) -> TypeError:
    """Return an error that names the request's class and fields, for an ask of `path`."""
    if not callable(request):
        name = type(request).__qualname__
        fields = _fields(type(request))
        call = ", ".join((name, *fields[1:]))
        return TypeError(
            f"ask of {path} takes the class of the request, not an object of {name}"
            f"({', '.join(fields)}); write ask({call}), as ask adds the reply itself"
        )
    name = getattr(request, "__qualname__", repr(request))
    return TypeError(
        f"ask of {path} could not make a request: {error}; {name} takes "
        f"({', '.join(_fields(request))}), of which ask itself adds the first, the Reply, and the "
        "others are the further arguments of ask"
    )


def _fields(request: object) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(request).parameters)  # type: ignore[arg-type]  # is callable
    except (TypeError, ValueError):
        return ("...",)  # no signature, as for some types in C
