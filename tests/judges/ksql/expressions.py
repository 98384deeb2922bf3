"""ksql's expressions as functions of rows."""

from __future__ import annotations

import operator
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tests.judges.ksql import times, values
from tests.judges.ksql.functions import FUNCTIONS
from tests.judges.ksql.lexer import Words
from tests.judges.ksql.reasons import LeftOut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Evaluate = Callable[[Mapping[str, Any]], Any]

COMPARISONS: Final[tuple[tuple[str, Callable[[Any, Any], Any]], ...]] = (
    ("=", values.compared(operator.eq)),
    ("<>", values.compared(operator.ne)),
    ("!=", values.compared(operator.ne)),
    ("<=", values.compared(operator.le)),
    (">=", values.compared(operator.ge)),
    ("<", values.compared(operator.lt)),
    (">", values.compared(operator.gt)),
)
SUMS: Final = (
    ("+", values.calculated(values.add)),
    ("-", values.calculated(values.subtract)),
    ("||", values.calculated(values.add)),
)
PRODUCTS: Final = (
    ("*", values.calculated(values.multiply)),
    ("/", values.calculated(values.divide)),
    ("%", values.calculated(values.remainder)),
)


def expression(text: str) -> tuple[Evaluate, str | None]:
    """Return the function of an expression, and the name that it gives its result."""
    return _Parser(text).whole()


def safely(evaluate: Evaluate) -> Evaluate:
    """Return the function with ksql's manners: an error is logged, and gives null."""

    def evaluated(row: Mapping[str, Any]) -> Any:
        try:
            return evaluate(row)
        except (LeftOut, KeyError):
            raise
        except Exception:  # noqa: BLE001 - ksql logs whatever an expression raises
            return None

    return evaluated


def column(text: str) -> str | None:
    """Return the column's name, if the expression is a column."""
    match = re.fullmatch(r"(?:`([^`]+)`|([A-Za-z_]\w*))", text.strip())
    return None if match is None else match.group(1) or match.group(2)


