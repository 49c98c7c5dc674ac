"""Windows of a wheel go on from a save, and over merged wheels, as if nothing had happened."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.harness import same
from tests.conformance.wheels import SCHEMA, pair, play, steps
from tests.examples import examples
from tidemill import col
from tidemill.core.checksums import CHECKSUM, checksum
from tidemill.core.errors import UserError

WINDOWS: dict[str, Any] = {
    "slides": [tm.hopping(10, every=4), tm.tumbling(6, origin=2)],
    "sampling": [tm.hopping(2, every=6)],
    "from a start": [tm.hopping(12, every=2, start=14)],
    "sessions": {"runs": tm.session(5), "tens": tm.tumbling(10)},
}
# Sums of ints are subtracted; those of floats, and others, are kept in two stacks.
HELD = {
    "ints": {"a": tm.sum(col.v)},
    "floats": {"a": tm.sum(col.x), "b": tm.max(col.v), "c": tm.mean(col.x)},
}


def alike(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert len(one) == len(other), (one, other)
    for a, b in zip(one, other):
        assert a.keys() == b.keys() and all(same(a[n], b[n]) for n in a), (a, b)


@pytest.mark.parametrize(
    ("held", "keys", "windows"),
    [
        ("ints", "one", "slides"), ("floats", "two", "slides"), ("floats", "two", "sessions"),
        *(pytest.param(*p, marks=pytest.mark.soak) for p in (
            ("ints", "no keys", "slides"), ("floats", "no keys", "sampling"), ("ints", "one", "from a start"),
            ("ints", "no keys", "sessions"))),
    ],
)  # fmt: skip
@given(
    script=steps, more=steps, rings=st.sampled_from(["dropped", "kept"]),
    compress=st.sampled_from([False, 4]), start=st.integers(-9, 9),
)  # fmt: skip
@examples(3, of=6)
def test_windows_go_on_from_a_save(
    held: str, keys: str, windows: str, script: list[Any], more: list[Any], rings: str, compress: Any,
    start: int,
) -> None:  # fmt: skip
    wheel, reference = pair(
        rings, HELD[held], keys, start, windows=WINDOWS[windows], write_ahead=4, compress=compress
    )
    play(wheel, reference, script)
    with tempfile.TemporaryDirectory() as path:
        wheel.save(path)
        again = tm.open_wheel(path)
        again.save(path)  # what was opened is saved as it was
        third = tm.open_wheel(path)
    second, other = (RowsAgain(reference) for _ in range(2))
    found = play(wheel, reference, more)
    alike(play(again, second.wheel, more), found)
    alike(play(third, other.wheel, more), found)


class RowsAgain:
    """The rows of a reference, to go on by themselves."""

    def __init__(self, reference: Any) -> None:
        self.wheel = type(reference)(
            reference.plan, reference.grain, reference.watermark, list(reference.rows), list(reference.late)
        )


def test_windows_go_on_in_another_process(tmp_path: Path) -> None:
    def made() -> tm.Wheel:
        return tm.Wheel(
            HELD["floats"], schema=SCHEMA, time="t", start=0, keys="k", granularities=[1, 5, 20],
            windows={"s": tm.session(4), "h": tm.hopping(10, every=4)},
        )  # fmt: skip

    program = """
import json, sys
import tidemill as tm
from tests import interpreter
from tests.conformance.test_wheel_windows_saved import batch_of
interpreter.in_child()
path, last, *firsts = sys.argv[1], *map(int, sys.argv[2:])
for first in firsts:
    wheel, found = tm.open_wheel(f"{path}/{first}"), []
    for n in range(first, last):
        wheel.insert(batch_of(n))
        found += wheel.advance_to(3 * n).to_pylist()
    print(json.dumps([found, wheel.landmark().to_pylist()]))
