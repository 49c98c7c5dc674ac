"""WordCount (paper 002, section 3.4.1): how often each word comes in a text.

    python -m examples.word_count
"""

from __future__ import annotations

import this  # the text: it prints itself when it is imported
from codecs import decode
from typing import Any

import tidemill as tm
from tidemill.spark.exchange import explain, reduce_by_key


def word_count(text: Any, detect: str = "auto") -> Any:
    """A row for each word of the column `line`. Words that one host has alone are counted there."""
    from pyspark.sql import functions as F

    words = text.select(F.explode(F.split("line", r"\s+")).alias("word")).where("word != ''")
    return reduce_by_key(words, ["word"], {"n": tm.count()}, detect=detect)


def main() -> None:
    from tidemill.demo import session

    with session() as spark:
        lines = decode(this.s, "rot13").splitlines()
        text = spark.createDataFrame([(line,) for line in lines], "line string")
        counts = word_count(text.repartition(4), detect="on")
        explain(counts)
        counts.orderBy("n", ascending=False).show(10)


if __name__ == "__main__":
    main()
