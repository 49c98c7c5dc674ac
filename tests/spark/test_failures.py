"""Our errors, found in the text that Spark has of them."""

from __future__ import annotations

import itertools
import traceback

from tidemill.core.errors import UnsupportedError, UserError
from tidemill.spark.errors import MARK, our_error


def raised(*errors: Exception) -> Exception:
    """What Spark has of errors of a worker, each raised from the one before."""
    for cause, error in itertools.pairwise(errors):
        error.__cause__ = cause
    return RuntimeError(
        "Job aborted.\n" + "".join(traceback.format_exception(errors[-1])) + "\tat java.Main"
    )


def test_an_error_that_was_raised_from_another_is_told_as_a_whole() -> None:
    inner = UserError("read", expected="a number", got="x")
    found = our_error(raised(inner, UserError("read_binary", f"/data/a.arrow: {inner}")), "size")
    assert str(found) == "read_binary: /data/a.arrow: read: expected a number, got x"


def test_an_error_without_a_step_gets_that_of_the_job() -> None:
    found = our_error(
        raised(UnsupportedError("spark", "that", instead="run it in process")), "size"
    )
    assert str(found) == "size: the spark engine cannot run that — run it in process"


def test_what_spark_raises_for_us_is_without_its_note() -> None:
    text = f"[USER_RAISED_EXCEPTION] {MARK}to_index: expected an index, got 7 SQLSTATE: P0001\n\tat java.Main"
    assert str(our_error(RuntimeError(text), "size")) == "to_index: expected an index, got 7"


def test_other_errors_are_not_ours() -> None:
    assert our_error(raised(ZeroDivisionError("division by zero")), "size") is None
