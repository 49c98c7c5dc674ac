"""Names of columns on Spark: those of users, and those that only Tidemill uses.

A user may name a column anything. Where ours stand beside a user's, they have a name that is checked
against those (`fresh_name`), or begin with a prefix that users' do not (`OURS`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from tidemill.core.errors import UserError

OURS = "__tidemill_"
"""Columns that stand beside those of users for a moment, in text that is made once, begin so."""


def fresh_name(name: str, taken: Sequence[str]) -> str:
    """A name that no column has.

    >>> fresh_name("target", ["k", "Target"])
    'target_'
    """
    low = {folded(t) for t in taken}
    while folded(name) in low:
        name += "_"
    return name


def apart(df: DataFrame) -> tuple[DataFrame, dict[str, str]]:
    """A frame in which Spark can tell every column by its name, and which name each of them has there.

    Spark takes `a` and `A` for one name, unless a setting says otherwise, and then finds two columns of it.
    """
    names = df.columns
    if not alike(names):
        return df, {n: n for n in names}
    new = [f"c{i}" for i in range(len(names))]
    return df.toDF(*new), dict(zip(names, new))


def alike(names: Sequence[str]) -> list[str]:
    """Names that Spark may take for another one of the list, because they differ in case only.

    >>> alike(["a", "b", "A"])
    ['a', 'A']
    """
    low = [folded(n) for n in names]
    return [n for n, f in zip(names, low) if low.count(f) > 1]


def folded(name: str) -> str:
    """The same for names that differ in case only, character by character as Java compares them.

    >>> folded("Kıİ") == folded("kii")
    True
    """
    return "".join(c.upper()[:1].lower()[:1] for c in name)


def check_not_ours(step: str, names: Sequence[str]) -> None:
    """Refuse columns of users that could be taken for ours."""
    taken = [n for n in names if folded(n).startswith(OURS)]
    if taken:
        raise UserError(
            step, expected=f"columns that do not begin with {OURS!r}", got=f"{taken}",
            hint="rename them: columns of Tidemill's stand beside them under such names",
        )  # fmt: skip
