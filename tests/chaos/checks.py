"""The rules that the output and the changelog must keep after any fault."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

EXACTLY_ONCE = "exactly_once_v2"
AT_LEAST_ONCE = "at_least_once"
GUARANTEES = (EXACTLY_ONCE, AT_LEAST_ONCE)
_KINDS = ("lost", "duplicated", "reordered", "phantom", "gaps", "wrong_source")
_PLAIN, _TIMESTAMPED = 8, 16


class Update(NamedTuple):
    """A record of the output: `total` is None when the value is no int64, `source` the number of the input record that made it, if it says so."""

    partition: int
    key: bytes
    total: int | None
    source: int | None


class Verdict(NamedTuple):
    """`figures` for the report, `violations` in words, and the final count of each key."""

    figures: dict[str, Any]
    violations: list[str]
    finals: dict[bytes, int]


class Entry(NamedTuple):
    """A record of the changelog."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None


def count_of(value: bytes | None) -> int | None:
    """Return the int64 that a value is; None for anything else."""
    return int.from_bytes(value, "big", signed=True) if value is not None and len(value) == _PLAIN else None


class _Key:
    """The updates of one key, in the order of the output, against the input records of the key."""

    def __init__(self, inputs: Sequence[int], counts: Sequence[int], sources: Sequence[int | None]) -> None:
        self.inputs = inputs
        self.counts = counts
        self.sources = sources
        self.seen: set[int] = set()
        self.repeated = self.reordered = self.phantom = 0
        self.example_repeated = self.example_reordered = ""
        high = 0
        for place, count in enumerate(counts):
            if count in self.seen:
                self.repeated += 1
                self.example_repeated = self.example_repeated or f"value {count} again at position {place}, after {counts[place - 1]}"
            elif count < high:
                self.reordered += 1
                self.example_reordered = self.example_reordered or f"value {count} at position {place}, after {high}"
            self.phantom += not 1 <= count <= len(inputs)
            self.seen.add(count)
            high = max(high, count)
        self.missing = [count for count in range(1, len(inputs) + 1) if count not in self.seen]

    @property
    def final(self) -> int:
        return max(self.seen, default=0)

    @property
    def twice(self) -> int:
        return self.repeated + sum(count > len(self.inputs) for count in self.seen)

    @property
    def wrong_sources(self) -> int:
        """The number of updates made by another input record than their count says."""
        expected = zip(self.counts, self.sources, strict=True)
        return sum(not 1 <= count <= len(self.inputs) or self.inputs[count - 1] != source for count, source in expected)


class _Findings:
    def __init__(self) -> None:
        self.figures: Counter[str] = Counter(dict.fromkeys(_KINDS, 0))
        self.examples: dict[str, str] = {}

    def note(self, kind: str, count: int, key: bytes, example: str) -> None:
        if count:
            self.figures[kind] += count
            self.examples.setdefault(kind, f"key {key.decode(errors='replace')}: {example}")


