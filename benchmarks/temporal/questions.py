"""Questions about lifetimes in the words of Tidemill, DuckDB and Polars.

Peers have no lifetimes. They get the fastest of the forms that were tried:

- Values at each instant: starts count, ends count against, and a running sum over these edges is the value.
  DuckDB has a window function over the edges themselves; to add up those of one instant first took twice as
  long. A row of no length, between edges of one instant, is dropped. Polars sorts once and sums over keys.
- A then B within an hour: an equi-join by user and hour, which an A has two of, then the condition on times.
  Without the hour, as many pairs of a user meet as there are; DuckDB's form is there, too.
- A and no B within an hour: DuckDB is faster with `NOT EXISTS` than with an ASOF join; Polars looks for the
  next B.
- The last known value: `lead` in DuckDB, the neighbour in an order by user in Polars.
"""

from __future__ import annotations

from benchmarks.questions import Question

_SETS = 'a, b = events.where(col.k % 4 == 0), events.where(col.k % 4 == 1)\n'
_SETS_SQL = """WITH a AS (SELECT ts, user, k, v FROM events WHERE k % 4 = 0),
     b AS (SELECT ts, user, k, v FROM events WHERE k % 4 = 1)
"""
_SETS_POLARS = """a = events.filter(pl.col("k") % 4 == 0)
b = events.filter(pl.col("k") % 4 == 1)
"""
_PAIR = """SELECT {left}.user, {left}.k, {left}.v, {right}.k AS k_right, {right}.v AS v_right,
       b.ts AS valid_from, b.ts + INTERVAL 1 MICROSECOND AS valid_to
"""

STATELESS = {
    "pass-through": Question(
        "events", "SELECT * FROM events", "events.select(pl.all())", ("ts",), "in-memory"
    ),
    "filter none": Question(
        "events.where(col.v < 0)", "SELECT * FROM events WHERE v < 0", 'events.filter(pl.col("v") < 0)',
        ("ts",), "in-memory",
    ),
    "filter all": Question(
        "events.where(col.v >= 0)", "SELECT * FROM events WHERE v >= 0", 'events.filter(pl.col("v") >= 0)',
        ("ts",), "in-memory",
    ),
    "project": Question(
        'events.select("user", x=col.v * 2 + 1)', "SELECT ts, user, v * 2 + 1 AS x FROM events",
        'events.select("ts", "user", x=pl.col("v") * 2 + 1)', ("ts",), "in-memory",
    ),
    "alter lifetime": Question(
        'events.lasting("1h")', "SELECT *, ts + INTERVAL 1 HOUR AS valid_to FROM events",
        'events.with_columns(valid_to=pl.col("ts") + pl.duration(hours=1))', ("ts",), "in-memory",
    ),
}  # fmt: skip

LASTING = Question(
    'events.lasting("1h").group_by("k").agg(total=tm.sum(col.v))',
    """WITH edges AS (
    SELECT k, ts AS t, v, 1 AS n FROM events UNION ALL SELECT k, ts + INTERVAL 1 HOUR, -v, -1 FROM events)
SELECT k, t AS valid_from, lead(t) OVER w AS valid_to, sum(v) OVER w AS total
FROM edges WINDOW w AS (PARTITION BY k ORDER BY t) QUALIFY sum(n) OVER w > 0 AND valid_to > t""",
    """end = pl.col("ts") + pl.duration(hours=1)
starts = events.select("k", "v", t="ts", n=1)
ends = events.select("k", v=-pl.col("v"), t=end, n=-1)
edges = pl.concat([starts, ends]).sort("t")
values = edges.select(
    "k", valid_from="t", valid_to=pl.col("t").shift(-1).over("k"), total=pl.col("v").cum_sum().over("k"),
    n=pl.col("n").cum_sum().over("k"),
)
values.filter(pl.col("n") > 0, pl.col("valid_to") > pl.col("valid_from")).drop("n")""",
    ("k", "valid_from"), "in-memory",
)  # fmt: skip

OPEN = Question(
    "sessions.agg(n=tm.count())",
    """WITH edges AS (SELECT ts AS t, 1 AS d FROM sessions UNION ALL SELECT until, -1 FROM sessions)
SELECT t AS valid_from, lead(t) OVER w AS valid_to, sum(d) OVER w AS n
FROM edges WINDOW w AS (ORDER BY t) QUALIFY n > 0 AND valid_to > t""",
    """edges = pl.concat([sessions.select(t="ts", d=1), sessions.select(t="until", d=-1)]).sort("t")
values = edges.select(valid_from="t", valid_to=pl.col("t").shift(-1), n=pl.col("d").cum_sum())
values.filter(pl.col("n") > 0, pl.col("valid_to") > pl.col("valid_from"))""",
    ("valid_from",), "in-memory",
)  # fmt: skip

