"""A store on disk that had no headers keeps them from now on: its rows are taken over, none with headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ks_actors import ValueTimestampHeaders
from ks_actors.serdes import STRING
from ks_actors.state import disk
from ks_actors.state.disk import _header_upgrade
from ks_actors.state.disk._rocksdb import RocksEngine
from ks_actors.topology import stores
from tests.ks_actors.state.test_with_headers import KINDS, Life, spec_of

ROWS = 25


def old_life(kind: str, tmp_path: Path, **options: Any) -> Life:
    """Return the life of a store without headers, with rows on disk."""
    spec = spec_of(kind, STRING, "rocksdb", headers=False, **options)
    life = Life(kind, spec, tmp_path)
    for number in range(ROWS):
        key, entry = f"k{number:02}", (f"v{number}", 100 + number)
        if kind == "key value":
            life.store.put_entry(key, entry)
        elif kind == "sessions":
            life.store.put_entry(key, 0, 5, entry)
        else:
            life.store.put_entry(key, 1 << 36, entry)
        life.now[key] = (*entry, ())
    life.commit()
    return life


def reopen_with_headers(life: Life, *, clean: bool = True) -> None:
    life.stores.close(clean=clean)
    life.spec = spec_of(life.kind, STRING, "rocksdb", logging=life.spec.logging)
    life.open()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_taken_over_without_headers(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The changelog is not read again, and new rows have headers beside the old ones."""
    monkeypatch.setattr(_header_upgrade, "SLICE", 10)
    life = old_life(kind, tmp_path)
    life.stores.close(clean=True)
    life.spec = spec_of(kind, STRING, "rocksdb")
    log, life.log = life.log, life.log[:]
    life.open()
    assert life.stores.next_offset("s") == len(log)
    life.check()
    life.put("k03", "new", 900, (("h", b"1"),))
    life.delete("k04", 901, ())
    life.check()
    life.commit()
    life.reopen(clean=True)
    life.check()
    life.reopen(clean=False)
    life.check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_without_changelog_is_taken_over(kind: str, tmp_path: Path) -> None:
    """Nothing else has its rows."""
    life = old_life(kind, tmp_path, logging=False)
    reopen_with_headers(life)
    life.check()
    life.put("k03", "new", 900, (("h", b"1"),))
    life.commit()
    life.reopen(clean=False)
    life.check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_in_the_middle_begins_again(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old rows are there until all new ones are; a return to the old form loses nothing either."""
    life = old_life(kind, tmp_path)
    life.stores.close(clean=True)
    old = life.spec
    monkeypatch.setattr(_header_upgrade, "SLICE", 10)
    write, calls = RocksEngine.write, 0

    def failing(engine: RocksEngine, *arguments: Any, **options: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError("the power is gone")
        write(engine, *arguments, **options)

    monkeypatch.setattr(RocksEngine, "write", failing)
    life.spec = spec_of(kind, STRING, "rocksdb")
    with pytest.raises(OSError, match="power"):
        life.open()
    monkeypatch.setattr(RocksEngine, "write", write)
    life.spec = old
    life.open()
    for key, (value, time, _) in life.now.items():
        place = {"key value": (), "sessions": (0, 5)}.get(kind, (1 << 36,))
        found = life.store.get_entry(key, *place)
        assert (found[0], kind == "sessions" or found[1] == time) == (value, True)
    reopen_with_headers(life)
    life.check()
    life.reopen(clean=True)
    life.check()


def test_a_store_without_timestamps_gets_the_unknown_one(tmp_path: Path) -> None:
    """It is -1, as in Kafka Streams: the value was never put with a time."""
    plain = stores.key_value("s", STRING, STRING, type="rocksdb")
    life = Life("key value", plain, tmp_path)
    life.store.put("a", "v")
    life.commit()
    reopen_with_headers(life)
    assert life.store.get("a") == ValueTimestampHeaders("v", -1, ())


def test_another_change_of_a_store_is_no_upgrade(tmp_path: Path) -> None:
    """Other changes restore the store from its changelog: segments of another length, or headers left out again."""
    life = old_life("windows", tmp_path)
    life.stores.close(clean=True)
    other = stores.window("s", STRING, STRING, retention_ms=1 << 41, window_size_ms=10, type="rocksdb", headers=True)
    life.spec, log, life.log = other, life.log, []
    life.open()
    assert life.stores.next_offset("s") is None
    life.stores.close(clean=True)
    life.log = log
    life.spec = spec_of("windows", STRING, "rocksdb", headers=False)
    life.open()
    assert life.store.get_entry("k03", 1 << 36) == ("v3", 103)


def test_each_kind_that_keeps_headers_has_an_upgrade() -> None:
    """From the kind without headers, and from that without timestamps."""
    assert {new for _, new in _header_upgrade.PREFIXES} == {
        "timestamped_key_value_with_headers",
        "timestamped_window_with_headers",
        "session_with_headers",
    }
    assert disk.upgrade is _header_upgrade.upgrade
