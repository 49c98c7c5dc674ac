"""Benchmarks: `python -m benchmarks NAME [--quick] [--json FILE] [--case SUBSTRING] [--ask TEXT] [--docs]`.

A benchmark is a list of cases; a case is data, and systems that answer the same question about it.
Answers are compared before anything is timed. What a run prints, writes as JSON and puts into
`docs/benchmarks.md` all comes from its results.
"""

import os

# Two threads for everything compared, on any machine. Polars reads this when it is imported.
os.environ.setdefault("POLARS_MAX_THREADS", "2")
os.environ.setdefault("TIDEMILL_THREADS", "2")
