"""What a process waits for before its first answer: the import, the first query from cached kernels."""

from __future__ import annotations

from benchmarks.answers import unchecked
from benchmarks.harness import Case, Measured
from benchmarks.windows.fresh import fresh

_IMPORT = """
import json, time
start = time.perf_counter()
import tidemill
print(json.dumps({"seconds": time.perf_counter() - start}))
"""

_QUERY = """
import json, time
start = time.perf_counter()
import tidemill as tm
from tidemill import col
clicks = tm.stream("clicks", time="ts", unit="us",
    schema={"ts": "timestamp", "ad": "int64", "v": "float64"})
query = clicks.group_by("ad").window(tm.hopping("1h", every="10m")).agg(x=tm.sum(col.v))
rows = [{"ts": 1_767_225_600_000_000 + i * 60_000_000, "ad": i % 7, "v": 1.0} for i in range(1000)]
table = query.run(clicks=rows)
print(json.dumps({"seconds": time.perf_counter() - start, "rows": table.num_rows}))
"""


def cases(quick: bool) -> list[Case]:
    return [
        _case("import tidemill", _IMPORT, 2 if quick else 5),
        _case(
            "import, and a first small query with a warm kernel cache", _QUERY, 2 if quick else 5
        ),
    ]


def _case(name: str, code: str, repeats: int) -> Case:
    def run(_: None) -> Measured:
        found = fresh(code)
        return Measured(found.get("rows"), found["seconds"])

    params = {"processes": repeats}
    systems = {"tidemill": run}
    return Case(f"startup/{name}", params, systems, unchecked, repeats=repeats, fresh=True)
