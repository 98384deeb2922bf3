"""The place in a user's code to which a stack leads."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

_OURS: Final = frozenset({"actors", "ks_actors"})
_LOOP: Final = frozenset({"_run", "_run_once", "run", "run_forever", "run_until_complete"})


def place_in(frame: FrameType | None) -> str:
    """Return the innermost frame of the user's code as "function (file:line)", or "" for none.

    Frames of this package and of the standard library are left out. Frames below the event loop are
    left out, too, because the caller of `asyncio.run` has nothing to do with the current step. The
    code of a module that is being imported is left out: the place is the code that imports the
    module.
    """
    place = ""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        top, _, rest = module.partition(".")
        if top == "asyncio" and rest and frame.f_code.co_name in _LOOP:
            break
        if top == "importlib":
            place = ""
        elif not place and top not in _OURS and top not in sys.stdlib_module_names:
            code = frame.f_code
            place = f"{code.co_qualname} ({code.co_filename}:{frame.f_lineno})"
        frame = frame.f_back
    return place
