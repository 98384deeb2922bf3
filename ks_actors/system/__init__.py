"""The platform: file locks, forks, open files, Windows."""

from ks_actors.system._early_signals import end_early, heed_signals
from ks_actors.system._file_locks import close_locked, open_locked
from ks_actors.system._forks import check_fork
from ks_actors.system._member import (
    MEMBER,
    SUPERVISOR,
    MemberProcess,
    become_supervisor,
    current_member,
    lock_of,
    socket_of,
)
from ks_actors.system._on_demand import Later, is_loaded, taken_from
from ks_actors.system._open_files import raise_open_files
from ks_actors.system._version import VERSION
from ks_actors.system._windows import check_posix

__all__ = [
    "MEMBER",
    "SUPERVISOR",
    "VERSION",
    "Later",
    "MemberProcess",
    "become_supervisor",
    "check_fork",
    "check_posix",
    "close_locked",
    "current_member",
    "end_early",
    "heed_signals",
    "is_loaded",
    "lock_of",
    "open_locked",
    "raise_open_files",
    "socket_of",
    "taken_from",
]
