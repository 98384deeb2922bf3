"""ksql's expressions, of which each form is translated."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.judges.ksql import values
from tests.judges.ksql.expressions import expression
from tests.judges.ksql.reasons import LeftOut

ROW: dict[str, Any] = {"A": 7, "B": None, "S": "pear", "D": 2.5, "L": [1, None, 3], "M": {"x": 1}, "odd name": 4}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A + 1 * 2", 9),
        ("-A / 2", -3),
        ("A % -4", 3),
        ("A / 2.0", Decimal("3.5")),
        ("D / 0", float("inf")),
        ("A = 7 AND NOT S = 'plum'", True),
        ("B = 1 OR B <> 1", False),
        ("B IS NULL AND A IS NOT NULL", True),
        ("B IS DISTINCT FROM A", True),
        ("A BETWEEN 7 AND 8", True),
        ("S LIKE 'p_a%'", True),
        ("A IN (1, 7)", True),
        ("CASE WHEN A > 9 THEN 'much' WHEN A > 5 THEN 'some' ELSE 'few' END", "some"),
        ("CASE A WHEN 7 THEN 1 END", 1),
        ("L[1] + L[-1]", 4),
        ("M['x']", 1),
        ("STRUCT(F := A)->F", 7),
        ("`odd name`", 4),
        ("CAST(D AS STRING) || '!'", "2.5!"),
        ("CAST('7' AS DECIMAL(4, 2))", Decimal("7.00")),
        ("CAST('2020-02' AS DATE) < '2020-03-01'", True),
        ("TRANSFORM(ARRAY[1, 2], x => x * A)", [7, 14]),
        ("REDUCE(MAP('x' := 1, 'y' := 2), 0, (s, k, v) => s + v)", 3),
        ("UCASE(SUBSTRING(S, 2, 2))", "EA"),
        ("IFNULL(CHR(-1), 'none')", "none"),
    ],
)
def test_an_expression_has_ksqls_value(text: str, expected: Any) -> None:
    """An expression has the value that ksql gives it: whole division, nulls in comparisons, positions from one."""
    assert expression(text)[0](ROW) == expected


def test_an_expression_tells_the_name_of_its_result() -> None:
    """A name behind AS is told, also one that begins with a digit or is quoted."""
    assert [expression(text)[1] for text in ("A AS X", "A AS 1R", "A AS `odd name`", "A")] == ["X", "1R", "odd name", None]


@pytest.mark.parametrize("text", ["NO_SUCH_FUNCTION(A)", "A ~ 1", "(A", "CAST(A AS NO_SUCH_TYPE)"])
def test_what_is_not_known_is_left_out(text: str) -> None:
    """A function, sign or type that the translator does not know leaves the case out, and is never a wrong value."""
    with pytest.raises(LeftOut):
        expression(text)[0](ROW)


@pytest.mark.parametrize(("number", "written"), [(1.0, "1.0"), (1e7, "1.0E7"), (1.5e-4, "1.5E-4"), (123456.75, "123456.75"), (-0.001, "-0.001")])
def test_doubles_are_written_as_java_writes_them(number: float, written: str) -> None:
    """A double is written without an exponent between 0.001 and 10 million, and with E outside."""
    assert values.double_text(number) == written
