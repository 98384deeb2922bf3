"""Imports on demand: most programs need a third of the package, and its import takes a while."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence


@final
class Later:
    """A module that is imported on the first use of one of its names.

    For type checkers, import the module itself: `if TYPE_CHECKING: … else: m = Later("…")`.
    """

    __slots__ = ("_loaded", "_module")

    def __init__(self, module: str) -> None:
        self._module = module
        self._loaded: object = None

    def __getattr__(self, name: str) -> Any:
        # `import_module` takes a µs even for a module that is loaded.
        if self._loaded is None:
            self._loaded = import_module(self._module)
        return getattr(self._loaded, name)


def is_loaded(module: object) -> bool:
    """Return whether a module has been imported: if not, nothing is an instance of its classes."""
    return not isinstance(module, Later) or module._module in sys.modules


def taken_from(
    package: str,
    modules: Sequence[str],
    *,
    others: Collection[str] = (),
    unknown: Callable[[str, str], Any] | None = None,
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that has the names of its modules on demand.

    A name of `__all__`, or one of the `others`, is taken from the first module that has it, so
    order them by the time that their imports take. The name of a module is that module. `unknown`
    raises the error about any other name of the package.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807 - the package's
        if name in modules:
            return import_module(f"{package}.{name}")
        face = sys.modules[package]
        for module in modules if name in face.__all__ or name in others else ():
            value = getattr(import_module(f"{package}.{module}"), name, None)
            if value is not None:
                setattr(face, name, value)
                return value
        if unknown is not None:
            return unknown(package, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=face)

    return __getattr__
