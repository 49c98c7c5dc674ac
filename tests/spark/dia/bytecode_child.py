"""Runs on any Python from 3.10 on, without packages: prints what `bytecode.py` reads off some functions."""

import importlib.util
import json
import sys

FUNCTIONS = """
def is_none(x): return 0 if x is None else x
def is_not_none(x): return x if x is not None else 0
def is_same(x, y): return x is y
def loops(x):
    while x is not None:
        x = x.next
def formats(x): return f"{x}"
def formats_more(x): return f"{x!r:>4}"
def catches(x):
    try:
        return int(x)
    except ValueError:
        return 0
def finishes(x):
    try:
        return int(x)
    finally:
        print(x)
def opens(x):
    with x as y:
        return y
def matches_class(x):
    match x:
        case int():
            return 1
        case _:
            return 2
def matches_sequence(x):
    match x:
        case (a, b):
            return a
        case _:
            return 2
def inside(x): return sum(v for v in (x, x) if v is not None)
def written_inside(x): return (lambda y: y is None)(x)
def dunder(x): return x.__class__
def arithmetic(x): return (x + 1) * 2 // 3 - x % 5
def compares(x, y): return (x < 3) & (y == 2)
def listed(x): return [v * 2 for v in (x, x)]
def keyed(x): return {k: x for k in (1, 2)}
def generated(x):
    yield x
    yield x + 1
def local(x):
    import math
    return math.sqrt(x)
def method(x): return x.hour() == 12
def attribute(x): return x.hour == 12
def called(x): return abs(x)
def subscript(x): return x[0] + x["a"]
"""


def main() -> None:
    spec = importlib.util.spec_from_file_location("bytecode", sys.argv[1])
    assert spec is not None and spec.loader is not None
    bytecode = importlib.util.module_from_spec(spec)
    sys.modules["bytecode"] = bytecode
    spec.loader.exec_module(bytecode)
    world: dict = {}
    exec(FUNCTIONS, world)
    found = {}
    for name, function in world.items():
        if not name.startswith("__"):
            read = bytecode.References.of(function.__code__)
            names = (read.globals, read.imports, read.attributes, read.values)
            found[name] = [read.asks, *map(sorted, names)]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
