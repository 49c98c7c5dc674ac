"""Generate the loop that aggregates ranges of sorted partials; every kind of window uses it.

Windows are ranges `[low, high)` of elements. Within a key both ends mostly only move forward. The optimizer
chooses how each part is updated:

- `subtract`: combine the elements that enter, subtract those that leave;
- `two_stacks`: suffix aggregates of the older elements, a running aggregate of the newer ones;
- `merge`, `single`: combine the elements of the range;
- `tree`: combine nodes of a tree over the elements, for ranges that jump back and forth.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.aggregates.layout import Layout, Result
from tidemill.codegen.algebra import PartCode, lower
from tidemill.codegen.expressions import Emitter
from tidemill.codegen.modules import load
from tidemill.core.schema import Schema
from tidemill.jit.kernel import any_kernel


@dataclass(frozen=True)
class FoldKernel:
    """`run(n, low, high, base, elements, suffixes, texts, *outputs) -> err`.

    `elements` starts with element number `base`. `suffixes` is scratch space of the same shape, or empty
    if no part uses two stacks. Outputs are `o<j>` and `w<j>` (validity) for each of `results`.
    """

    run: Callable[..., int]
    needs_suffixes: bool
    source: str


@functools.lru_cache(maxsize=512)
def fold_kernel(
    layout: Layout, fixed: tuple[int, ...], sliding: tuple[str, ...], results: tuple[int, ...]
) -> FoldKernel:
    """Generate a fold kernel. `sliding` names the algorithm of each part of `fixed`."""
    e = Emitter(Schema(()), {})
    parts = {index: PartCode(index, layout.parts[index]) for index in fixed}
    by = {
        how: [parts[i] for i, s in zip(fixed, sliding) if s in names]
        for how, names in (
            ("subtract", ("subtract",)), ("stacks", ("two_stacks",)), ("merge", ("merge", "single")),
            ("tree", ("tree",)),
        )
    }  # fmt: skip
    states: dict[int, list[str]] = {}
    prologue: list[str] = []
    _subtract(e, by["subtract"], states, prologue)
    _stacks(e, by["stacks"], states, prologue)
    _merge(e, by["merge"], states)
    _tree(e, by["tree"], states, prologue)
    for j, r in enumerate(results):
        output(e, j, layout.results[r], layout, states)
    outputs = [name for j in range(len(results)) for name in (f"o{j}", f"w{j}")]
    parameters = ", ".join(["n", "low", "high", "base", "elements", "suffixes", "texts", *outputs])
    source = "\n".join(
        [
            "@kernel", f"def run({parameters}):", "    err = 0", *("    " + p for p in prologue),
            "    for i in range(n):", "        lo = low[i] - base", "        hi = high[i] - base",
            *e.lines, "    return err", "",
        ]
    )  # fmt: skip
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    return FoldKernel(load(source, **functions).run, bool(by["stacks"] or by["tree"]), source)


def read(e: Emitter, part: PartCode, at: str, array: str = "elements") -> list[str]:
    """Emit code that reads the partial of an element."""
    return [e.assign(f"{array}[{at}].{n}", kind).code for n, kind in part.part.columns]


def variables(part: PartCode, prefix: str) -> list[str]:
    """Return the names of the local variables that hold a partial."""
    return [f"{prefix}{part.index}_{j}" for j in range(len(part.names))]


def reset(e: Emitter, parts: list[PartCode], prefix: str) -> None:
    """Emit code that sets partials to their identities."""
    for part in parts:
        for variable, code in zip(variables(part, prefix), part.identity()):
            e.line(f"{variable} = {code}")


def step(
    e: Emitter, parts: list[PartCode], prefix: str, how: Callable[[PartCode, list[str]], list[str]]
) -> None:
    """Emit code that updates partials."""
    for part in parts:
        names = variables(part, prefix)
        after = how(part, names)
        if any(code in names and code != v for v, code in zip(names, after)):
            # If the function swaps fields, assign all of them before any is overwritten.
            after = [e.assign(code, kind).code for code, (_, kind) in zip(after, part.part.columns)]
        for variable, code in zip(names, after):
            e.line(f"{variable} = {code}")


def _subtract(
    e: Emitter, parts: list[PartCode], states: dict[int, list[str]], prologue: list[str]
) -> None:
    if not parts:
        return
    prologue += ["sa = 0", "sb = 0"]
    for part in parts:
        pairs = zip(variables(part, "s"), part.identity())
        prologue += [f"{variable} = {code}" for variable, code in pairs]
        states[part.index] = variables(part, "s")
    with e.block("if lo >= sb or lo < sa:"):  # no overlap with the previous range
        e.line("sa = lo")
        e.line("sb = lo")
        reset(e, parts, "s")
    with e.block("while sa < lo:"):
        step(e, parts, "s", lambda p, state: p.inverse(e, state, read(e, p, "sa")))
        e.line("sa += 1")
    with e.block("while sb < hi:"):
        step(e, parts, "s", lambda p, state: p.combine(e, state, read(e, p, "sb")))
        e.line("sb += 1")


def _stacks(
    e: Emitter, parts: list[PartCode], states: dict[int, list[str]], prologue: list[str]
) -> None:
    if not parts:
        return
    # [lo, mid) is answered by suffixes[lo]; [mid, tb) by the running partial b.
    prologue += ["ta = 0", "mid = 0", "tb = 0"]
    for part in parts:
        prologue += [f"{v} = {c}" for v, c in zip(variables(part, "b"), part.identity())]
    with e.block("if lo >= tb or lo < ta:"):
        e.line("mid = lo")
        e.line("tb = lo")
        reset(e, parts, "b")
    e.line("ta = lo")
    with e.block("while tb < hi:"):
        step(e, parts, "b", lambda p, state: p.combine(e, state, read(e, p, "tb")))
        e.line("tb += 1")
    with e.block("if lo >= mid and lo < hi:"):
        reset(e, parts, "u")
        e.line("mid = hi")
        e.line("q = hi - 1")
        with e.block("while q >= lo:"):
            step(e, parts, "u", lambda p, state: p.combine(e, read(e, p, "q"), state))
            for part in parts:
                for name, variable in zip(part.names, variables(part, "u")):
                    e.line(f"suffixes[q].{name} = {variable}")
            e.line("q -= 1")
        reset(e, parts, "b")
    for part in parts:
        fronts = [e.fresh() for _ in part.names]
        for front, code in zip(fronts, part.identity()):
            e.line(f"{front} = {code}")
        with e.block("if lo < mid:"):
            for front, name in zip(fronts, part.names):
                e.line(f"{front} = suffixes[lo].{name}")
        combined = part.combine(e, fronts, variables(part, "b"))
        states[part.index] = combined


def _merge(e: Emitter, parts: list[PartCode], states: dict[int, list[str]]) -> None:
    if not parts:
        return
    reset(e, parts, "m")
    with e.block("for q in range(lo, hi):"):
        step(e, parts, "m", lambda p, state: p.combine(e, state, read(e, p, "q")))
    for part in parts:
        states[part.index] = variables(part, "m")


_FAN = 4
"""A node of a tree is the partial of so many nodes below it, as a power of two."""


def _tree(
    e: Emitter, parts: list[PartCode], states: dict[int, list[str]], prologue: list[str]
) -> None:
    """Answer ranges from a tree of partials: only full nodes, each level behind the one below it."""
    if not parts:
        return
    build = Emitter(Schema(()), {}, indent=0)
    build.line("below, size, at = 0, elements.shape[0], 0")
    mask = (1 << _FAN) - 1
    for array, condition in (("elements", "if"), ("suffixes", "while")):
        with build.block(f"{condition} size > {mask}:"):
            with build.block(f"for node in range(size >> {_FAN}):"):
                reset(build, parts, "n")
                build.line(f"first = below + (node << {_FAN})")
                with build.block(f"for q in range(first, first + {1 << _FAN}):"):
                    add = functools.partial(_add, build, array)
                    step(build, parts, "n", add)
                for part in parts:
                    for name, variable in zip(part.names, variables(part, "n")):
                        build.line(f"suffixes[at + node].{name} = {variable}")
            build.line(f"size >>= {_FAN}")
            build.line("below, at = at, at + size")
    e.functions.update(build.functions)
    prologue += build.lines
    reset(e, parts, "l")
    reset(e, parts, "r")
    e.line("a, b = lo, hi")
    _ends(e, parts, "elements", "0", mask)
    e.line(f"at, size = 0, elements.shape[0] >> {_FAN}")
    with e.block("while a < b:"):
        _ends(e, parts, "suffixes", "at", mask)
        e.line(f"at, size = at + size, size >> {_FAN}")
    for part in parts:
        states[part.index] = part.combine(e, variables(part, "l"), variables(part, "r"))


def _add(e: Emitter, array: str, part: PartCode, state: list[str]) -> list[str]:
    return part.combine(e, state, read(e, part, "q", array))


def _ends(e: Emitter, parts: list[PartCode], array: str, at: str, mask: int) -> None:
    """Emit code that combines the nodes of a level up to the next full ones, and goes a level up."""
    with e.block(f"while a < b and a & {mask}:"):
        step(e, parts, "l", lambda p, state: p.combine(e, state, read(e, p, f"{at} + a", array)))
        e.line("a += 1")
    with e.block(f"while a < b and b & {mask}:"):
        e.line("b -= 1")
        step(e, parts, "r", lambda p, state: p.combine(e, read(e, p, f"{at} + b", array), state))
    e.line(f"a, b = a >> {_FAN}, b >> {_FAN}")


def output(
    e: Emitter, j: int, result: Result, layout: Layout, states: dict[int, list[str]]
) -> None:
    """Emit code that writes row `i` of a result, from the partials of its parts."""

    def write() -> None:
        value = lower(e, result, layout, states)
        e.line(f"o{j}[i] = {value.code}")
        if result.type.kind == "string":
            e.line(f"w{j}[i] = {value.code} >= 0")
        else:
            e.line(f"w{j}[i] = {'True' if value.null is None else f'not {value.null}'}")

    if result.present is None:
        write()
        return
    with e.block(f"if {states[result.present][0]} != 0:"):
        write()
    with e.block("else:"):
        e.line(f"w{j}[i] = False")


