"""The first examples: windows in process, from a wheel and on Spark."""

from __future__ import annotations

from typing import Any

import pytest

from examples import windows_local, windows_spark, windows_wheel
from examples.session import needed

pytestmark = pytest.mark.interpreted


def test_windows_in_process(capsys: pytest.CaptureFixture[str]) -> None:
    windows_local.main()
    assert "over hopping(1h, every=10m)" in capsys.readouterr().out
    assert windows_local.busiest(5)["n"].to_pylist() == [32, 32, 32, 31, 30]


def test_windows_from_a_wheel(capsys: pytest.CaptureFixture[str]) -> None:
    windows_wheel.main()
    assert "5037 windows, as from the rows" in capsys.readouterr().out


def test_windows_on_spark(spark: Any) -> None:
    keys = ["ad", "window_start"]
    there = windows_spark.on_spark(spark).toArrow().select([*keys, "n"]).to_pandas().sort_values(keys)
    here = windows_local.per_ad.run().select([*keys, "n"]).to_pandas().sort_values(keys)
    assert there.to_dict("list") == here.to_dict("list")


def test_a_program_that_is_missing_is_told_before_any_work() -> None:
    with pytest.raises(SystemExit, match="this example needs no-such-tool: pip install it"):
        needed("no-such-tool", "pip install it")
