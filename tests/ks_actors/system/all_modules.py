"""Import each module of both packages; print their number."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import actors
import ks_actors

if __name__ == "__main__":
    names = [each.name for package in (actors, ks_actors) for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    found = [name for name in names if not name.endswith(("__main__", "._kernel"))]
    for name in found:
        importlib.import_module(name)
    sys.stdout.write(f"{len(found)}\n")
