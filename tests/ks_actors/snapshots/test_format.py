"""Files of snapshots: the written rows come back, and anything else is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import SnapshotRefused
from ks_actors.snapshots import Place, Shape, SnapshotReader, SnapshotWriter, StoreWriter, delete_old_snapshots, find_snapshots
from tests.examples_of import examples
from tests.ks_actors.snapshots.helpers import COUNTS, WINDOWS, batch_of, in_memory, window_key, write

ROWS = [(b"a", b"\0\1", 5), (b"b", b"", -1), (b"bb", b"x" * 40, 1 << 40)]


def read(place: Place | str, store: str = "counts") -> list[tuple[bytes, bytes, int]]:
    return [
        row
        for batch in SnapshotReader.open(place, application_id="app").batches("0_0", store)
        for row in zip(batch.keys, batch.values, batch.timestamps, strict=True)
    ]


@pytest.mark.parametrize("deflate", [True, False])
@pytest.mark.parametrize("where", ["memory", "file"])
def test_written_records_are_read(where: str, tmp_path: Path, *, deflate: bool) -> None:
    """Rows, order and manifest come back, from memory and from a directory."""
    uri = in_memory() if where == "memory" else f"file://{tmp_path}"
    manifest = write(uri, ROWS, deflate=deflate)
    (found,), refused = find_snapshots(uri, "app")
    assert found.manifest == manifest
    assert not refused
    assert read(found.place) == ROWS
    assert found.verify() == 3
    assert manifest.tasks["0_0"].stores["counts"].next_offset == 7


@settings(max_examples=examples(60))
@given(rows=st.dictionaries(st.binary(max_size=20), st.tuples(st.binary(max_size=50), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=60))
def test_any_rows_come_back(rows: dict[bytes, tuple[bytes, int]]) -> None:
    """Any keys, values and times, also none, in several files."""
    writer = SnapshotWriter(in_memory(), "app", created_ms=1)
    store = StoreWriter(writer.place, "0_0", COUNTS, file_bytes=100)
    expected = [(key, *rows[key]) for key in sorted(rows)]
    for start in range(0, len(expected), 7):
        store.write(batch_of(expected[start : start + 7]))
    writer.add("0_0", store.close())
    writer.commit()
    assert read(writer.place) == expected


@settings(max_examples=examples(40))
@given(rows=st.dictionaries(st.tuples(st.binary(max_size=6), st.integers(0, 2_000_000), st.integers(0, 3)), st.binary(max_size=5), min_size=1))
def test_rows_of_window_stores_are_in_the_order_of_their_segments(rows: dict[tuple[bytes, int, int], bytes]) -> None:
    """By segment, then by key; any other order is an error of the writer."""
    found = [(window_key(*slot), value, slot[1]) for slot, value in rows.items()]
    ordered = [row for _, row in sorted(zip(WINDOWS.places([key for key, _, _ in found]), found, strict=True))]
    uri = in_memory()
    write(uri, ordered, shape=WINDOWS)
    assert read(find_snapshots(uri, "app")[0][0].place, "windows") == ordered
    if len(ordered) > 1:
        with pytest.raises(ValueError, match="in the order of"):
            write(in_memory(), ordered[::-1], shape=WINDOWS)


@pytest.mark.parametrize("deflate", [True, False])
def test_every_flipped_byte_is_refused(*, deflate: bool) -> None:
    """With any changed byte in the files or the manifest, and any cut or addition, the snapshot is refused."""
    uri = in_memory()
    write(uri, ROWS, deflate=deflate)
    place = find_snapshots(uri, "app")[0][0].place
    tried = 0
    for path in ("manifest.json", "0_0/counts-00000.rows"):
        file = place.at(*path.split("/"))
        good = file.read()
        assert good is not None
        for index in range(len(good)):
            for flipped in (good[index] ^ 1, good[index] ^ 0x20, good[index] ^ 0x80):
                file.write(good[:index] + bytes((flipped,)) + good[index + 1 :])
                with pytest.raises(SnapshotRefused):
                    SnapshotReader.open(place).verify()
                tried += 1
            file.write(good[:index])
            with pytest.raises(SnapshotRefused):
                SnapshotReader.open(place).verify()
        file.write(good + b"\0")
        with pytest.raises(SnapshotRefused):
            SnapshotReader.open(place).verify()
        file.write(good)
    assert tried > 1_000
    assert SnapshotReader.open(place).verify() == 3


def test_half_finished_or_foreign_snapshots_are_refused() -> None:
    """Without a manifest it is no snapshot; nor is that of another application, under another name, or with a file missing."""
    uri = in_memory()
    writer = SnapshotWriter(uri, "app", created_ms=1)
    store = writer.store("0_0", COUNTS)
    store.write(batch_of(ROWS))
    with pytest.raises(SnapshotRefused, match="has no manifest"):
        SnapshotReader.open(writer.place)
    assert find_snapshots(uri, "app") == ([], [])
    writer.add("0_0", store.close())
    writer.commit()
    with pytest.raises(SnapshotRefused, match="of application app, not of other"):
        SnapshotReader.open(writer.place, application_id="other")
    moved = Place.of(uri).at("app", "0-other")
    content = writer.place.at("manifest.json").read()
    assert content is not None
    moved.at("manifest.json").write(content)
    with pytest.raises(SnapshotRefused, match="has the manifest of snapshot"):
        SnapshotReader.open(moved)
    assert [str(error) for error in find_snapshots(uri, "app")[1]] != []
    writer.place.at("0_0", "counts-00000.rows").delete()
    with pytest.raises(SnapshotRefused, match="is missing"):
        SnapshotReader.open(writer.place).verify()


def test_one_file_is_not_taken_for_another() -> None:
    """A file that is whole, and another one than the manifest tells of, is refused."""
    uri = in_memory()
    write(uri, ROWS)
    write(uri, [(b"a", b"\0\2", 5), *ROWS[1:]], created_ms=2_000)
    newer, older = find_snapshots(uri, "app")[0]
    content = older.place.at("0_0", "counts-00000.rows").read()
    assert content is not None
    newer.place.at("0_0", "counts-00000.rows").write(content)
    with pytest.raises(SnapshotRefused, match="not the file that the manifest describes"):
        newer.verify()
    assert older.verify() == 3


@pytest.mark.parametrize(
    ("rows", "shape", "said"),
    [
        ([(b"b", b"", 0), (b"a", b"", 0)], COUNTS, "in the order of"),
        ([(b"a", b"", 0), (b"a", b"", 0)], COUNTS, "in the order of"),
        ([(b"short", b"", 0)], WINDOWS, "ends with two numbers"),
        ([(b"a", b"", 1 << 63)], COUNTS, "a time in ms"),
    ],
)
def test_rows_that_are_none_are_not_written(rows: list[tuple[bytes, bytes, int]], shape: Shape, said: str) -> None:
    """A key twice, keys out of order, a window without its start, a time that is none: the writer refuses."""
    with pytest.raises(ValueError, match=said):
        write(in_memory(), rows, shape=shape)


def test_a_writer_that_fails_leaves_nothing() -> None:
    """When the block is left by an error, the written files are deleted."""
    uri = in_memory()
    with pytest.raises(RuntimeError, match="no more"), SnapshotWriter(uri, "app", created_ms=1) as writer:
        writer.store("0_0", COUNTS).write(batch_of(ROWS))
        raise RuntimeError("no more")
    assert Place.of(uri).at("app").names() == []


def test_old_snapshots_are_deleted_when_each_task_has_newer_ones() -> None:
    """Those of other instances' tasks stay; one that never got a manifest goes after a day."""
    uri = in_memory()

    def put(created_ms: int, *tasks: str) -> str:
        writer = SnapshotWriter(uri, "app", created_ms=created_ms)
        for task in tasks:
            writer.add(task)
        writer.commit()
        return writer.name

    oldest, other, *_ = [put(1, "0_0"), put(2, "0_0", "0_1"), put(3, "0_0"), put(4, "0_0")]
    begun = SnapshotWriter(uri, "app", created_ms=5)
    begun.store("0_0", COUNTS).write(batch_of(ROWS))
    assert delete_old_snapshots(uri, "app", keep=2, now_ms=1_000) == [oldest]
    assert other in Place.of(uri).at("app").names()
    assert delete_old_snapshots(uri, "app", keep=2, now_ms=100_000_000) == [begun.name]
    assert len(find_snapshots(uri, "app")[0]) == 3