A_THEN_B = Question(
    f'{_SETS}a.lasting("1h").join(b, on="user")',
    """WITH a AS (
    SELECT ts, user, k, v, epoch_us(ts) // 3600000000 + i AS hour
    FROM events CROSS JOIN range(2) AS r(i) WHERE k % 4 = 0
), b AS (SELECT ts, user, k, v, epoch_us(ts) // 3600000000 AS hour FROM events WHERE k % 4 = 1)
"""
    f"{_PAIR.format(left='a', right='b')}"
    "FROM a JOIN b ON a.user = b.user AND a.hour = b.hour AND b.ts >= a.ts AND b.ts < a.ts + INTERVAL 1 HOUR",
    f"""{_SETS_POLARS}hour = pl.col("ts").to_physical() // 3_600_000_000
after = pl.col("ts_right") - pl.col("ts")
both = pl.concat([a.with_columns(hour=hour + i) for i in range(2)])
pairs = both.join(b.with_columns(hour=hour), on=["user", "hour"])
pairs = pairs.filter(after >= pl.duration(), after < pl.duration(hours=1))
pairs.select(
    "user", "k", "v", "k_right", "v_right", valid_from="ts_right",
    valid_to=pl.col("ts_right") + pl.duration(microseconds=1),
)""",
    ("user", "valid_from", "k", "v", "k_right", "v_right"), "in-memory",
    plain=f"{_SETS_SQL}{_PAIR.format(left='a', right='b')}"
    "FROM a JOIN b ON a.user = b.user AND b.ts >= a.ts AND b.ts < a.ts + INTERVAL 1 HOUR",
)  # fmt: skip

A_AND_NO_B = Question(
    f'{_SETS}a.shift("1h").where_not_exists(b.lasting("1h"), on="user")',
    f"""{_SETS_SQL}SELECT ts + INTERVAL 1 HOUR AS ts, user, k, v FROM a WHERE NOT EXISTS (
    SELECT 1 FROM b WHERE b.user = a.user AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL 1 HOUR)""",
    f"""{_SETS_POLARS}found = a.join_asof(
    b.select("ts", "user", next="ts"), on="ts", by="user", strategy="forward",
    allow_exact_matches=False, check_sortedness=False,
)
none = (pl.col("next") - pl.col("ts") > pl.duration(hours=1)).fill_null(True)
found.filter(none).drop("next").with_columns(pl.col("ts") + pl.duration(hours=1))""",
    ("ts",),
)  # fmt: skip

LAST_KNOWN = Question(
    'events.until_next("user")',
    "SELECT *, lead(ts) OVER (PARTITION BY user ORDER BY ts) AS valid_to FROM events",
    """rows = events.sort("user", maintain_order=True)
next = pl.when(pl.col("user") == pl.col("user").shift(-1)).then(pl.col("ts").shift(-1))
rows.with_columns(valid_to=next)""",
    ("ts",), "in-memory",
)  # fmt: skip

AS_OF = Question(
    f'{_SETS}b.join(a.until_next("user"), on="user")',
    f"{_SETS_SQL}{_PAIR.format(left='b', right='a')}FROM b ASOF JOIN a ON a.user = b.user AND b.ts >= a.ts",
    f"""{_SETS_POLARS}found = b.join_asof(
    a.select("ts", "user", k_right="k", v_right="v"), on="ts", by="user", check_sortedness=False
)
rows = found.filter(pl.col("k_right").is_not_null())
end = pl.col("ts") + pl.duration(microseconds=1)
rows.with_columns(valid_to=end).rename({{"ts": "valid_from"}})""",
    ("valid_from",),
)  # fmt: skip

YAHOO = Question(
    """views = shown.where(col.event_type == "view").select("ad")
views.join(ads, on="ad").group_by("campaign").window(tm.tumbling("10s")).agg(n=tm.count())""",
    """SELECT campaign, make_timestamp(w * 10000000) AS window_start,
       make_timestamp((w + 1) * 10000000) AS window_end, n
FROM (SELECT campaign, epoch_us(ts) // 10000000 AS w, count(*) AS n
      FROM shown JOIN ads USING (ad) WHERE event_type = 'view' GROUP BY ALL)""",
    """views = shown.filter(pl.col("event_type") == "view").select("ts", "ad").join(ads, on="ad")
counts = views.group_by("campaign", w=pl.col("ts").to_physical() // 10_000_000).agg(n=pl.len())
start = (pl.col("w") * 10_000_000).cast(pl.Datetime("us", "UTC"))
counts.with_columns(window_start=start, window_end=start + pl.duration(seconds=10)).drop("w")""",
    ("campaign", "window_start"),
)  # fmt: skip