def check_output(inputs: Mapping[bytes, Sequence[int]], updates: Sequence[Update], guarantee: str) -> Verdict:
    """Compare the output with the input: `inputs` has the numbers of each key's records, in order; `updates` are in order per partition.

    Exactly once: the counts of a key with n records are 1..n, each once and in order, and the i-th was made by the i-th record. At least once: each
    input record has an update; what is there more than once is counted, and no violation, nor are gaps.
    """
    counts: dict[bytes, list[int]] = defaultdict(list)
    sources: dict[bytes, list[int | None]] = defaultdict(list)
    places: dict[bytes, set[int]] = defaultdict(set)
    for update in updates:
        if update.total is not None:
            counts[update.key].append(update.total)
            sources[update.key].append(update.source)
            places[update.key].add(update.partition)
    told = bool(counts) and all(source is not None for found in sources.values() for source in found)
    findings, finals, over = _Findings(), dict[bytes, int](), 0
    for name in sorted(counts.keys() | inputs.keys()):
        key = _Key(inputs.get(name, ()), counts.get(name, ()), sources.get(name, ()))
        finals[name] = key.final
        over += max(0, key.final - len(key.inputs))
        (_note_exactly_once if guarantee == EXACTLY_ONCE else _note_at_least_once)(findings, name, key, told=told)
    bad = sum(update.total is None for update in updates)
    spread = sum(len(found) > 1 for found in places.values())
    fatal = ("lost", "duplicated", "reordered", "phantom", "wrong_source") if guarantee == EXACTLY_ONCE else ("lost",)
    violations = [f"{kind} {findings.figures[kind]}; e.g. {findings.examples[kind]}" for kind in fatal if findings.figures[kind]]
    if bad:
        violations.append(f"bad_value {bad}: no int64")
    if spread:
        violations.append(f"{spread} keys in more than one partition of the output")
    figures: dict[str, Any] = {**findings.figures, "bad_value": bad, "keys_in_several_partitions": spread, "header_ids": told}
    figures["output_records"] = len(updates)
    if guarantee != EXACTLY_ONCE:
        figures["overcount"] = over
    if findings.figures["gaps"]:
        figures["first_gap"] = findings.examples["gaps"]
    return Verdict(figures, violations, finals)


def _note_exactly_once(findings: _Findings, name: bytes, key: _Key, *, told: bool) -> None:
    n = len(key.inputs)
    findings.note("reordered", key.reordered, name, key.example_reordered)
    findings.note("lost", len(key.missing), name, f"n={n}, {len(key.missing)} values missing, first {key.missing[:1]}; last value {key.counts[-1:]}")
    findings.note("duplicated", key.twice, name, key.example_repeated or f"n={n} but last value {key.final}")
    findings.note("phantom", key.phantom, name, f"n={n} but value {key.final}")
    if told:
        findings.note("wrong_source", key.wrong_sources, name, "an update made from another input record than its count says")


def _note_at_least_once(findings: _Findings, name: bytes, key: _Key, *, told: bool) -> None:
    n = len(key.inputs)
    findings.figures["duplicated"] += max(0, len(key.counts) - n)
    findings.note("reordered", key.reordered, name, key.example_reordered)
    findings.note("gaps", len(key.missing), name, f"n={n}, {len(key.missing)} values never written, first {key.missing[:1]}")
    gone = len(set(key.inputs) - set(key.sources)) if told else 0
    shown = str(gone) if told else "unknown"
    findings.note("lost", max(gone, n - key.final), name, f"n={n}, final {key.final}, input records without an update: {shown}")


def check_changelog(entries: Sequence[Entry], finals: Mapping[bytes, int], guarantee: str) -> tuple[dict[str, int], list[str]]:
    """Compare the last value of each key with its final count; exactly once, values have to rise."""
    last: dict[bytes, int | None] = {}
    falling = bad = 0
    for entry in sorted(entries, key=lambda entry: (entry.partition, entry.offset)):
        if entry.value is not None and len(entry.value) not in (_PLAIN, _TIMESTAMPED):
            bad += 1
            continue
        # In the longer form the timestamp comes first.
        count = count_of(None if entry.value is None else entry.value[-_PLAIN:])
        before = last.get(entry.key)
        falling += guarantee == EXACTLY_ONCE and count is not None and before is not None and count <= before
        last[entry.key] = count
    wrong = [(key, last.get(key), finals.get(key)) for key in sorted(finals.keys() | last.keys()) if (last.get(key) or 0) != finals.get(key, 0)]
    violations: list[str] = []
    if bad:
        violations.append(f"changelog: {bad} values of odd length")
    if falling:
        violations.append(f"changelog: {falling} values not above the one before")
    if wrong:
        key, changelog, output = wrong[0]
        violations.append(
            f"changelog: {len(wrong)} keys whose last value is not the final count; e.g. {key!r}: changelog {changelog}, output {output}"
        )
    return {"records": len(entries), "mismatched": len(wrong), "not_increasing": falling, "bad": bad}, violations
