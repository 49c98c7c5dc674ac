"""Names of pandas, Polars and Spark, as hands write them, and what they are told."""

from __future__ import annotations

from typing import Any

import pytest

import tidemill as tm
from tidemill import col

STREAM = tm.stream("s", time="t", schema={"t": "timestamp", "price": "float64", "count": "int64"})
DAYS = STREAM.window(tm.tumbling("1d"))
WRITTEN: dict[str, tuple[Any, str]] = {
    "filter": (lambda: STREAM.filter(col.price > 1), ".where(col.v > 5)"),
    "groupby": (lambda: STREAM.groupby("price"), '.group_by("key")'),
    "withColumn": (lambda: STREAM.withColumn("x", col.price), ".with_columns(x=col.a + col.b)"),
    "head": (lambda: STREAM.head(), ".limit(10).run(...)"),
    "resample": (lambda: STREAM.resample("1h"), ".window(tm.tumbling('1h'))"),
    "rolling": (lambda: STREAM.rolling("1h"), "tm.per_event('1h')"),
    "merge": (lambda: STREAM.merge(STREAM), '.join(other, on="key")'),
    "merge_asof": (lambda: STREAM.merge_asof(STREAM), ".last_join(other"),
    "mean": (lambda: STREAM.mean(), ".window(tm.tumbling('1d')).agg(x=tm.mean(col.x))"),
    "avg of a window": (lambda: DAYS.avg("price"), ".agg(x=tm.mean(col.x))"),
    "filter of a window": (lambda: DAYS.filter(col.price > 1), "before .window(...), or after .agg(...)"),
    "filter of groups": (lambda: STREAM.group_by("price").filter(True), "before .group_by(...)"),
    "where after sort": (lambda: STREAM.sort("price").where(col.price > 1), "before .sort(...)"),
    "isin": (lambda: col.price.isin([1]), ".is_in([1, 2])"),
    "fillna": (lambda: col.price.fillna(0), ".fill_null(0)"),
    "dt": (lambda: col.t.dt.hour, "col.t.hour()"),
    "str": (lambda: col.t.str.len(), "col.name.len()"),
    "isNull in a lambda": (lambda: STREAM.where(lambda e: e.price.isNull()), ".is_null()"),
    "alias": (lambda: tm.sum(col.price).alias("x"), ".agg(total=tm.sum(col.a))"),
    "tm.avg": (lambda: tm.avg(col.price), "tm.mean"),
    "tm.read_csv": (lambda: tm.read_csv("x.csv"), "tm.read(path_or_frame, time=...)"),
    "to_json": (lambda: STREAM.to_json(), ".to_pandas(...).to_json(path)"),
    "tail": (lambda: STREAM.tail(), '.sort("t", descending=True).limit(10)'),
    "shape": (lambda: STREAM.shape, "num_rows"),
    "power": (lambda: col.price.power(2), ".pow(2)"),
    "to_datetime": (lambda: col.price.to_datetime(), ".strptime("),
    "a position of a list": (lambda: col.price[0], ".list_get(0)"),
    "a slice": (lambda: col.price[:3], ".substring(start, length)"),
    "float": (lambda: float(col.price), ".cast('float64')"),
    "two conditions": (
        lambda: STREAM.where(col.price > 1, col.count > 2), ".where((col.price > 1) & (col.count > 2))"
    ),
    "tm.now": (lambda: tm.now(), "a datetime of Python in UTC"),
    "tm.date_range": (lambda: tm.date_range(), "pandas.date_range"),
    "sep": (lambda: tm.read("x.csv", time="t", sep=";"), "delimiter=';'"),
    "parse_dates": (lambda: tm.read("x.csv", time="t", parse_dates=["t"]), "format="),
    "an option that is none": (lambda: tm.read("x.csv", time="t", xyz=1), "help(tm.read)"),
    "a typing error in an option": (lambda: tm.read("x.csv", time="t", formt="iso"), "did you mean format=?"),
    "na_values": (
        lambda: tm.stream("x", time="t", schema={"t": "int64"}, na_values="x"), "nulls=['NA', '?']"
    ),
    "a typing error": (lambda: STREAM.wehre(col.price > 1), "did you mean 'where'?"),
    "a typing error in one of theirs": (lambda: STREAM.groupBye("price"), '.group_by("key")'),
    "a column of the stream": (lambda: STREAM.price, "its column is col.price"),
    "a name that is like none": (lambda: STREAM.qwxz(), "no 'qwxz'"),
    "a column in brackets": (lambda: STREAM["price"], "columns as col.price"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_wrote(name: str) -> None:
    written, ours = WRITTEN[name]
    with pytest.raises((AttributeError, tm.UserError)) as error:
        written()
    assert ours in str(error.value)
