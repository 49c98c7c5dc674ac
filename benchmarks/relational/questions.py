"""Questions about tables in the words of Tidemill, DuckDB and Polars."""

from __future__ import annotations

from benchmarks.questions import Question

GEN_DATA = {
    "filter": Question(
        "t1.where(col.c2 < 10_995_116_277)", "SELECT * FROM t1 WHERE c2 < 10995116277",
        't1.filter(pl.col("c2") < 10_995_116_277)', (), "in-memory",
    ),
    "sum": Question(
        "t1.agg(total=tm.sum(col.c2))", "SELECT sum(c2) AS total FROM t1",
        't1.select(total=pl.col("c2").sum())', (), "in-memory",
    ),
    "count": Question(
        "t1.where(col.c2 > 60_000_000_000).agg(n=tm.count())",
        "SELECT count(*) AS n FROM t1 WHERE c2 > 60000000000",
        't1.filter(pl.col("c2") > 60_000_000_000).select(n=pl.len())', (), "in-memory",
    ),
    "select": Question(
        "t1.select(x=col.c1 + col.c2)", "SELECT c1 + c2 AS x FROM t1",
        't1.select(x=pl.col("c1") + pl.col("c2"))', (), "in-memory",
    ),
    "group by the sorted column": Question(
        't1.group_by("c1").agg(total=tm.sum(col.c2), n=tm.count())',
        "SELECT c1, sum(c2) AS total, count(*) AS n FROM t1 GROUP BY c1",
        't1.group_by("c1").agg(total=pl.col("c2").sum(), n=pl.len())', ("c1",),
    ),
    "group by the other column": Question(
        't1.group_by("c2").agg(total=tm.sum(col.c1), n=tm.count())',
        "SELECT c2, sum(c1) AS total, count(*) AS n FROM t1 GROUP BY c2",
        't1.group_by("c2").agg(total=pl.col("c1").sum(), n=pl.len())', ("c2",),
    ),
    "equi-join": Question(
        't1.join(t2, on="c1")', "SELECT t1.c1, t1.c2, t2.c2 AS c2_right FROM t1 JOIN t2 USING (c1)",
        't1.join(t2, on="c1")', (),
    ),
}  # fmt: skip
"""Section 7.3.2, Figures 5a to 5d. The filter keeps one row in a hundred."""

Q1 = Question(
    """priced = lineitem.with_columns(price=lambda l: l.l_extendedprice * (1 - l.l_discount))
charged = priced.with_columns(charge=lambda l: l.price * (1 + l.l_tax))
charged.group_by("l_returnflag", "l_linestatus").agg(
    sum_qty=tm.sum(col.l_quantity), sum_base_price=tm.sum(col.l_extendedprice),
    sum_disc_price=tm.sum(col.price), sum_charge=tm.sum(col.charge), avg_qty=tm.mean(col.l_quantity),
    avg_price=tm.mean(col.l_extendedprice), avg_disc=tm.mean(col.l_discount), count_order=tm.count(),
)""",
    """SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
       sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
       sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, avg(l_quantity) AS avg_qty,
       avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, count(*) AS count_order
FROM lineitem GROUP BY l_returnflag, l_linestatus""",
    """quantity, price = pl.col("l_quantity"), pl.col("l_extendedprice")
discounted = price * (1 - pl.col("l_discount"))
lineitem.group_by("l_returnflag", "l_linestatus").agg(
    sum_qty=quantity.sum(), sum_base_price=price.sum(), sum_disc_price=discounted.sum(),
    sum_charge=(discounted * (1 + pl.col("l_tax"))).sum(), avg_qty=quantity.mean(), avg_price=price.mean(),
    avg_disc=pl.col("l_discount").mean(), count_order=pl.len(),
)""",
    ("l_returnflag", "l_linestatus"),
)

