"""One question in the words of Tidemill, DuckDB and Polars. The page shows the text that runs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

import tidemill as tm
from benchmarks.harness import HOME, Asked, Case, Check
from benchmarks.threads import ONE, gain, on_threads
from tidemill import col

PLAIN = "duckdb, plain"
PEERS = ("duckdb", "polars", PLAIN)


@dataclass(frozen=True)
class Question:
    """One question to three systems. Texts in Python may begin with assignments."""

    tidemill: str
    """A query of streams by their names."""
    duckdb: str
    """A query of tables of the same names."""
    polars: str
    """A query of lazy frames of the same names, without `collect`."""
    by: tuple[str, ...]
    """Columns that tell rows of the answer apart."""
    engine: str = "streaming"
    """Polars' engine."""
    any_order: str = ""
    """As `polars`, on the streaming engine, where `polars` needs rows that are known to be in time order."""
    plain: str = ""
    """As `duckdb`, as one would write it first, where `duckdb` has another form that is faster."""

    names: ClassVar[Mapping[str, Any]] = {}
    """What else the text of Tidemill refers to."""

    def systems(self, streams: Mapping[str, tm.Stream]) -> dict[str, Callable[[Any], Any]]:
        """The systems that answer it, by name. Their data are `benchmarks.data.Tables`."""
        query = self.query(streams)
        found: dict[str, Callable[[Any], Any]] = {
            HOME: Asked(self.tidemill, lambda t: query.run(**{name: t.arrow[name] for name in streams})),
            "duckdb": Asked(self.duckdb, lambda t: t.sql(self.duckdb)),
            "polars": _collected(self.polars, self.engine),
        }
        if self.plain:
            found[PLAIN] = Asked(self.plain, lambda t: t.sql(self.plain))
        if self.any_order:
            found["polars, any order"] = _collected(self.any_order, "streaming")
        return found

    def query(self, streams: Mapping[str, tm.Stream]) -> tm.Stream:
        """Tidemill's query."""
        found = evaluated(self.tidemill, {"tm": tm, "col": col, **self.names, **streams})
        assert isinstance(found, tm.Stream)
        return found


def on_one_and_two(
    name: str, params: Mapping[str, Any], question: Question, streams: Mapping[str, tm.Stream],
    data: Callable[[], Any], check: Check, rows: int,
) -> Case:  # fmt: skip
    """A question to Tidemill on two threads and on one, and to its peers on two. Tidemill reads `rows`."""
    systems = question.systems(streams)
    ours = systems[HOME]

    def one(given: Any) -> Any:
        with on_threads(1):
            return ours(given)

    def derive(seconds: Mapping[str, float]) -> dict[str, Any]:
        return gain(seconds) | {"million rows/s": {s: rows / seconds[s] / 1e6 for s in (HOME, ONE)}}

    return Case(name, params, {HOME: ours, ONE: one, **systems}, check, data, derive=derive)


def _collected(polars: str, engine: str) -> Asked:
    text = f'{polars}.collect(engine="{engine}")'
    return Asked(text, lambda t: evaluated(text, {"pl": pl, **{n: f.lazy() for n, f in t.polars.items()}}))


def evaluated(text: str, names: Mapping[str, Any]) -> Any:
    """The value of the last line, after the assignments above it.

    >>> evaluated("a = b + 1\\na * 2", {"b": 3})
    8
    """
    *before, last = ast.parse(text).body
    assert isinstance(last, ast.Expr), text
    known = dict(names)
    exec(compile(ast.Module(before, []), "<question>", "exec"), known)
    return eval(compile(ast.Expression(last.value), "<question>", "eval"), known)
