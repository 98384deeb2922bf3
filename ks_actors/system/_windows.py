"""Windows: apps with stores and logs in memory run there, for development and tests."""

from __future__ import annotations

import sys

from ks_actors._errors import ConfigError


def check_posix(feature: str) -> None:
    """Raise ConfigError on Windows, where the feature was never tried; it names the feature."""
    if sys.platform == "win32":
        raise ConfigError(
            f"{feature} needs Linux or macOS: run the app in WSL 2 or a container; on Windows "
            "itself use stores in memory (default_dsl_store='in_memory') and the log memory://"
        )