TERM_COMPARISON = Question(
    """compared = log.where(col.phrase.contains(" versus ") | col.phrase.contains(" vs "))
sides = compared.select_many(entity=col.phrase.replace(" versus ", " vs ").split(" vs "))
entities = sides.distinct("entity")
log.join(entities, on={"phrase": "entity"}).group_by("phrase").agg(clicks=tm.sum(col.clicks))""",
    """WITH entities AS (
    SELECT DISTINCT unnest(string_split(replace(phrase, ' versus ', ' vs '), ' vs ')) AS phrase
    FROM log WHERE contains(phrase, ' versus ') OR contains(phrase, ' vs '))
SELECT phrase, sum(clicks) AS clicks FROM log JOIN entities USING (phrase) GROUP BY phrase""",
    """phrase = pl.col("phrase")
has = phrase.str.contains(" versus ", literal=True) | phrase.str.contains(" vs ", literal=True)
sides = phrase.str.replace_all(" versus ", " vs ", literal=True).str.split(" vs ")
entities = log.filter(has).select(phrase=sides).explode("phrase").unique()
log.join(entities, on="phrase").group_by("phrase").agg(clicks=pl.col("clicks").sum())""",
    ("phrase",),
)

TOP_CORRELATED = Question(
    """pairs = log.select_many(word=col.phrase.split(" ")).distinct("user", "word")
searched = pairs.where(col.word == "vegas").select("user")
all = pairs.group_by("word").agg(all=tm.count())
both = pairs.join(searched, on="user").group_by("word").agg(both=tm.count())
both.join(all, on="word").select("word", ratio=col.both / col.all)""",
    """WITH pairs AS MATERIALIZED (SELECT DISTINCT user, unnest(string_split(phrase, ' ')) AS word FROM log),
     searched AS (SELECT user FROM pairs WHERE word = 'vegas')
SELECT word, count(searched.user) / count(*) AS ratio
FROM pairs LEFT JOIN searched USING (user) GROUP BY word HAVING count(searched.user) > 0""",
    """pairs = log.select("user", word=pl.col("phrase").str.split(" ")).explode("word").unique()
searched = pairs.filter(pl.col("word") == "vegas").select("user", found=pl.lit(True))
marked = pairs.join(searched, on="user", how="left")
ratios = marked.group_by("word").agg(ratio=pl.col("found").count() / pl.len())
ratios.filter(pl.col("ratio") > 0)""",
    ("word",),
)

STRINGS = {
    "contains": Question(
        'log.where(col.phrase.contains("free")).select("phrase")',
        "SELECT phrase FROM log WHERE contains(phrase, 'free')",
        'log.filter(pl.col("phrase").str.contains("free", literal=True)).select("phrase")', (),
    ),
    "equals": Question(
        'log.where(col.phrase == "vegas").select("phrase")', "SELECT phrase FROM log WHERE phrase = 'vegas'",
        'log.filter(pl.col("phrase") == "vegas").select("phrase")', (),
    ),
    "starts with": Question(
        'log.where(col.phrase.starts_with("free")).select("phrase")',
        "SELECT phrase FROM log WHERE starts_with(phrase, 'free')",
        'log.filter(pl.col("phrase").str.starts_with("free")).select("phrase")', (),
    ),
    "ends with": Question(
        'log.where(col.phrase.ends_with("download")).select("phrase")',
        "SELECT phrase FROM log WHERE ends_with(phrase, 'download')",
        'log.filter(pl.col("phrase").str.ends_with("download")).select("phrase")', (),
    ),
    "regular expression": Question(
        'log.where(col.phrase.matches("free.*download")).select("phrase")',
        "SELECT phrase FROM log WHERE phrase LIKE '%free%download%'",
        'log.filter(pl.col("phrase").str.contains("free.*download")).select("phrase")', (),
    ),
    "place of a substring": Question(
        'log.select(at=col.phrase.find("vegas"))', "SELECT instr(phrase, 'vegas') - 1 AS at FROM log",
        'log.select(at=pl.col("phrase").str.find("vegas", literal=True).fill_null(-1).cast(pl.Int64))', (),
    ),
}  # fmt: skip
"""Section 7.5, Figure 6c."""
