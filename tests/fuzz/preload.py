"""Take the kernel from the file that KS_ACTORS_TESTED_KERNEL names, in the place of the one that is installed; to be imported before anything else.

pytest takes it as a plugin: `-p tests.fuzz.preload`.
"""

from __future__ import annotations

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location

NAME = "ks_actors.kernel._kernel"
VARIABLE = "KS_ACTORS_TESTED_KERNEL"


def load(path: str) -> None:
    """Load it, unless there is one already: then it is too late."""
    if NAME in sys.modules:
        raise ImportError(f"{path} is not loaded: {NAME} is there already, from {sys.modules[NAME].__file__}")
    spec = spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    kernel = module_from_spec(spec)
    spec.loader.exec_module(kernel)
    sys.modules[NAME] = kernel


if path := os.environ.get(VARIABLE):
    load(path)
