"""Golomb codes as in paper 002, section 7.2.2: random distances in [1, 19], as with a filter at rate 1/8."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import Answers, Case, Measured

PARAMETERS = (5, 6, 7, 8, 9)
FARTHEST = 19


def cases(quick: bool) -> list[Case]:
    count = 1 << (20 if quick else 25)
    return [
        Case(
            f"golomb/M = {m}",
            {"elements": count, "M": m},
            {"tidemill": partial(_there_and_back, m=m)},
            _check,
            partial(_positions, count),
            repeats=3,
        )
        for m in PARAMETERS
    ]


def _positions(count: int) -> Any:
    return np.cumsum(np.random.default_rng(7).integers(1, FARTHEST + 1, count))


def _there_and_back(positions: Any, m: int) -> Measured:
    """Seconds of the processor, as other work here must not count: each way on one core."""
    from tidemill.kernels.golomb import decode, encode

    begin = time.process_time()
    words, bits = encode(positions, m, least=1)
    middle = time.process_time()
    again = decode(words, len(positions), m, least=1)
    end = time.process_time()
    each = bits / len(positions)
    return Measured(
        bool(np.array_equal(again, positions)),
        end - begin,
        {
            "bits an element": each,
            "of entropy": each / math.log2(FARTHEST),
            "M encoded/s": len(positions) / (middle - begin) / 1e6,
            "M decoded/s": len(positions) / (end - middle) / 1e6,
        },
    )


def _check(answers: Answers) -> None:
    assert all(answers.values()), "what was decoded is not what was encoded"
