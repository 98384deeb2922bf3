"""Fuzz the kernel beside its twins in Python: `make kernel-fuzz SECONDS=60 [SEED=7]`, or `python -m tests.fuzz`; see README.md."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

from tests.fuzz.build import ROOT, SANITIZED, NoSanitizer, build, environment


def fuzz(seconds: float, seed: int, sections: str, built: Path | None, directory: Path) -> int:
    """Run sessions in a process, with a kernel that was built for it or the one that is installed; return 0 when none failed."""
    at = directory / "session"
    print(f"seed {seed}, PYTHONHASHSEED {seed % (1 << 32)}", flush=True)  # noqa: T201 - a report for people
    # The hash of a key decides where its row is: it has to be the same one when a session is played again.
    started = {**(dict(os.environ) if built is None else environment(built)), "PYTHONHASHSEED": str(seed % (1 << 32))}
    command = [sys.executable, "-m", "tests.fuzz.run", str(seconds), str(seed), sections, str(at)]
    ended = subprocess.run(command, cwd=ROOT, env=started, check=False)  # noqa: S603 - its own interpreter
    if ended.returncode not in (0, 1):
        print(f"DIED of {ended.returncode} in session {at.read_text().strip() if at.exists() else 'none'}")  # noqa: T201 - a report for people
    if ended.returncode != 0:
        print(f"play a session again: python -m tests.fuzz --hash {seed % (1 << 32)} --replay SECTION:NUMBER")  # noqa: T201 - a report for people
    return ended.returncode


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long sessions are begun (default: 60)")
    parser.add_argument("--seed", type=int, help="the number of the first session (default: any)")
    parser.add_argument("--sections", default="", help="names of sections, with commas between them (default: all)")
    parser.add_argument("--replay", help="play one session, SECTION:NUMBER")
    parser.add_argument("--hash", type=int, default=0, help="PYTHONHASHSEED of the run that the session is of")
    parser.add_argument("--installed", action="store_true", help="take the kernel that is installed, which has no sanitizers and is faster")
    return parser.parse_args(arguments)


def replay(session: str, hash_seed: int, built: Path | None) -> int:
    section, number = session.split(":")
    code = f"import tests.fuzz.preload; from tests.fuzz.sections import play; play({section!r}, {int(number)})"
    started = {**(dict(os.environ) if built is None else environment(built)), "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=started, check=False).returncode  # noqa: S603 - as above


def main(arguments: Sequence[str]) -> int:
    """Return 0 when no session failed, 2 when the sanitizers are missing."""
    options = parse(arguments)
    seed = SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    with tempfile.TemporaryDirectory() as directory:
        try:
            built = None if options.installed else build(Path(directory), *SANITIZED)
        except NoSanitizer as error:
            print(error, file=sys.stderr)  # noqa: T201 - a report for people
            return 2
        if options.replay:
            return replay(options.replay, options.hash, built)
        return fuzz(options.seconds, seed, options.sections, built, Path(directory))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
