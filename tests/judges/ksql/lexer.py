"""Words of ksql's expressions."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.judges.ksql.reasons import LeftOut

WORD = re.compile(
    r"""\s*(?:(?P<number>(?:\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+)(?![A-Za-z_0-9]))|(?P<string>'(?:[^']|'')*')|(?P<quoted>`[^`]+`)"""
    r"""|(?P<name>[A-Za-z_0-9]+)|(?P<sign>->|=>|:=|<=|>=|<>|!=|\|\||[-+*/%=<>(),\[\].]))"""
)


class Word(NamedTuple):
    kind: str
    text: str


END = Word("end", "")


class Words:
    """The words of one expression, read from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._words = words(text)
        self._at = 0

    @property
    def next(self) -> Word:
        return self._words[self._at]

    def ahead(self, count: int) -> Word:
        at = self._at + count
        return self._words[at] if at < len(self._words) else END

    def is_next(self, *texts: str) -> bool:
        return _is(self.next, texts)

    def take(self, *texts: str) -> bool:
        """Read the next word if it is one of these."""
        if self.is_next(*texts):
            self._at += 1
            return True
        return False

    def demand(self, text: str) -> None:
        if not self.take(text):
            raise LeftOut(f"expression: {text} expected in {self.text[:60]}")

    def read(self) -> Word:
        word = self.next
        self._at += 1
        return word


def words(text: str) -> list[Word]:
    found: list[Word] = []
    at = 0
    while text[at:].strip():
        match = WORD.match(text, at)
        if match is None or match.lastgroup is None:
            raise LeftOut(f"expression: cannot read {text[at : at + 20]!r}")
        word = match.group(match.lastgroup)
        found.append(Word(match.lastgroup, word[1:-1] if match.lastgroup == "quoted" else word))
        at = match.end()
    return [*found, END]


def _is(word: Word, texts: tuple[str, ...]) -> bool:
    return (word.kind == "sign" and word.text in texts) or (word.kind == "name" and word.text.upper() in texts)
