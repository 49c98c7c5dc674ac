"""Names that people bring from pandas, Polars and Spark, and what Tidemill calls the same.

This is the one table of them. An attribute that an object does not have is looked up here by the kind of the
object, so the error says what to write; other names get the one that is spelled most like them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tidemill.core.errors import UserError


def _table(entries: Mapping[str, str]) -> dict[str, str]:
    """One entry for each name; names that mean the same are written together."""
    return {name: ours for names, ours in entries.items() for name in names.split()}


EXPRESSION = _table(
    {
        "isin": ".is_in([1, 2])",
        "isna isnull isNull": ".is_null()",
        "notna notnull isNotNull is_not_nan": ".is_not_null(), or ~col.x.is_nan() for NaN",
        "isnan": ".is_nan()",
        "fillna fill_nan ffill bfill": ".fill_null(0) for a constant; the last known value is "
        "stream.until_next(...), or tm.last in a window",
        "astype": ".cast('float64')",
        "is_between": ".between(low, high), both ends included",
        "startswith": ".starts_with('a')",
        "endswith": ".ends_with('a')",
        "rlike regexp_like match fullmatch": ".matches('pattern'), found anywhere; ^ and $ for all of it",
        "like ilike": ".contains('a'), .starts_with('a') or .matches('pattern')",
        "substr slice": ".substring(start, length), from 0",
        "regexp_extract str_extract": ".extract(r'id=(\\d+)'), with a group by number or name",
        "regexp_replace str_replace replace_all": ".replace('old', 'new'), which is plain text",
        "to_lowercase": ".lower()",
        "to_uppercase": ".upper()",
        "trim strip_chars": ".strip()",
        "len_chars length str_len": ".len()",
        "str": "the functions themselves: col.name.lower(), col.name.contains('a'), col.name.len()",
        "dt": "the functions themselves: col.t.hour(), col.t.day_of_week(), col.t.truncate('1h')",
        "list arr": ".list_len(), .list_get(0); a row for each element is stream.select_many(x=col.xs)",
        "dayofweek weekday isoweekday": ".day_of_week(), Monday is 1",
        "dayofyear ordinal_day": ".day_of_year()",
        "date normalize": ".truncate('1d'), which is an instant",
        "date_trunc trunc dt_truncate": ".truncate('1h')",
        "total_seconds dt_total_seconds": ".cast('int64') / 1e6: durations are microseconds",
        "timestamp epoch unix_timestamp": ".cast('int64'), in microseconds",
        "log1p": "(col.x + 1).log()",
        "power": ".pow(2), or **",
        "mod modulo": "the operator %",
        "floordiv floor_div": "the operator //",
        "quarter": "(col.t.month() + 2) // 3; windows of quarters are tm.calendar('quarter')",
        "week weekofyear isocalendar": "tm.calendar('week') windows, from Mondays",
        "to_date to_datetime to_timestamp str_to_date": ".strptime('%m/%d/%Y')",
        "to_string to_char date_format": ".strftime('%Y-%m-%d') of a time, .cast('string') of others",
        "format": ".strftime('%Y-%m-%d') of a time, tm.concat(...) of text",
        "date_part datepart": ".hour(), .day(), .month() and the like",
        "zfill lpad rpad pad_start ljust rjust": "tm.udf(function, returns='string')(col.x)",
        "rank dense_rank row_number": "stream.window(...).top(10, by=\"x\"), which keeps whole rows",
        "value_counts": "an aggregate: stream.window(...).agg(n=tm.count_by(col.x))",
        "json get_json_object json_extract json_path_match": "tm.udf(function, returns='string')(col.x)",
        "getItem element_at": ".list_get(0)",
        "values to_numpy to_list tolist item": "query.run(...)[\"x\"].to_pylist(), of the result",
        "alias name rename as_": "the name of an argument: .select(total=col.a + col.b)",
        "mean avg sum min max count std stddev var median quantile first last n_unique nunique "
        "product any all collect": "an aggregate: stream.window(...).agg(x=tm.{name}(col.x))",
        "where filter mask": "tm.when(condition).then(col.x)",
        "otherwise": "tm.when(condition).then(x).otherwise(y)",
        "shift lag lead diff pct_change": "stream.lag(\"key\", before=col.x), the column of the row before",
        "over": "an aggregate in stream.window(tm.per_event('1h')).agg(...), or stream.group_by(...)",
        "rolling rolling_mean rolling_sum ewm ewm_mean cumsum cum_sum cumcount cum_count": "an aggregate "
        "over a window: stream.window(tm.per_event('1h')).agg(x=tm.mean(col.x)), tm.landmark(...) for all "
        "so far, tm.ewma(...)",
        "apply map map_elements transform": "tm.udf(function, returns='float64')(col.x)",
        "desc asc": "query.sort('x', descending=True), as the last step",
        "eq ne lt le gt ge": "the operator: ==, !=, <, <=, >, >=",
        "explode": "stream.select_many(x=col.xs)",
        "clip": "tm.greatest(low, tm.least(col.x, high))",
        "eqNullSafe eq_missing": "(col.a == col.b) | (col.a.is_null() & col.b.is_null())",
    }
)
"""Of columns and expressions, `col.x.…`."""

_WHOLE = {
    "count size": ".agg(tm.count())",
    "mean avg sum min max std stddev var median first last nunique n_unique quantile product":
    ".agg(x=tm.{name}(col.x))",
    "describe summary": ".agg(n=tm.count(), low=tm.min(col.x), mean=tm.mean(col.x), high=tm.max(col.x))",
    "aggregate": ".agg(n=tm.count())",
    "having": ".agg(n=tm.count()).where(col.n > 1)",
    "transform apply_in_pandas applyInPandas": ".interval_join(...) or .window(tm.per_event(...)): "
    "each row with aggregates; tm.aggregate(...) for your own",
}  # fmt: skip

_BY_WINDOW = {
    names: f".window(tm.tumbling('1d')){ours}" if ours.startswith(".agg") else ours
    for names, ours in _WHOLE.items()
}

AGGREGATE = _table(
    {
        "alias rename as_": "the name of an argument: .agg(total=tm.sum(col.a))",
        "filter where": "tm.count_if(condition), or tm.when(condition).then(col.x) as the argument",
        "eq ne": "it in a step after .agg(...): .with_columns(same=col.a == col.b)",
        "round_half_even": ".round(2)",
        "fillna coalesce ifnull": ".fill_null(0)",
        "astype": ".cast('float64')",
    }
)
"""Of aggregates, `tm.sum(…)`."""

STREAM = _table(
    {
        **_BY_WINDOW,
        "filter query loc": ".where(col.v > 5)",
        "groupby groupBy group by_key keyBy key_by partition_by": '.group_by("key")',
        "withColumn withColumns with_column assign mutate": ".with_columns(x=col.a + col.b)",
        "withColumnRenamed rename": '.select("a", new=col.old)',
        "drop": ".select(...) of the columns that stay",
        "head first_rows take show display fetch top_rows": ".limit(10).run(...)",
        "tail": ".sort(\"t\", descending=True).limit(10)",
        "shape height width": ".run(...).num_rows; .schema has the columns",
        "to_dict to_dicts to_list to_pylist to_pydict to_records tolist rows": ".run(...).to_pylist()",
        "to_numpy values": ".to_pandas(...).values",
        "to_json write_json write_ndjson": ".to_pandas(...).to_json(path)",
        "to_excel write_excel": ".to_pandas(...).to_excel(path)",
        "save saveAsTable to_table insertInto to_sql write_database": ".to_parquet(path)",
        "iloc": ".limit(10): rows have no positions",
        "lazy": "nothing: a query computes when it is run",
        "collect compute execute to_arrow toArrow toPandas to_df toDF df pl arrow fetchall fetchdf fetch_df":
        ".run(...), or .to_pandas(...), .to_polars(...)",
        "collect_batches iter_batches": ".batches(...)",
        "resample groupby_dynamic group_by_dynamic tumble tumbling tumbling_window": ".window(tm.tumbling("
        "'1h')), or tm.calendar('day', tz=...)",
        "rolling group_by_rolling sliding slide hopping hop hopping_window ewm expanding": ".window("
        "tm.hopping('1h', every='1m')), tm.per_event('1h') for one at each row, tm.landmark(...) for all so "
        "far",
        "session session_window sessionize": ".window(tm.session('30m'))",
        "merge": '.join(other, on="key"), while both rows hold; .interval_join and .last_join for points',
        "join_asof merge_asof asof_join asof": '.last_join(other, on="key")',
        "left_join leftjoin": ".join(other, on=\"key\", how=\"left\")",
        "semi_join isin": ".where_exists(other, on=\"key\")",
        "anti_join subtract exceptAll": ".where_not_exists(other, on=\"key\")",
        "sort_values orderBy order_by sort_index sortBy": ".sort(\"x\", descending=True), as the last step",
        "nlargest nsmallest": '.sort("x", descending=True).limit(10) of the result, .top(10, by="x") at each '
        "instant",
        "unionAll unionByName union_all concat append vstack extend_rows": ".union(other)",
        "drop_duplicates dropDuplicates unique": ".distinct(\"a\", \"b\")",
        "dropna drop_nulls drop_na": ".where(col.x.is_not_null())",
        "fillna fill_na ffill fill_nan fill_null": ".with_columns(x=col.x.fill_null(0)); for the last known "
        "value .until_next(\"key\")",
        "explode unnest flatMap flat_map": ".select_many(x=col.xs)",
        "diff": ".lag(\"key\", before=col.x), and col.x - col.before",
        "columns dtypes printSchema collect_schema info": ".schema",
        "write writeStream sink_parquet write_parquet write_csv": ".to_parquet(path, ...), .to_csv, .to_ipc",
        "sink_csv": ".to_csv(path, ...)",
        "withWatermark with_watermark assign_timestamps": ".live(tm.Disorder(slack=\"10s\"))",
        "stream_table forEachBatch foreachBatch start": ".live(...)",
        "pipe": "f(stream)",
        "apply map_batches map_rows map_elements applymap": "tm.udf(function, returns=\"float64\") in "
        ".with_columns(...), or .group_by(...).apply(...)",
        "pivot melt unpivot stack": ".run(...).to_pandas(), and pivot what comes",
        "cache persist repartition coalesce checkpoint": "nothing: a query has no rows of its own",
        "iterrows itertuples iter_rows": ".run(...).to_pylist()",
        "count_distinct": ".agg(n=tm.distinct_count(col.x))",
        "reset_index set_index": "nothing: rows have no index; the time column is named in tm.stream",
        "between_time between": ".where(col.t.between(\"2026-01-01\", \"2026-01-02\"))",
        "plot": ".to_pandas(...).plot()",
        "astype cast": ".with_columns(x=col.x.cast('float64'))",
    }
)  # fmt: skip
"""Of streams, which are queries."""

GROUPED = _table(
    {
        **_BY_WINDOW,
        "resample rolling": ".window(tm.tumbling('1h')), tm.per_event('1h')",
        "filter where select with_columns withColumn assign": "it before .group_by(...), or after .agg(...)",
        "head tail nth first_rows nlargest": '.top(1, by="x") at each instant, tm.last_k in a window',
        "cumsum cum_sum cumcount expanding": ".window(tm.landmark(...)).agg(...)",
        "pivot": ".agg(...), and pivot what .to_pandas(...) gives",
        "run to_pandas": "what to compute first: .window(...).agg(tm.count())",
        "shift lag diff": 'stream.lag("key", before=col.x)',
        "sort limit": "it after .agg(...)",
    }
)
"""Of `stream.group_by(…)`."""

WINDOWED = _table(
    {
        **_WHOLE,
        "filter where select with_columns withColumn assign": "it before .window(...), or after .agg(...)",
        "apply": ".agg(x=own(col.x)), with own = tm.aggregate(...)",
        "groupby groupBy": '.group_by("key")',
        "over": '.group_by("key")',
        "run to_pandas": "what to compute first: .agg(tm.count())",
        "sort limit": "it after .agg(...)",
    }
)
"""Of `stream.window(…)`."""

ORDERED = _table(
    {
        "where filter select with_columns withColumn group_by groupby window agg join union distinct top":
        "it before .sort(...) and .limit(...), which come last",
        "head take show": ".limit(10)",
        **{names: STREAM[names.split()[0]] for names in (
            "sort_values orderBy order_by", "collect compute execute to_arrow toPandas to_df",
            "write_parquet write_csv", "plot",
        )},
    }
)  # fmt: skip
"""Of queries that `sort` or `limit` ended."""

MODULE = _table(
    {
        "avg average": "tm.mean",
        "stddev stdev stddev_samp": "tm.std",
        "stddev_pop": "tm.std(x, ddof=0)",
        "variance var_samp": "tm.var",
        "corr": "tm.correlation",
        "cov covar_samp": "tm.covariance",
        "n_unique nunique countDistinct count_distinct approx_count_distinct": "tm.distinct_count, with "
        "method='hll' for an estimate",
        "percentile percentile_approx approx_quantile": "tm.quantile",
        "collect_list array_agg": "tm.collect",
        "argmax idxmax": "tm.arg_max(value, by)",
        "argmin idxmin": "tm.arg_min(value, by)",
        "size len row_number": "tm.count()",
        "mode value_counts": "tm.top_keys(category, 1), tm.count_by(category)",
        "window tumble tumbling_window TumblingWindow resample floor": "tm.tumbling('1h')",
        "slide sliding sliding_window hop hopping_window rolling": "tm.hopping('1h', every='1m')",
        "session_window": "tm.session('30m')",
        "read_csv read_parquet read_json scan_csv scan_parquet read_table from_pandas from_arrow from_polars "
        "from_dicts from_dict DataFrame LazyFrame Table load open": "tm.read(path_or_frame, time=...)",
        "Column F c": "col.x: from tidemill import col",
        "expr sql": "expressions of Python: col.a + col.b",
        "ifnull nvl fill_null": "tm.coalesce",
        "iff if_else where case": "tm.when(condition).then(x).otherwise(y)",
        "concat_str concat_ws": "tm.concat",
        "lag lead diff": 'stream.lag("key", before=col.x)',
        "to_datetime to_timestamp strptime": ".strptime('%m/%d/%Y') of text; tm.read and tm.stream: format=",
        "date_format strftime": ".strftime('%Y-%m-%d') of a column",
        "from_utc_timestamp tz_convert convert_timezone": ".local_time('Europe/Berlin') of a column",
        "to_utc_timestamp tz_localize": ".from_local_time('Europe/Berlin') of a column",
        "date_trunc": ".truncate('1h') of a column",
        "to_timedelta": "text such as '1h30m', or a timedelta",
        "desc asc": ".sort(\"x\", descending=True), as the last step of a query",
        "now today current_timestamp": "a constant, a datetime of Python in UTC",
        "nth first_value": "tm.first, tm.first_k",
        "last_value": "tm.last",
        "string_agg group_concat listagg": "tm.collect(col.x), and join what each list has",
        "bool_or logical_or": "tm.any",
        "bool_and logical_and every": "tm.all",
        "weighted_mean wavg": "tm.sum(col.x * col.w) / tm.sum(col.w)",
        "skew skewness kurtosis mad iqr": "tm.aggregate(...) for your own, or tm.quantile",
        "rank dense_rank ntile": ".window(...).top(10, by=\"x\"), which keeps whole rows",
        "date_range generate_series": "pandas.date_range(...): windows are tm.tumbling('1d')",
        "hour day month year minute second": ".{name}() of a column; sizes of windows are text: '1h'",
        "merge join": ".join of a stream",
        "merge_asof join_asof": ".last_join of a stream",
        "from_stream watermark Watermark": "tm.Disorder(slack='10s')",
        "greatest_of max_horizontal": "tm.greatest",
        "least_of min_horizontal": "tm.least",
        "Aggregate Aggregator UDAF pandas_udf": "tm.aggregate(...), tm.udf for rows",
        "days weeks months hours minutes seconds": "text: '1d', '2h', '10m'; months are tm.calendar('month')",
    }
)
"""Of the package, `tm.…`."""


OPTION = _table(
    {
        "sep separator delim": "delimiter=';'",
        "na_values null_values null_value nullValue na_filter": "nulls=['NA', '?']",
        "parse_dates date_format time_format timestamp_format datetime_format timestampFormat dateFormat "
        "try_parse_dates": "format='%m/%d/%Y'; ISO and common ones are found",
        "time_column time_col index_col ts timestamp date date_column datetime on index":
        "time='ts', the column",
        "skiprows skip_rows skip_lines skip_rows_before_header skip_header comment comment_prefix comments":
        "skip=2, the lines before the header",
        "header has_header names new_columns column_names":
        "columns=['ts', 'v'] for files without a header, and skip=1 to replace one",
        "dtype dtypes schema_overrides types column_types": "schema={'v': 'float64'}",
        "usecols use_cols include_columns": "nothing: a query reads only the columns that it needs",
        "nrows n_rows limit rows": ".limit(10) of what is read",
        "thousands": "schema={'v': 'string'}, and col.v.replace(',', '').cast('float64')",
        "compression": "nothing: the ending of the name says how a file is packed",
        "timezone time_zone tzinfo": "tz='Europe/Berlin'",
        "time_unit epoch": "unit='s'",
        "infer_schema inferSchema infer_schema_length infer_datetime_format low_memory engine":
        "nothing: the schema is found, and files are read in pieces",
        "storage_options": "filesystem=, of pyarrow.fs",
        "charset encoding_errors": "encoding='latin-1'",
        "quotechar quote_char": "nothing: quotes are double ones",
    }
)  # fmt: skip
"""Options of what reads files elsewhere."""


def unknown_options(step: str, given: Iterable[str], own: Iterable[str]) -> UserError:
    """Return the error for arguments that a function does not have.

    >>> print(unknown_options("read", ["sep"], ["delimiter"]))
    read: expected its own options, got sep= — write delimiter=';'
    """
    names = list(given)
    said = []
    for name in names:
        near = difflib.get_close_matches(name, own, n=1)
        if name in OPTION:
            ours = OPTION[name]
            said.append(ours if ours.startswith("nothing") else f"write {ours}")
        elif near:
            said.append(f"did you mean {near[0]}=?")
    shown = ", ".join(f"{name}=" for name in names)
    hint = "; ".join(said) or f"help(tm.{step}) has them"
    return UserError(step, expected="its own options", got=shown, hint=hint)


def unknown(what: str, name: str, table: Mapping[str, str], own: Iterable[str]) -> str:
    """The message for an attribute that an object does not have.

    >>> unknown("a stream", "filter", STREAM, [])
    "a stream has no 'filter': write .where(col.v > 5)"
    >>> unknown("a stream", "wehre", STREAM, ["where", "select"])
    "a stream has no 'wehre': did you mean 'where'?"
    """
    if name in table:
        said = table[name].replace("{name}", _FUNCTIONS.get(name, name))
        verb = "" if said.startswith("nothing") else "write "
        return f"{what} has no {name!r}: {verb}{said}"
    ours = [n for n in own if not n.startswith("_")]
    near = difflib.get_close_matches(name, table, n=1, cutoff=0.8)  # less like it is something else
    near = difflib.get_close_matches(name, [*ours, *near], n=1)
    if near and near[0] in table and near[0] not in own:
        return unknown(what, near[0], table, own).replace(repr(near[0]), repr(name), 1)
    return f"{what} has no {name!r}" + (f": did you mean {near[0]!r}?" if near else "")


_FUNCTIONS = {
    "avg": "mean", "stddev": "std", "nunique": "distinct_count", "n_unique": "distinct_count",
}  # fmt: skip
"""Aggregates by the names that others have for them."""


class KnowsBroughtNames:
    """Tells those who ask an object for a name that it does not have what it is called here."""

    __slots__ = ()
    _brought: ClassVar[Mapping[str, str]]
    _called: ClassVar[str]
    """What an object of the kind is called in a sentence."""

    if not TYPE_CHECKING:  # a checker of types shall still find what is not there

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property that failed: say how
                return object.__getattribute__(self, name)
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise AttributeError(self._without(name))

    def _without(self, name: str) -> str:
        """What to say about a name that the object does not have."""
        return unknown(self._called, name, self._brought, dir(type(self)))
