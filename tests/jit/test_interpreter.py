"""The interpreter of kernels, which most tests of combinations run on, does what machine code does."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tests import compiling, interpreter
from tests.conformance.harness import same
from tidemill.codegen.modules import load
from tidemill.jit.kernel import kernel
from tidemill.kernels import functions

INTS = (0, 1, -1, 2, 7, -8, 1 << 31, 3_037_000_500, -(1 << 62), 1 << 62, (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, -0.0, 0.5, -2.5, 3.0, 1e17, -1e300, math.inf, -math.inf, math.nan)
DAYS = (0, -1, 59, 60, 11_016, 20_453, -719_162, 2_932_896)
TAKES: dict[str, tuple[tuple[Any, ...], ...]] = {
    **dict.fromkeys(("wrap_add", "wrap_sub", "wrap_mul", "carry", "borrow", "mul_overflows"), (INTS, INTS)),
    **dict.fromkeys(("less_float", "equal_float", "pow_float"), (FLOATS, FLOATS)),
    **dict.fromkeys(("floordiv_float", "mod_float"), (FLOATS, (0.5, -3.0, 1e300, math.inf))),
    **dict.fromkeys(("floor_float", "ceil_float", "sign_float", "exp_float"), (FLOATS,)),
    **dict.fromkeys(("civil", "day_of_year"), (DAYS,)),
    "magnitude": (INTS, (1, -1, 3, -(1 << 62), (1 << 63) - 1, -(1 << 63))),
    "outside": (INTS, INTS, (1, 60, (1 << 63) - 1)),
    "round_float": (FLOATS, (1.0, 100.0)),
    "leading_zeros": (tuple(i for i in INTS if i >= 0),),
    "float_to_int_fits": (FLOATS,),
}


@pytest.mark.parametrize("name", TAKES)
def test_what_generated_code_calls(name: str) -> None:
    called = getattr(functions, name)
    for args in itertools.product(*TAKES[name]):
        with interpreter.interpreted():
            got = called(*args)
        with interpreter.interpreted(on=False):
            want = called(*args)
        assert same(got, want), (name, args, got, want)


SOURCE = """
@kernel
def run(n, values, records):
    err = 0
    for i in range(n):
        r = records[i]
        r.total = wrap_add(r.total, values[i])
        r.seen += (values[i] > 0) + (values[i] < 0)
        records[i].half = values[i] / 2
    return n, err, values[0] == 0
"""


def test_both_executors_change_the_same_arrays_and_only_one_compiles() -> None:
    run = load(SOURCE).run
    values = np.array([5, -3, 0, (1 << 63) - 1])
    found = []
    for on, compiles in ((True, 0), (False, 1), (True, 0)):
        records = np.array([(1, 0, 0.0)] * 4, dtype=[("total", "i8"), ("seen", "i8"), ("half", "f8")])
        before = compiling.count("generated.run")
        with interpreter.interpreted(on=on):
            found.append((run(4, values, records), records.tolist()))
        assert interpreter.COMPILED or compiling.count("generated.run") - before <= compiles
    assert found[0] == found[1] == found[2]
    assert found[0][0] == (4, 0, False) and found[0][1][3][0] == -(1 << 63)


def test_what_a_user_s_function_raises_is_told() -> None:
    from tidemill.core.errors import UserError
    from tidemill.jit.kernel import any_kernel

    def inverse(x: int) -> float:
        return 1 / x

    source = "@kernel\ndef run(x):\n    return float(f0(x))\n"
    run = load(source, f0=any_kernel(inverse)).run
    for on in (True, False):
        with interpreter.interpreted(on=on):
            assert run(4) == 0.25
            with pytest.raises(UserError, match="inverse: raised ZeroDivisionError"):
                run(0)


@kernel
def _noted(part: Any, at: int, what: int) -> None:
    part[at, 1] = what


@kernel
def _note(parts: Any, what: int) -> None:
    _noted(parts[1], 0, what)


def test_a_part_of_an_array_of_three_dimensions_is_an_argument() -> None:
    for on in (True, False):
        parts = np.zeros((2, 3, 2), dtype=np.int64)
        with interpreter.interpreted(on=on):
            _note(parts, 7)
        assert parts[1, 0].tolist() == [0, 7] and parts.sum() == 7
