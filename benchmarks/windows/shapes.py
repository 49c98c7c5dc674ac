"""Many shapes of keys, windows and aggregates in process, against DuckDB and Polars."""

from __future__ import annotations

from benchmarks.data import Shape
from benchmarks.harness import Case
from benchmarks.windows.families import last_rows, rows, sessions, windows

FLOATS = ("sum", "mean", "min", "max")


def cases(quick: bool) -> list[Case]:
    return shapes(*(200_000, 100_000) if quick else (8_000_000, 1_000_000))


def shapes(many: int, few: int) -> list[Case]:
    """The cases over two days of `many` rows, and those of small rows over `few`."""
    small, zipf = (Shape(rows, 10_007, zipf=1.2) for rows in (few, many))
    return [
        windows("shapes/hopping sum and count, 100 keys", Shape(many, 100)),
        windows("shapes/hopping sum and count, Zipf 1.3 keys", Shape(many, 10_007, zipf=1.3)),
        windows("shapes/hopping sum and count, 10 007 keys", Shape(many, 10_007)),
        windows("shapes/hopping, four float aggregates, Zipf 1.2", zipf, aggregates=FLOATS),
        windows("shapes/hopping sum and count, string key, Zipf 1.2", zipf, key="name"),
        sessions("shapes/sessions of 5 min, Zipf 1.3 keys", Shape(many, 10_007, zipf=1.3)),
        windows("shapes/median, 100 keys, 1 h", Shape(many, 100), aggregates=("median",), every="1h"),
        windows(
            "shapes/count, no key, 1 min", Shape(many, 100),
            aggregates=("count",), range="1m", every="1m", key="",
        ),
        rows("shapes/filter 5 %, five columns, one a string", Shape(many, 10_007), texts=("name",)),
        last_rows("shapes/last row by key with text columns", small),
        windows("shapes/distinct users, 100 keys", Shape(few, 100), aggregates=("distinct",), every="1h"),
        rows("shapes/filter, is_in of ints", small, condition="is_in"),
        rows("shapes/filter, is_in of strings", small, condition="string is_in"),
        rows("shapes/filter, starts_with", small, condition="starts_with"),
        rows("shapes/filter, contains", small, condition="contains"),
    ]  # fmt: skip
