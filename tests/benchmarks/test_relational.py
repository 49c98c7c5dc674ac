"""Every case of the benchmark of tables on few rows: all systems answer alike; data are as the paper says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.exchange import data as kept
from benchmarks.harness import Case
from benchmarks.relational import data, process, serialized

pytestmark = pytest.mark.interpreted


@pytest.fixture(scope="module", autouse=True)
def _apart(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "KEPT", Path(tmp_path_factory.mktemp("kept")))
        yield


CASES = process.compared((600, 40, 150), 800, 0.0001)


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in CASES])
def test_all_systems_answer_alike(case: Case) -> None:
    given = case.data()
    found = {name: system(given) for name, system in case.systems.items()}
    case.check(found)
    assert set(found) == {"tidemill", "one thread", "duckdb", "polars"}
    assert len(found["tidemill"]) > 0


def test_arrow_and_avro_give_the_rows_back() -> None:
    pytest.importorskip("fastavro")
    [case] = serialized.compared(300)
    given = case.data()
    found = {name: system(given) for name, system in case.systems.items()}
    case.check(found)
    assert found["tidemill"]["rows"] == 300


def test_gen_data_is_that_of_the_paper() -> None:
    tables = data.gen_data(5_000, 300, 900).arrow
    t1, t2 = ({n: np.asarray(t[n]) for n in ("c1", "c2")} for t in (tables["t1"], tables["t2"]))
    assert len(t1["c1"]) == 5_000 and len(t2["c1"]) == 900
    for table in (t1, t2):
        assert (np.diff(table["c1"]) >= 0).all() and not (np.diff(table["c2"]) >= 0).all()
    distinct = np.unique(t1["c1"])
    assert len(distinct) == 300 and set(t1["c2"]) == set(distinct)
    assert set(distinct) < set(t2["c1"])


def test_some_searches_compare_two_words_that_are_searched_for() -> None:
    phrases = data.log(5_000).arrow["log"]["phrase"].to_pylist()
    words = [p.split(" ") for p in phrases]
    compared = [w for w in words if "vs" in w or "versus" in w]
    assert 0.01 < len(compared) / len(words) < 0.03 and all(len(w) == 3 for w in compared)
    assert {len(w) for w in words} == {1, 2, 3, 4, 5}
    assert {side for w in compared for side in (w[0], w[2])} & set(phrases)
