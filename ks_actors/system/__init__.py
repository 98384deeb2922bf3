"""The platform: file locks, open files, supported versions."""

from ks_actors.system._file_locks import close_locked, open_locked
from ks_actors.system._open_files import raise_open_files

__all__ = [
    "close_locked",
    "open_locked",
    "raise_open_files",
]
