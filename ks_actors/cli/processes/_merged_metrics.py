"""The metrics of several processes as one exposition."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def merged(expositions: Iterable[bytes]) -> bytes:
    """Return one exposition in Prometheus' text format, each family once, with all its samples.

    Each exposition has the families one after the other, each with its head (`# HELP`, `# TYPE`);
    the samples differ by a label of their process.
    """
    heads: dict[bytes, bytes] = {}
    samples: dict[bytes, list[bytes]] = {}
    for text in expositions:
        for block in text.split(b"# HELP ")[1:]:
            name = block.partition(b" ")[0]
            help_line, _, rest = block.partition(b"\n")
            type_line, _, values = rest.partition(b"\n")
            heads.setdefault(name, b"# HELP " + help_line + b"\n" + type_line + b"\n")
            samples.setdefault(name, []).append(values)
    return b"".join(head + b"".join(samples[name]) for name, head in heads.items())