"""
    whole, last = made(), 12
    closed: list[list[Any]] = []
    for n in range(last):
        whole.save(tmp_path / str(n))  # before any batch
        whole.insert(batch_of(n))
        closed.append(whole.advance_to(3 * n).to_pylist())
    firsts = 0, 5, 9
    run = [sys.executable, "-c", program, str(tmp_path), str(last), *map(str, firsts)]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for n, line in zip(firsts, done.stdout.splitlines(), strict=True):
        found, answers = json.loads(line)
        alike(found, [row for rows in closed[n:] for row in rows])
        alike(answers, whole.landmark().to_pylist())


def batch_of(n: int) -> list[dict[str, Any]]:
    return [
        {"t": 3 * n + i % 5, "k": i % 3, "s": None, "v": i, "x": i / 7 if i % 4 else None}
        for i in range(n, n + 9)
    ]


@pytest.mark.parametrize(
    ("held", "windows"), [("ints", "slides"), ("floats", "slides"), ("floats", "sessions")]
)
@given(
    scripts=st.lists(steps, min_size=2, max_size=2), more=steps, starts=st.tuples(*[st.integers(-9, 9)] * 2)
)
@examples(3, of=6)
def test_windows_of_merged_wheels_are_over_the_rows_of_both(
    held: str, windows: str, scripts: list[Any], more: list[Any], starts: tuple[int, int]
) -> None:
    """The windows that are open at the merge, and those after it, are as of one wheel with all rows."""
    (a, ra), (b, rb) = (pair("kept", HELD[held], "two", s, windows=WINDOWS[windows]) for s in starts)
    for wheel, reference, script in ((a, ra, scripts[0]), (b, rb, scripts[1])):
        play(wheel, reference, script)
    now = max(ra.watermark, rb.watermark)
    for wheel, reference in ((a, ra), (b, rb)):
        wheel.advance_to(now)
        reference.advance_to(now)
    whole, both = pair("kept", HELD[held], "two", min(starts), windows=WINDOWS[windows])
    rows = [{**dict.fromkeys(SCHEMA), **r} for r in (*ra.rows, *rb.rows)]
    whole.insert(rows)
    whole.advance_to(now)
    both.rows, both.watermark = list(rows), now
    assert a.merge(b) and a.watermark == now
    again = RowsAgain(both).wheel
    for reference in (again, both):
        reference.late = []
    stats = a.stats()["left out"]["late"]
    a._state.left_out["late"], a._state.late = 0, []
    found = play(a, again, more)
    assert stats == len(ra.late) + len(rb.late)
    key = lambda r: (r["window"], r["window_start"], r["window_end"], r["k"], str(r["s"]))
    expected = play(whole, both, more)
    if windows == "sessions":  # one that had closed in one of them is not opened again
        found, expected = ([r for r in rows_ if r["window"] != "runs"] for rows_ in (found, expected))
    alike(sorted(found, key=key), sorted(expected, key=key))


def test_open_sessions_of_merged_wheels_are_one() -> None:
    def made(*rows: tuple[int, int]) -> tm.Wheel:
        wheel = pair("kept", HELD["ints"], "one", 0, windows=tm.session(5))[0]
        wheel.insert([{"t": t, "k": k, "s": None, "v": 1, "x": None} for t, k in rows])
        wheel.advance_to(10)
        return wheel

    a, b = made((2, 1), (7, 1), (9, 2)), made((1, 3), (9, 1), (9, 3))
    assert a.merge(b)
    closed = a.advance_to(30).to_pylist()
    shown = sorted((r["k"], r["window_start"], r["window_end"], r["a"]) for r in closed)
    assert shown == [(1, 7, 14, 2), (2, 9, 14, 1), (3, 9, 14, 1)]


def test_wheels_with_windows_are_merged_at_one_watermark_and_with_the_same_windows() -> None:
    a, b = (pair("kept", HELD["ints"], "one", 0, windows=WINDOWS["slides"])[0] for _ in "ab")
    b.advance_to(4)
    with pytest.raises(UserError, match=r"same watermark, got 0 and 4.*advance the one that is behind"):
        a.merge(b)
    a.advance_to(4)
    assert a.merge(b)
    other = pair("kept", HELD["ints"], "one", 0)[0]
    with pytest.raises(UserError, match="the same windows"):
        a.merge(other)


def test_a_window_that_a_file_makes_up_is_refused(tmp_path: Path) -> None:
    wheel = pair("kept", HELD["ints"], "one", 0, windows=[tm.hopping(10, every=4)])[0]
    wheel.insert([{"t": 1, "k": 1, "s": None, "v": 1, "x": None}])
    wheel.advance_to(3)
    wheel.save(tmp_path)
    file = tmp_path / "manifest-000001.json"
    good = json.loads(file.read_text())
    for change in (
        {"range": 1 << 60, "every": 1}, {"range": 0}, {"every": -4}, {"numbers": []},
        {"numbers": [0, 1 << 62]}, {"label": 5}, {"origin": "x"}, {"gap": 5}, {"range": 14},
        {"start": 1 << 62},
    ):  # fmt: skip
        [window] = good["windows"]
        bad = {**good, "windows": [window | change]}
        file.write_text(json.dumps({**bad, CHECKSUM: checksum(bad)}))
        with pytest.raises(UserError, match="open wheel"):
            tm.open_wheel(tmp_path)
    bad = {**good, "windows": [{**window, "numbers": [-50, 30]}]}
    file.write_text(json.dumps({**bad, CHECKSUM: checksum(bad)}))
    tm.open_wheel(tmp_path).advance_to(200)  # wrong windows, and nothing worse
