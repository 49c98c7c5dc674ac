"""What explains an answer without rows is said once: by a warning, in `stats` and in `repr`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tidemill import col

pytestmark = pytest.mark.filterwarnings("default:wheel.*:UserWarning")


def wheel(**options: Any) -> Any:
    schema = {"t": "int64", "k": "string", "v": "int64"}
    given: dict[str, Any] = {"keys": "k", "granularities": [1, 10]}
    return tm.Wheel(tm.sum(col.v), schema=schema, time="t", start=100, **(given | options))


def warned(call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    assert all(w.filename == __file__ for w in seen), "a warning points at the caller"
    return [str(w.message) for w in seen]


@pytest.mark.parametrize("ask", [
    lambda w: w.query(100, 110, key="a"), lambda w: w.query(100, 110), lambda w: w.landmark("a"),
    lambda w: w.query([100], [110], key="a"), lambda w: w.group_by(100, 110, 5),
    lambda w: w.landmark(total=True),
])  # fmt: skip
def test_a_query_before_the_first_advance(ask: Any) -> None:
    made = wheel()
    made.insert(105, 1, "a")
    assert made.stats()["notes"] == []
    [said] = warned(lambda: ask(made))
    assert "no slot is closed yet" in said and "100" in said and "advance_to" in said
    assert warned(lambda: ask(made)) == []
    [note] = made.stats()["notes"]
    assert note in said and f"note: {note}" in repr(made)


def test_counts_are_zero_and_say_so_too() -> None:
    made = tm.Wheel(tm.count(), schema={"t": "int64"}, time="t", start=0, granularities=[1])
    made.insert(3)
    assert len(warned(lambda: made.query(0, 5))) == 1
    made.advance_to(5)
    assert made.query(0, 5) == 1
    assert warned(lambda: made.query(0, 1)) == []


@pytest.mark.parametrize("key", ["nobody", ["a", "nobody"]])
def test_an_unknown_key(key: Any) -> None:
    made = wheel()
    made.insert(105, 1, "a")
    made.advance_to(110)
    assert warned(lambda: made.query(100, 110, key="a")) == []
    [said] = warned(lambda: made.query(100, 110, key=key))
    assert "no row ever had the key 'nobody'" in said
    assert warned(lambda: made.query(100, 110, key="another")) == []
    assert made.stats()["notes"] and "nobody" in repr(made)


def test_rows_before_the_start(tmp_path: Path) -> None:
    made = wheel()
    rows = [{"t": t, "k": "a", "v": 1} for t in (3, 99, 100)]
    [said] = warned(lambda: made.insert(rows))
    assert "2 rows are before the start, 100" in said
    assert warned(lambda: made.insert(rows)) == []
    made.advance_to(110)
    assert warned(lambda: made.insert(rows[2:])) == []  # late, and not before the start
    assert made.stats()["left out"]["late"] == 5
    made.save(tmp_path)
    again = tm.open_wheel(tmp_path)
    assert again.stats()["notes"] == made.stats()["notes"] != []


def test_a_wheel_as_it_should_be_used_says_nothing() -> None:
    made = wheel()
    used = warned(lambda: (made.insert(105, 1, "a"), made.advance_to(110), made.query(100, 110, key="a")))
    assert used == []
    assert "note" not in repr(made)


def test_progress_of_a_long_advance(capsys: pytest.CaptureFixture[str]) -> None:
    made = wheel(retention="keep")
    made.insert([{"t": 100 + 1_000 * i, "k": "a", "v": 1} for i in range(50)])
    assert made.advance_to(60_000, progress=True) is None
    assert "slots" in capsys.readouterr().out
    assert made.landmark("a") == 50
