"""One case: a query, its rows, an engine and how the rows reach it; and whether it agrees with the oracle."""

from __future__ import annotations

import pprint
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.fuzz import engines
from tests.fuzz.build import build
from tests.fuzz.compare import difference
from tests.fuzz.known import allowed
from tests.fuzz.oracle.run import Answer, answer

Row = dict[str, Any]

LOCAL = ("local", "threads1", "threads2", "reference")
"""Engines that need nothing but this process."""


@dataclass(frozen=True)
class Case:
    """What `check` needs to run the same again. `salt` seeds splits and files."""

    query: dict[str, Any]
    rows: list[Row]
    engine: str = "local"
    how: str = "table"
    salt: str = ""
    spark: Any = field(default=None, compare=False, repr=False)

    def shown(self) -> str:
        """As Python that can be pasted."""
        parts = {"query": self.query, "rows": self.rows, "engine": self.engine, "how": self.how}
        if self.salt:
            parts["salt"] = self.salt
        body = "".join(
            f"    {n}={pprint.pformat(v, width=100, sort_dicts=False, indent=1)},\n"
            for n, v in parts.items()
        )
        spark = "    spark=spark,\n" if self.engine == "spark" else ""
        return (
            "from math import inf, nan\n\nfrom tests.fuzz.case import Case, check\n\n"
            f"check(Case(\n{body}{spark}))"
        )


@dataclass
class Verdict:
    """`difference` is None where engine and oracle agree; `counted` is False where nothing was compared."""

    difference: str | None = None
    counted: bool = True
    allowed: str | None = None
    values: int = 0


def got(case: Case, stream: Any) -> list[Row]:
    pick, schema = Random(case.salt), case.query["schema"]
    if case.engine == "reference":
        return engines.by_reference(stream, case.rows)
    if case.engine == "local":
        return engines.from_source(stream, case.rows, schema, case.how, pick)
    if case.engine == "spark":
        return engines.on_spark(case.spark, stream, case.rows, schema, pick)
    return engines.in_batches(stream, case.rows, schema, int(case.engine[-1]), pick)


def verdict(case: Case, stream: Any = None, expected: Answer | None = None) -> Verdict:
    """Run a case; the query and the oracle's answer may be given, where they are at hand."""
    stream = build(case.query) if stream is None else stream
    expected = answer(case.query, case.rows) if expected is None else expected
    if not expected.sure:
        return Verdict(counted=False)
    try:
        rows = got(case, stream)
    except engines.Refused:
        return Verdict(counted=False)
    except engines.Failed as failed:
        if expected.may_fail:
            return Verdict()
        reason = allowed(case.engine, case.query, case.rows, "error")
        return Verdict(None if reason else f"failed: {failed}", allowed=reason)
    except Exception as foreign:
        return Verdict(f"raised {type(foreign).__name__}: {foreign}")
    if expected.rows is None:
        reason = allowed(case.engine, case.query, case.rows, "rows")
        text = f"{len(rows)} rows came, an error was expected: {expected.reason}"
        return Verdict(None if reason else text, allowed=reason)
    text = difference(rows, expected.rows)
    counted = expected.before_start
    looked = counted is not None and isinstance(rows, engines.Came)
    if text is None and looked and rows.before_start != counted:
        text = f"{rows.before_start} rows before the start, {counted} were expected"
    return Verdict(text, values=len(rows) * len(rows[0]) if rows else 0)


def differs(case: Case) -> str | None:
    """The difference, if the query can be built at all."""
    try:
        stream = build(case.query)
    except Exception:
        return None
    return verdict(case, stream).difference


def check(case: Case) -> None:
    """Fail with the difference, if there is one."""
    found = verdict(case).difference
    assert found is None, found


def without_spark(case: Case) -> Case:
    return replace(case, spark=None)
