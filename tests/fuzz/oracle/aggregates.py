"""Aggregates of the rows of one window, each from its sentence in docs/reference.md.

Rows in which an argument is null are skipped. Of nothing, an aggregate is null, a count 0, a list empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tests.fuzz.oracle.expressions import evaluate
from tests.fuzz.oracle.values import (
    Anything,
    Approx,
    Between,
    equal,
    float_total,
    rank,
    scaled,
    times,
    total,
)  # fmt: skip

Spec = dict[str, Any]


def aggregate(spec: Spec, rows: list[Any], time: str) -> Any:
    """One aggregate. `rows` are pairs: the windowing attribute, and a function from names to values."""
    name = spec["f"]
    given = [*spec["args"], *([["col", time]] if name in _BY_TIME else [])]
    found = []
    for place, get in rows:
        args = tuple(evaluate(a, get) for a in given)
        if all(a is not None for a in args):
            found.append((place, args))
    if name == "drawdown":
        found.sort(key=lambda r: (r[0], rank(float(r[1][0]))))
    args = [a for _, a in found]
    if not args:
        return [] if name in _LISTS else 0 if name in _COUNTS else None
    return AGGREGATES[name](args, spec)


_BY_TIME = ("first", "last", "collect", "first_k", "last_k", "ewma")
_LISTS = (
    "top_k",
    "bottom_k",
    "collect",
    "first_k",
    "last_k",
    "count_by",
    "sum_by",
    "mean_by",
    "min_by",
    "max_by",
    "top_keys",
)
_COUNTS = ("count", "count_if", "distinct_count", "hll")

Args = list[Any]


def _sum(values: Args) -> Any:
    return float_total(values) if isinstance(values[0], float) else total(values)


def _mean(values: Args) -> Any:
    """Of ints it is a float too, and does not overflow."""
    if isinstance(values[0], float):
        return scaled(float_total(values), Fraction(1, len(values)))
    mean = float(Fraction(sum(values), len(values)))
    return Approx(mean, 1e-15 * abs(mean))


def _product(values: Args) -> Any:
    if not isinstance(values[0], float):
        return times(values)
    if any(x != x for x in values):
        return math.nan
    if any(math.isinf(x) for x in values):
        if 0.0 in values:
            return math.nan
        if sum(abs(math.log2(abs(x))) for x in values if math.isfinite(x)) > 1000:
            return Anything()  # what underflows to zero before it meets an infinity is NaN
        return math.inf * math.prod(1 if x > 0 else -1 for x in values)
    if sum(abs(math.log2(abs(x))) for x in values if x) > 1000:
        return Anything()
    value = float(math.prod(map(Fraction, values)))
    return Approx(value, 1e-12 * abs(value))


# --- moments --------------------------------------------------------------------------------------


def _moment(xs: Args, ys: Args) -> tuple[Fraction, Fraction, Fraction]:
    """Sums of products of deviations: of x with x, y with y, x with y."""
    fx, fy = [Fraction(x) for x in xs], [Fraction(y) for y in ys]
    mx, my = sum(fx) / len(fx), sum(fy) / len(fy)
    dx, dy = [x - mx for x in fx], [y - my for y in fy]
    return (
        sum((d * d for d in dx), Fraction(0)),
        sum((d * d for d in dy), Fraction(0)),
        sum((a * b for a, b in zip(dx, dy)), Fraction(0)),
    )


def _tame(values: Args) -> bool:
    """Whether squares neither overflow nor vanish."""
    return all(x == 0 or 1e-100 < abs(x) < 1e140 for x in values)


def _covariance(args: Args, spec: Spec) -> Any:
    xs, ys = ([float(a[i]) for a in args] for i in (0, -1))
    n, ddof = len(xs), spec.get("ddof", 1)
    if n <= ddof:
        return None
    if not all(map(math.isfinite, xs + ys)):
        return math.nan
    if not _tame(xs + ys):
        return Anything()
    xx, yy, xy = _moment(xs, ys)
    top = max(map(abs, xs)) * max(map(abs, ys))
    size = math.sqrt(float(xx)) * math.sqrt(float(yy))
    value = float(xy / (n - ddof))
    return Approx(value, (1e-10 * size + 1e-14 * math.sqrt(top * size) + 1e-27 * top) / (n - ddof))


def _std(args: Args, spec: Spec) -> Any:
    var = _covariance(args, spec)
    if not isinstance(var, Approx):
        return var
    root = math.sqrt(max(var.value, 0.0))
    loose = math.sqrt(var.tolerance)
    return Approx(root, min(loose, var.tolerance / root) if root else loose)


def _correlation(args: Args, spec: Spec) -> Any:
    xs, ys = ([float(a[i]) for a in args] for i in (0, 1))
    if not all(map(math.isfinite, xs + ys)):
        return math.nan
    if len(xs) < 2:
        return None
    if not _tame(xs + ys):
        return Anything()
    xx, yy, xy = _moment(xs, ys)
    if xx == 0 or yy == 0:
        return None
    for values, spread in ((xs, xx), (ys, yy)):
        if float(spread) < 1e-12 * max(map(abs, values)) ** 2:
            return Anything()  # nothing but rounding is left
    return Approx(float(xy) / math.sqrt(float(xx)) / math.sqrt(float(yy)), 1e-9)


# --- order ----------------------------------------------------------------------------------------


def _arg(sign: int) -> Callable[[Args], Any]:
    """The value where `by` is greatest (or smallest); ties go to the greater value."""

    def choose(pairs: Args) -> Any:
        best = (max if sign > 0 else min)((by for _, by in pairs), key=rank)
        return max((v for v, by in pairs if equal(by, best)), key=rank)

    return choose


def _ewma(args: Args, spec: Spec) -> Any:
    life = spec["half_life"]
    now = max(t for _, t in args)
    if any(x != x for x, _ in args):
        return math.nan
    if not all(math.isfinite(x) and abs(x) < 1e290 for x, _ in args) or any(
        abs(t) > 1 << 52 for _, t in args
    ):
        return Anything()
    weights = [2.0 ** max(-2000.0, -(now - t) / life) for _, t in args]
    value = math.fsum(w * float(x) for w, (x, _) in zip(weights, args)) / math.fsum(weights)
    size = math.fsum(w * abs(float(x)) for w, (x, _) in zip(weights, args)) / math.fsum(weights)
    return Approx(value, 1e-9 * size)


def _drawdown(args: Args, spec: Spec) -> Any:
    xs = [float(a[0]) for a in args]
    if not all(map(math.isfinite, xs)):
        return Anything()
    peak, deepest = xs[0], 0.0
    for x in xs:
        peak = max(peak, x)
        deepest = max(deepest, peak - x)
    return deepest


# --- whole windows --------------------------------------------------------------------------------


def _ordered(args: Args) -> Args:
    return sorted((a[0] for a in args), key=rank)


def _quantile(args: Args, spec: Spec) -> Any:
    values = sorted((float(a[0]) for a in args), key=rank)
    at = spec["q"] * (len(values) - 1)
    low = math.floor(at)
    a, b = values[low], values[min(low + 1, len(values) - 1)]
    if at == low:
        return a
    if math.isinf(a) or (math.isfinite(b) and not math.isfinite(b - a)):
        return Anything()
    if a != a or b != b:
        return math.nan
    return Approx(a + (b - a) * (at - low), 1e-12 * (abs(a) + abs(b))) if math.isfinite(b) else b


def _groups(keys: Args, values: Args) -> list[tuple[Any, Args]]:
    """Values by key, in order of key."""
    found: list[tuple[Any, Args]] = []
    for key, value in sorted(zip(keys, values), key=lambda p: rank(p[0])):
        if found and equal(found[-1][0], key):
            found[-1][1].append(value)
        else:
            found.append((key, [value]))
    return found


def _different(args: Args) -> int:
    return len(_groups([a[0] for a in args], args))


def _entropy(args: Args, spec: Spec) -> Any:
    n = len(args)
    shares = [len(g) / n for _, g in _groups([a[0] for a in args], args)]
    return Approx(-math.fsum(p * math.log2(p) for p in shares) + 0.0, 1e-9)


def _by(reduce: Callable[[Args], Any]) -> Callable[[Args, Spec], Any]:
    def call(args: Args, spec: Spec) -> Any:
        groups = _groups([a[-1] for a in args], [a[0] for a in args])
        return [{"key": k, "value": reduce(v)} for k, v in groups]

    return call


def _mean_by(values: Args) -> Any:
    """Of ints too it is computed in floats, and does not overflow."""
    return scaled(float_total([float(v) for v in values]), Fraction(1, len(values)))


def _top_keys(args: Args, spec: Spec) -> Any:
    counted = _by(len)(args, spec)
    counted.sort(key=lambda e: (e["value"], rank(e["key"])), reverse=True)
    return counted[: spec["n"]]


def _collect(args: Args, spec: Spec) -> Any:
    return [x for x, _ in sorted(args, key=lambda a: (a[1], rank(a[0])))]


def _first_k(args: Args, spec: Spec) -> Any:
    greatest_first = sorted(args, key=lambda a: rank(a[0]), reverse=True)
    return [x for x, _ in sorted(greatest_first, key=lambda a: a[1])][: spec["k"]]


# --- estimates ------------------------------------------------------------------------------------


def _hll(args: Args, spec: Spec) -> Any:
    n = _different(args)
    return Between(math.floor(n * 0.93) - (n > 30), math.ceil(n * 1.07) + (n > 30))


def _kll(args: Args, spec: Spec) -> Any:
    """Within 4% of ranks; a NaN never enters the sketch."""
    values = sorted(float(a[0]) for a in args if a[0] == a[0])
    if not values:
        return None
    n = len(values)
    low, high = (spec["q"] * n + side * (0.04 * n + 1) for side in (-1, 1))
    return Between(values[max(0, math.floor(low))], values[min(n - 1, math.ceil(high))])


# --- of users -------------------------------------------------------------------------------------


def _rms(args: Args, spec: Spec) -> Any:
    squares = scaled(float_total([float(a[0]) * float(a[0]) for a in args]), Fraction(1, len(args)))
    if not isinstance(squares, Approx):
        return squares
    root = math.sqrt(squares.value)
    return Approx(root, 1e-10 * root + (1e-150 if root < 1e-140 else 0.0))


def _mean_log(args: Args, spec: Spec) -> Any:
    logs = [math.log(1.0 + abs(float(a[0]))) for a in args]
    return scaled(float_total(logs), Fraction(1, len(logs)))


def _thirds(args: Args, spec: Spec) -> int:
    return 2 * sum(1 if a[0] % 3 == 0 else 3 for a in args)


AGGREGATES: dict[str, Callable[[Args, Spec], Any]] = {
    "count": lambda a, s: len(a),
    "count_if": lambda a, s: sum(x is True for (x,) in a),
    "sum": lambda a, s: _sum([x for (x,) in a]),
    "product": lambda a, s: _product([x for (x,) in a]),
    "mean": lambda a, s: _mean([x for (x,) in a]),
    "min": lambda a, s: min((x for (x,) in a), key=rank),
    "max": lambda a, s: max((x for (x,) in a), key=rank),
    "any": lambda a, s: any(x for (x,) in a),
    "all": lambda a, s: all(x for (x,) in a),
    "var": _covariance,
    "std": _std,
    "covariance": _covariance,
    "correlation": _correlation,
    "arg_max": lambda a, s: _arg(1)(a),
    "arg_min": lambda a, s: _arg(-1)(a),
    "last": lambda a, s: _arg(1)(a),
    "first": lambda a, s: _arg(-1)(a),
    "ewma": _ewma,
    "drawdown": _drawdown,
    "quantile": _quantile,
    "median": lambda a, s: _quantile(a, {"q": 0.5}),
    "distinct_count": lambda a, s: _different(a),
    "entropy": _entropy,
    "top_k": lambda a, s: _ordered(a)[::-1][: s["k"]],
    "bottom_k": lambda a, s: _ordered(a)[: s["k"]],
    "top_keys": _top_keys,
    "collect": _collect,
    "first_k": _first_k,
    "last_k": lambda a, s: _collect(a, s)[::-1][: s["k"]],
    "count_by": _by(len),
    "sum_by": _by(_sum),
    "mean_by": _by(_mean_by),
    "min_by": _by(lambda v: min(v, key=rank)),
    "max_by": _by(lambda v: max(v, key=rank)),
    "hll": _hll,
    "kll": _kll,
    "user:rms": _rms,
    "user:mean_log": _mean_log,
    "user:thirds": _thirds,
}
