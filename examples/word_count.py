"""WordCount (paper 002, section 3.4.1): how often each word comes in a text.

    python -m examples.word_count

Words are counted where they are; those that one host has alone never travel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tidemill as tm
from tidemill.spark.exchange import explain, reduce_by_key


def word_count(text: Any, detect: str = "auto") -> Any:
    """A row for each word of the column `line`, and how often it comes."""
    from pyspark.sql import functions as F

    words = text.select(F.explode(F.split("line", " ")).alias("word")).where("word != ''")
    return reduce_by_key(words, ["word"], {"n": tm.count()}, detect=detect)


def some_text() -> list[str]:
    """The lines of a package that is installed anyway."""
    import numpy

    files = sorted(Path(numpy.__file__).parent.glob("*.py"))
    return [line for file in files for line in file.read_text().splitlines()]


def main() -> None:
    from examples.session import session

    with session() as spark:
        text = spark.createDataFrame([(line,) for line in some_text()], "line string").repartition(4)
        counts = word_count(text, detect="on")
        print(explain(counts))
        counts.orderBy("n", ascending=False).show(10)


if __name__ == "__main__":
    main()
