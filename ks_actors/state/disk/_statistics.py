"""RocksDB's statistics by Kafka Streams' names (KIP-471, KIP-607)."""

from __future__ import annotations

from typing import Any, Final

PROPERTIES: Final = (
    "num-immutable-mem-table",
    "cur-size-active-mem-table",
    "cur-size-all-mem-tables",
    "size-all-mem-tables",
    "num-entries-active-mem-table",
    "num-entries-imm-mem-tables",
    "num-deletes-active-mem-table",
    "num-deletes-imm-mem-tables",
    "mem-table-flush-pending",
    "num-running-flushes",
    "compaction-pending",
    "num-running-compactions",
    "estimate-pending-compaction-bytes",
    "total-sst-files-size",
    "live-sst-files-size",
    "num-live-versions",
    "block-cache-capacity",
    "block-cache-usage",
    "block-cache-pinned-usage",
    "estimate-num-keys",
    "estimate-table-readers-mem",
    "background-errors",
)
"""Properties of every database; RocksDB's names have the prefix `rocksdb.`."""

TOTALS: Final = {
    "bytes-written-total": "bytes.written",
    "bytes-read-total": "bytes.read",
    "memtable-bytes-flushed-total": "flush.write.bytes",
    "bytes-written-compaction-total": "compact.write.bytes",
    "bytes-read-compaction-total": "compact.read.bytes",
    "number-file-errors-total": "no.file.errors",
}
RATIOS: Final = {
    "memtable-hit-ratio": "memtable",
    "block-cache-data-hit-ratio": "block.cache.data",
    "block-cache-index-hit-ratio": "block.cache.index",
    "block-cache-filter-hit-ratio": "block.cache.filter",
}
TIMES: Final = {
    "memtable-flush-time": "db.flush.micros",
    "compaction-time": "compaction.times.micros",
}


def gauges(data: Any) -> dict[str, float]:
    """Return the current properties of a database."""
    return {name: float(data.property_int_value(f"rocksdb.{name}") or 0) for name in PROPERTIES}


def counted(text: str) -> dict[str, float]:
    """Return a database's counters since its opening, from its statistics text.

    Times are in ms; a ratio without lookups is 0.
    """
    lines = {
        name.removeprefix("rocksdb."): values
        for name, _, values in (line.partition(" ") for line in text.splitlines())
    }

    def number(name: str, what: str = "COUNT") -> float:
        words = lines.get(name, "").split()
        return float(words[words.index(what) + 2]) if what in words else 0.0

    figures = {name: number(ticker) for name, ticker in TOTALS.items()}
    for name, ticker in RATIOS.items():
        hits, misses = number(f"{ticker}.hit"), number(f"{ticker}.miss")
        figures[name] = hits / (hits + misses) if hits else 0.0
    for name, histogram in TIMES.items():
        count = number(histogram)
        figures[f"{name}-avg"] = number(histogram, "SUM") / count / 1000 if count else 0.0
        figures[f"{name}-max"] = number(histogram, "P100") / 1000
    stalls = number("db.write.stall")
    figures["write-stall-duration-total"] = number("stall.micros") / 1000
    figures["write-stall-duration-avg"] = (
        figures["write-stall-duration-total"] / stalls if stalls else 0.0
    )
    figures["number-open-files"] = number("no.file.opens") - number("no.file.closes")
    return figures
