"""`python -m ks_actors.cli`, the same as `ks-actors`."""

from __future__ import annotations

from ks_actors.cli import main

if __name__ == "__main__":
    main()
