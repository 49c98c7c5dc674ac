"""Wheels that were saved agree with the definition, and go on; files that are torn are named."""

from __future__ import annotations

import json
import os
import random
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.wheels import AGGREGATES, KEYS, check_ranges, pair, play, steps
from tidemill import col
from tidemill.aggregates.json import from_record, to_record
from tidemill.core.errors import UserError
from tidemill.wheels.open_wheel import open_wheel
from tidemill.wheels.wheel import Wheel


@pytest.mark.parametrize("keys", KEYS)
@given(
    rings=st.sampled_from(["dropped", "some kept"]), script=steps, more=steps,
    start=st.integers(-30, 30), pick=st.randoms(use_true_random=False),
)  # fmt: skip
@settings(max_examples=10)
def test_a_saved_wheel_opens_and_goes_on(
    rings: str, keys: str, script: list[Any], more: list[Any], start: int, pick: random.Random
) -> None:
    wheel, reference = pair(rings, "sum", keys, start, prefix=pick.random() < 0.5, write_ahead=4)
    play(wheel, reference, script)
    with tempfile.TemporaryDirectory() as path:
        wheel.save(path)
        again = open_wheel(path)
        assert again.stats() | {"bytes": 0} == wheel.stats() | {"bytes": 0}
        check_ranges(again, reference, pick)
        play(again, reference, more)
        check_ranges(again, reference, pick)


@pytest.mark.parametrize("null_at", range(4))
def test_keys_keep_their_places_wherever_null_comes(tmp_path: Path, null_at: int) -> None:
    wheel, reference = pair("kept", "sum", "one", 0)
    keys: list[int | None] = [7, 8, 9]
    keys.insert(null_at, None)
    for number, key in enumerate(keys):
        play(wheel, reference, [("insert", [(0, (key, "a", number, None))])])
    play(wheel, reference, [("advance", 3)])
    wheel.save(tmp_path)
    again = open_wheel(tmp_path)
    assert [again.query(0, 3, key=k) for k in keys] == [0, 1, 2, 3]
    again.insert(4, {"s": "a", "v": 5, "x": None}, 7)
    again.advance_to(5)
    assert again.query(0, 5, key=7) == keys.index(7) + 5


def test_a_file_that_is_not_as_it_was_written_is_named(tmp_path: Path) -> None:
    wheel, reference = pair("kept", "sum", "no keys", 0)
    play(wheel, reference, [("insert", [(1, (0, "a", 5, None))]), ("advance", 4)])
    wheel.save(tmp_path)
    wheel.insert(6, {"v": 7})
    wheel.advance_to(8)
    wheel.save(tmp_path)
    [file] = tmp_path.glob("cells-000002-*.arrow")
    good = file.read_bytes()
    for torn in (good[:-40], good[:-60] + b"x" + good[-59:]):
        file.write_bytes(torn)
        with pytest.raises(UserError, match=r"cells-000002-\w+.arrow.*open_wheel\(path, save=1\)"):
            open_wheel(tmp_path)
    assert open_wheel(tmp_path, save=1).landmark() == 5
    file.write_bytes(good)
    assert open_wheel(tmp_path).landmark() == 12


def test_a_crash_while_saving_leaves_the_last_save(tmp_path: Path, monkeypatch: Any) -> None:
    wheel, reference = pair("kept", "sum", "no keys", 0)
    play(wheel, reference, [("insert", [(1, (0, "a", 5, None))]), ("advance", 4)])
    wheel.save(tmp_path)
    wheel.insert(6, {"v": 7})
    wheel.advance_to(8)
    replace = os.replace
    for good in range(8):  # seven files, and the manifest, which counts

        def crashing(a: Any, b: Any, left: Any = iter(range(good))) -> None:  # noqa: B008
            if next(left, None) is None:
                raise KeyboardInterrupt
            replace(a, b)

        monkeypatch.setattr(os, "replace", crashing)
        with pytest.raises(KeyboardInterrupt):
            wheel.save(tmp_path)
        monkeypatch.undo()
        assert open_wheel(tmp_path).landmark() == 5


LITERALS = {
    "null": tm.lit(None), "nan": tm.lit(float("nan")), "inf": tm.lit(float("inf")),
    "minus inf": tm.lit(-float("inf")), "minus zero": tm.lit(-0.0), "bool": tm.lit(True),
    "int": tm.lit((1 << 63) - 1), "least int": tm.lit(-(1 << 63)), "float": tm.lit(0.1),
    "text": tm.lit("a'b\"c\\ü\0"), "surrogate": tm.lit("\ud800"),
    "timestamp": tm.lit(datetime(2026, 1, 1, tzinfo=timezone.utc)), "duration": tm.lit(timedelta(hours=-1)),
    "cast": tm.lit(3).cast("float64"), "loose": tm.lit("x").cast("int64", strict=False),
}  # fmt: skip


def test_a_deep_expression_is_read_again() -> None:
    """A chain that the JSON of Python does not nest."""
    tree: Any = col.v
    for number in range(120):
        tree = tree + number
    record = to_record(tm.sum(tree))
    assert record is not None
    [again] = from_record(json.loads(json.dumps(record))).args
    assert str(again) == str(tree.node)


@pytest.mark.parametrize("literal", LITERALS)
def test_every_literal_in_an_aggregate_is_read_again(literal: str) -> None:
    for made in (tm.count(LITERALS[literal]), tm.count_if(tm.coalesce(LITERALS[literal]).is_null())):
        record = to_record(made)
        assert record is not None
        again = from_record(json.loads(json.dumps(record, allow_nan=False)))
        assert again.parts == made.parts and repr(again.args) == repr(made.args)


def test_a_wheel_with_null_and_nan_in_an_aggregate_opens_again_and_merges(tmp_path: Path) -> None:
    def filled() -> Wheel:
        given = {"a": tm.sum(tm.when(col.x > float("nan")).then(None).otherwise(col.v))}
        wheel = pair("kept", given, "no keys", 0)[0]
        wheel.insert(1, {"v": 5, "x": 1.0})
        wheel.advance_to(4)
        return wheel

    filled().save(tmp_path)
    again = open_wheel(tmp_path)
    assert isinstance(again, Wheel) and again.landmark() == filled().landmark()
    again.merge(filled())
    assert again.landmark() == 2 * filled().landmark()


def test_other_aggregates_than_those_that_were_saved_are_refused(tmp_path: Path) -> None:
    pair("kept", "sum", "no keys", 0)[0].save(tmp_path)
    open_wheel(tmp_path, aggregates={"a": tm.sum(col.v)})
    with pytest.raises(UserError, match="as it was saved"):
        open_wheel(tmp_path, aggregates={"a": tm.max(col.v)})


def test_a_user_s_own_aggregate_is_given_again(tmp_path: Path) -> None:
    wheel, reference = pair("kept", "own", "no keys", 0)
    play(wheel, reference, [("insert", [(1, (0, "a", 5, None))]), ("advance", 4)])
    wheel.save(tmp_path)
    with pytest.raises(UserError, match="aggregates="):
        open_wheel(tmp_path)
    assert open_wheel(tmp_path, aggregates=AGGREGATES["own"]).landmark() == 25
