"""Build the kernel, ks_actors/kernel/src, where there is a C compiler; without it the package works as well, and is slower."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

SOURCES = Path("ks_actors/kernel/src")
WITHOUT = "KS_ACTORS_WITHOUT_KERNEL"
NEEDED = "KS_ACTORS_WITH_KERNEL"
WITHOUT_AHEAD = "KS_ACTORS_WITHOUT_AHEAD"


class KernelHook(BuildHookInterface[Any]):
    """Compile for the wheel; an editable installation gets the kernel beside its sources.

    The environment may say KS_ACTORS_WITHOUT_KERNEL=1 to leave it out, or KS_ACTORS_WITH_KERNEL=1 to fail when it cannot be built.
    KS_ACTORS_WITHOUT_AHEAD=1 leaves out the one part of it that reads Python's dicts by their layout in memory (`kernel/src/ahead.c`).
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and have what was built put into the wheel."""
        if os.environ.get(WITHOUT) == "1":
            return
        try:
            built = self._compile()
        except (BaseError, CCompilerError, OSError) as error:
            # An error of the compiler is none of setuptools' BaseErrors.
            if os.environ.get(NEEDED) == "1":
                raise
            self.app.display_warning(
                f"ks-actors is built without its kernel in C, and will be slower: {error}; install a C compiler and build again for full speed"
            )
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        if version == "editable":
            # Who has the old one loaded keeps it.
            beside = Path(self.root, "ks_actors", "kernel", f".{built.name}.{os.getpid()}")
            shutil.copy(built, beside)
            beside.replace(Path(self.root, "ks_actors", "kernel", built.name))
        else:
            build_data["force_include"][str(built)] = f"ks_actors/kernel/{built.name}"

    def _compile(self) -> Path:
        root = Path(self.root)
        kernel = Extension(
            "ks_actors.kernel._kernel",
            sorted(str(path.relative_to(root)) for path in (root / SOURCES).glob("*.c")),
            depends=sorted(str(path.relative_to(root)) for path in (root / SOURCES).glob("*.h")),
            extra_compile_args=[] if sys.platform == "win32" else ["-O3"],
            define_macros=[("KERNEL_WITHOUT_AHEAD", "1")] if os.environ.get(WITHOUT_AHEAD) == "1" else [],
        )
        command = build_ext(Distribution({"name": "ks-actors", "ext_modules": [kernel]}))
        # Several Pythons may build from one tree at the same time.
        place = root / "build" / f"{sys.implementation.cache_tag}-{os.getpid()}"
        command.build_temp, command.build_lib = str(place), str(place / "lib")
        before = Path.cwd()
        os.chdir(root)
        try:
            command.ensure_finalized()
            command.run()
        finally:
            os.chdir(before)
        return Path(command.get_ext_fullpath("ks_actors.kernel._kernel"))
