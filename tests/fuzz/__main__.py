"""`python -m tests.fuzz --seed N`: the cases of one seed again; with `--cases`, of the next ones too."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from random import SystemRandom
from typing import Any

from tests.fuzz.campaign import ENGINES, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; a random one is printed")
    parser.add_argument(
        "--cases", type=int, default=1, help="go on with the next seeds up to so many"
    )
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--step", type=int, default=1, help="from one seed to the next")
    parser.add_argument(
        "--engines", default=",".join(ENGINES), help=f"of {','.join(ENGINES)},spark,wheel"
    )
    parser.add_argument(
        "--shrink", type=float, default=60.0, help="seconds for each; 0 shows cases as they are"
    )
    parser.add_argument("--json", type=Path, help="also write the counts to a file")
    args = parser.parse_args()
    seed = SystemRandom().randrange(1 << 40) if args.seed is None else args.seed
    engines = tuple(args.engines.split(","))
    print(f"fuzz: seed {seed}, engines {args.engines}", flush=True)
    began = time.monotonic()
    report = run(
        seed, cases=args.cases, seconds=args.seconds, step=args.step, engines=engines,
        shrink=args.shrink, say=lambda text: print(text, flush=True),
        spark=_spark() if "spark" in engines else None,
    )  # fmt: skip
    print("\n".join(report.lines()))
    took = time.monotonic() - began
    print(f"fuzz: {report.total} cases, {report.values} values, {took:.0f} s")
    for reason, count in report.skipped.most_common(12):
        print(f"fuzz: skipped {count}: {reason}")
    if args.json:
        counts: dict[str, Any] = {
            "seed": seed, "cases": report.cases, "differences": report.differences,
            "values": report.values, "allowed": report.allowed, "skipped": report.skipped,
            "found": [f.shown() for f in report.found],
        }  # fmt: skip
        args.json.write_text(json.dumps(counts))
    return 1 if report.found else 0


def _spark() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.session.timeZone", "America/New_York")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


if __name__ == "__main__":
    sys.exit(main())
