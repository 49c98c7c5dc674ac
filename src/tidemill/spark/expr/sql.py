"""Write Spark SQL literals that mean the same under every setting of the parser."""

from __future__ import annotations

import math


def quoted(name: str) -> str:
    """Quote a column name, which may contain dots, for `F.col`. (In SQL a quoted name may be a pattern.)

    >>> quoted("a.`b`")
    '`a.``b```'
    """
    return "`" + name.replace("`", "``") + "`"


def number(value: bool | int | float) -> str:
    """Write a bigint, a double or a boolean.

    >>> number(7), number(0.5), number(float("-inf")), number(-(2**63)), number(True)
    ('7L', "double('0.5')", "double('-Infinity')", "bigint('-9223372036854775808')", 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):  # SQL parses a minus separately, and 2**63 is not a bigint
        return f"{value}L" if value >= 0 else f"bigint('{value}')"
    if math.isinf(value):
        return f"double('{'-' if value < 0 else ''}Infinity')"
    return f"double('{value!r}')"


def string(text: str) -> str:
    """Write a string in hexadecimal: settings change the meaning of quotes and backslashes.

    >>> string("it's")
    "string(X'69742773')"
    """
    return f"string(X'{text.encode().hex()}')"
