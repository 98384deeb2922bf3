"""`python -m ks_actors`, the same as `ks-actors`."""

from ks_actors.cli import main

if __name__ == "__main__":
    main()