class _Parser:
    """A parser by descent; each method reads one level of precedence."""

    def __init__(self, text: str) -> None:
        self.words = Words(text)

    def whole(self) -> tuple[Evaluate, str | None]:
        evaluate = self.either()
        name = self.words.read().text if self.words.take("AS") else None
        if self.words.next.kind != "end":
            raise LeftOut(f"expression: rest {self.words.next.text!r} in {self.words.text[:60]}")
        return evaluate, name

    def either(self) -> Evaluate:
        left = self.both()
        while self.words.take("OR"):
            left = _logical(left, self.both(), decisive=True)
        return left

    def both(self) -> Evaluate:
        left = self.negated()
        while self.words.take("AND"):
            left = _logical(left, self.negated(), decisive=False)
        return left

    def negated(self) -> Evaluate:
        if not self.words.take("NOT"):
            return self.comparison()
        inner = self.negated()
        return lambda row: None if (found := inner(row)) is None else not found

    def comparison(self) -> Evaluate:
        left = self.sum()
        while True:
            test = self.is_test(left) or self.test(left)
            if test is None:
                return left
            left = test

    def is_test(self, left: Evaluate) -> Evaluate | None:
        if not self.words.take("IS"):
            return None
        negated = self.words.take("NOT")
        if self.words.take("DISTINCT"):
            self.words.demand("FROM")
            right = self.sum()
            return lambda row: _distinct(left(row), right(row)) != negated
        self.words.demand("NULL")
        return lambda row: (left(row) is None) != negated

    def test(self, left: Evaluate) -> Evaluate | None:
        negated = self.words.take("NOT")
        if self.words.take("IN"):
            self.words.demand("(")
            among = self.arguments(")")
            equal = COMPARISONS[0][1]
            return lambda row: any(equal(left(row), each(row)) for each in among) != negated
        if self.words.take("BETWEEN"):
            low = self.sum()
            self.words.demand("AND")
            high = self.sum()
            most = values.compared(operator.le)
            return lambda row: (most(low(row), left(row)) and most(left(row), high(row))) != negated
        if self.words.take("LIKE"):
            pattern = self.sum()
            escape = self.sum() if self.words.take("ESCAPE") else None
            return lambda row: _like(left(row), pattern(row), escape and escape(row), negated=negated)
        for sign, compare in COMPARISONS:
            if self.words.take(sign):
                return _binary(compare, left, self.sum())
        return None

    def sum(self) -> Evaluate:
        return self.chain(SUMS, self.product)

    def product(self) -> Evaluate:
        return self.chain(PRODUCTS, self.signed)

    def chain(self, operations: tuple[tuple[str, Callable[[Any, Any], Any]], ...], operand: Callable[[], Evaluate]) -> Evaluate:
        left = operand()
        while True:
            for sign, operation in operations:
                if self.words.take(sign):
                    left = _binary(operation, left, operand())
                    break
            else:
                return left

    def signed(self) -> Evaluate:
        if self.words.take("-"):
            inner = self.signed()
            return lambda row: None if (found := inner(row)) is None else -found
        if self.words.take("+"):
            return self.signed()
        found = self.primary()
        while True:
            if self.words.take("->"):
                found = _field(found, self.words.read().text)
            elif self.words.take("["):
                found = _item(found, self.either())
                self.words.demand("]")
            else:
                return found

    def primary(self) -> Evaluate:
        if self.is_lambda():
            return self.function()
        if self.words.take("("):
            inner = self.either()
            self.words.demand(")")
            return inner
        kind, text = self.words.read()
        match kind:
            case "number":
                number = int(text) if text.isdigit() else float(text) if "e" in text.lower() else Decimal(text)
                return lambda row: number
            case "string":
                string = text[1:-1].replace("''", "'")
                return lambda row: string
            case "quoted":
                return lambda row: row[text]
            case "name":
                return self.named(text)
        raise LeftOut(f"expression: {text!r} in {self.words.text[:60]}")

    def named(self, name: str) -> Evaluate:  # noqa: PLR0911 - one for each form
        match name.upper():
            case "NULL":
                return lambda row: None
            case "TRUE" | "FALSE" as truth:
                return lambda row: truth == "TRUE"
            case "CASE":
                return self.case()
            case "CAST" if self.words.take("("):
                return self.cast()
            case "ARRAY" if self.words.take("["):
                items = self.arguments("]")
                return lambda row: [each(row) for each in items]
            case "STRUCT" if self.words.take("("):
                parts = self.assignments(lambda: self.words.read().text)
                return lambda row: {field: each(row) for field, each in parts}
            case "MAP" if self.words.take("("):
                entries = self.assignments(self.either)
                return lambda row: {key(row): each(row) for key, each in entries}
            case called if self.words.take("("):
                return self.call(called)
        return lambda row: row[name]

    def call(self, name: str) -> Evaluate:
        function = FUNCTIONS.get(name)
        if function is None:
            raise LeftOut(f"function {name}")
        if name.endswith(("ADD", "SUB")) and self.words.next.text.upper().rstrip("S") + "S" in times.UNITS:
            unit = self.words.read().text.upper()
            self.words.demand(",")
            given = self.arguments(")")
            return safely(lambda row: function(unit, *(each(row) for each in given)))
        arguments = self.arguments(")")
        # An error in a function is null there and then (ksql.nested.error.set.null).
        return safely(lambda row: function(*(each(row) for each in arguments)))

    def is_lambda(self) -> bool:
        if self.words.ahead(1).text == "=>" and self.words.next.kind == "name":
            return True
        if not self.words.is_next("("):
            return False
        count = 1
        while self.words.ahead(count).kind == "name" and self.words.ahead(count + 1).text == ",":
            count += 2
        return self.words.ahead(count).kind == "name" and self.words.ahead(count + 1).text == ")" and self.words.ahead(count + 2).text == "=>"

    def function(self) -> Evaluate:
        names = []
        bracketed = self.words.take("(")
        while not self.words.take("=>"):
            names.append(self.words.read().text)
            if not self.words.take(",") and bracketed:
                self.words.demand(")")
        body = self.either()
        return lambda row: lambda *given: body({**row, **dict(zip(names, given, strict=True))})

    def arguments(self, end: str) -> list[Evaluate]:
        found = []
        while not self.words.take(end):
            found.append(self.either())
            if not self.words.is_next(end):
                self.words.demand(",")
        return found

    def assignments(self, name: Callable[[], Any]) -> list[tuple[Any, Evaluate]]:
        found = []
        while not self.words.take(")"):
            named = name()
            self.words.demand(":=")
            found.append((named, self.either()))
            if not self.words.is_next(")"):
                self.words.demand(",")
        return found

    def cast(self) -> Evaluate:
        inner = self.either()
        self.words.demand("AS")
        kind, depth = "", 0
        while depth or not self.words.is_next(")"):
            word = self.words.read()
            depth += (word.text in "(<") - (word.text in ")>") if word.kind == "sign" else 0
            kind += f"`{word.text}` " if word.kind == "quoted" else f"{word.text} "
        self.words.demand(")")
        return lambda row: values.cast(inner(row), kind)

    def case(self) -> Evaluate:
        subject = None if self.words.is_next("WHEN") else self.either()
        arms = []
        while self.words.take("WHEN"):
            condition = self.either()
            self.words.demand("THEN")
            arms.append((condition, self.either()))
        otherwise = self.either() if self.words.take("ELSE") else None
        self.words.demand("END")
        equal = COMPARISONS[0][1]

        def choose(row: Mapping[str, Any]) -> Any:
            for condition, result in arms:
                if equal(subject(row), condition(row)) if subject else condition(row):
                    return result(row)
            return None if otherwise is None else otherwise(row)

        return choose


def _binary(operation: Callable[[Any, Any], Any], left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda row: operation(left(row), right(row))


def _logical(left: Evaluate, right: Evaluate, *, decisive: bool) -> Evaluate:
    def evaluate(row: Mapping[str, Any]) -> bool | None:
        first: bool | None = left(row)
        if first is decisive:
            return decisive
        second: bool | None = right(row)
        if second is decisive:
            return decisive
        return None if first is None or second is None else not decisive

    return evaluate


def _distinct(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return (left is None) != (right is None)
    first, second = values.alike(left, right)
    return bool(first != second)


def _like(value: Any, pattern: Any, escape: Any, *, negated: bool) -> bool | None:
    if value is None or pattern is None:
        return None
    regex, escaped = "", False
    for sign in pattern:
        if sign == escape and not escaped:
            escaped = True
            continue
        regex += re.escape(sign) if escaped or sign not in "%_" else ".*" if sign == "%" else "."
        escaped = False
    return bool(re.fullmatch(regex, value, re.DOTALL)) != negated


def _field(struct: Evaluate, name: str) -> Evaluate:
    return lambda row: None if (found := struct(row)) is None else found.get(name)


def _item(collection: Evaluate, key: Evaluate) -> Evaluate:
    def item(row: Mapping[str, Any]) -> Any:
        found, at = collection(row), key(row)
        if found is None or at is None:
            return None
        if isinstance(found, dict):
            return found.get(at)
        at = at - 1 if at > 0 else len(found) + at
        return found[at] if 0 <= at < len(found) else None

    return item
