"""The source of a kernel, rewritten so that plain Python does on ints and floats what machine code does.

Python's ints do not wrap, so they are wrapped where a kernel may wrap: where it says so (`wrap_add`), and
where an operand is unsigned. Everything else a kernel computes stays in 64 bits, because overflow of signed
numbers is undefined in machine code. Arrays are `memoryview`s, which give ints and floats, not NumPy's
scalars; arrays of records are `Records`, a `memoryview` for each field.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import TypeGuard

WRAPPING = {"wrap_add": ast.Add, "wrap_sub": ast.Sub, "wrap_mul": ast.Mult}
"""Kernels that are one operation of the machine."""
UNSIGNED = {"np.uint64", "word", "bytes_at", "word_at"}
"""Functions that return an unsigned number."""
_OF_MODULES = ("np", "npt", "math")
_OF_VIEWS = ("shape",)
"""Attributes that a `memoryview` has, too."""
_OF_ARRAYS = {"shape", "size", "dtype", "sort", "copy"}
"""What kernels ask arrays for; any other attribute is a field of a record."""
_CASTS = {"power": "_power", "float64": "float", "bool_": "bool", "int64": "_int64"}
_BITS = (ast.BitAnd, ast.BitOr, ast.BitXor)
_CAN_WRAP = (ast.Add, ast.Sub, ast.Mult, ast.LShift)


def translated(function: ast.FunctionDef, unsigned_globals: Iterable[str]) -> ast.FunctionDef:
    """Rewrite the definition of a kernel, in place."""
    nodes = list(ast.walk(function))
    unsigned = {*unsigned_globals}
    assigned = [(t.id, n.value) for n in nodes if isinstance(n, ast.Assign) for t in n.targets if _is_name(t)]
    assigned += [(n.target.id, n.value) for n in nodes if isinstance(n, ast.AugAssign) and _is_name(n.target)]
    while more := {name for name, value in assigned if _is_unsigned(value, unsigned)} - unsigned:
        unsigned |= more
    rewritten = _Rewriting(unsigned, _records(nodes), _rows(nodes)).visit(function)
    assert isinstance(rewritten, ast.FunctionDef)
    return ast.fix_missing_locations(rewritten)


def _is_name(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)


def _is_unsigned(node: ast.AST, unsigned: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in unsigned
    if isinstance(node, ast.Call):
        return _called(node) in UNSIGNED
    if isinstance(node, ast.BinOp):
        return _is_unsigned(node.left, unsigned) or _is_unsigned(node.right, unsigned)
    if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
        return _is_unsigned(node.operand, unsigned)
    if isinstance(node, ast.IfExp):
        return _is_unsigned(node.body, unsigned) or _is_unsigned(node.orelse, unsigned)
    return False


def _records(nodes: Sequence[ast.AST]) -> set[str]:
    """The names that stand for one record: fields of theirs are used, and all their values are elements."""
    attributes: dict[str, set[str]] = {}
    values: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes.setdefault(node.value.id, set()).add(node.attr)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
    return {
        name
        for name, used in attributes.items()
        if name in values and not used & _OF_ARRAYS and all(map(_is_element, values[name]))
    }


def _rows(nodes: Sequence[ast.AST]) -> set[str]:
    """The names of elements that have elements: rows of an array with two dimensions."""
    indexed = {n.value.id for n in nodes if isinstance(n, ast.Subscript) and _is_name(n.value)}
    elements = [n for n in nodes if isinstance(n, ast.Assign) and isinstance(n.value, ast.Subscript)]
    return {t.id for n in elements for t in n.targets if _is_name(t) and t.id in indexed}


def _is_element(value: ast.expr) -> bool:
    whole = isinstance(value, ast.Subscript) and not isinstance(value.slice, ast.Slice)
    return whole or isinstance(value, ast.Name)


def _called(node: ast.Call) -> str:
    """The function that is called, as `np.uint64`; empty if it is not named."""
    function = node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def _name(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _call(function: str, *args: ast.expr) -> ast.Call:
    return ast.Call(_name(function), list(args), [])


def _masked(node: ast.expr) -> ast.expr:
    return ast.BinOp(node, ast.BitAnd(), _name("_WORD"))


class _Rewriting(ast.NodeTransformer):
    def __init__(self, unsigned: set[str], records: set[str], rows: set[str]) -> None:
        self._unsigned, self._records, self._rows = unsigned, records, rows

    def _is_unsigned(self, node: ast.AST) -> bool:
        return _is_unsigned(node, self._unsigned)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list, node.returns = [], None
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
        self.generic_visit(node)
        return node

    # --- statements

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        (target, *others) = node.targets
        if not others and isinstance(target, ast.Name):
            if target.id in self._records:
                return self._place(target.id, node.value)
            if target.id in self._rows and isinstance(node.value, ast.Subscript):
                if not isinstance(node.value.slice, ast.Slice):
                    node.value = _call("_row", self.visit(node.value.value), self._index(node.value.slice))
                    return node
            if _wraps(node.value):
                node.value = self._operation(node.value)  # type: ignore[arg-type]
                return [node, *_wrapped_after(target.id)]
        if not others and isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
            self.generic_visit(node)
            target.value = _call("_array", target.value)
            node.value = _call("_array", node.value)
            return node
        unsigned = self._is_unsigned(node.value)
        self.generic_visit(node)
        if not others and isinstance(target, ast.Subscript) and unsigned:
            node.value = _call("_fitting", target.value, node.value)
        return node

    def _place(self, name: str, value: ast.expr) -> list[ast.stmt]:
        """A name of a record is two names: of the array, and of the place in it."""
        if isinstance(value, ast.Subscript):
            pair: tuple[ast.expr, ast.expr] = self.visit(value.value), self._index(value.slice)
        elif isinstance(value, ast.Name) and value.id in self._records:
            pair = _name(f"{value.id}__of"), _name(f"{value.id}__at")
        else:
            got = self.visit(value)
            pair = ast.Attribute(got, "of", ast.Load()), ast.Attribute(got, "at", ast.Load())
        return [
            ast.Assign([ast.Name(f"{name}__{part}", ast.Store())], found)
            for part, found in zip(("of", "at"), pair)
        ]

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        target = node.target
        division = isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, *_BITS))
        if isinstance(target, ast.Name) and (division or self._can_wrap(node.op, target, node.value)):
            whole = ast.BinOp(_name(target.id), node.op, node.value)
            return ast.Assign([target], self.visit(whole))
        unsigned = self._is_unsigned(node.value)
        self.generic_visit(node)
        if isinstance(target, ast.Subscript) and unsigned:
            read = ast.Subscript(target.value, target.slice, ast.Load())
            whole = ast.BinOp(read, node.op, node.value)
            return ast.Assign([target], _call("_fitting", target.value, whole))
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        assert node.value is not None
        return self.visit(ast.Assign([node.target], node.value))  # type: ignore[no-any-return]

    # --- expressions

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._records and isinstance(node.ctx, ast.Load):
            return _call("_Record", _name(f"{node.id}__of"), _name(f"{node.id}__at"))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node.value = self.visit(node.value)
        node.slice = self._index(node.slice)
        return node

    def _index(self, index: ast.expr) -> ast.expr:
        """Places are unsigned only so that machine code does not test them for negative numbers."""
        if isinstance(index, ast.Tuple):
            return ast.Tuple([self._index(part) for part in index.elts], ast.Load())
        if isinstance(index, ast.Call) and _called(index) in ("np.uint64", "np.int64"):
            return self._index(index.args[0])
        found = self.visit(index)
        assert isinstance(found, ast.expr)
        return found

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        of = node.value
        if isinstance(of, ast.Name) and of.id in _OF_MODULES:
            return node
        if node.attr == "size":
            return _call("len", self.visit(of))
        if node.attr == "dtype":
            return ast.Attribute(_call("_array", self.visit(of)), "dtype", ast.Load())
        if node.attr in _OF_VIEWS:
            node.value = self.visit(of)
            return node
        if isinstance(of, ast.Name) and of.id in self._records:
            field = ast.Attribute(_name(f"{of.id}__of"), node.attr, ast.Load())
            return ast.Subscript(field, _name(f"{of.id}__at"), node.ctx)
        if isinstance(of, ast.Subscript):
            field = ast.Attribute(self.visit(of.value), node.attr, ast.Load())
            return ast.Subscript(field, self._index(of.slice), node.ctx)
        node.value = self.visit(of)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = _called(node)
        if _wraps(node):
            return _call("_wrapped", self._operation(node))
        if function == "np.uint64":
            (given,) = node.args
            if isinstance(given, ast.Constant) or self._is_unsigned(given):
                return self.visit(given)  # type: ignore[no-any-return]
            return _masked(self.visit(given))
        if function == "np.int64" and isinstance(node.args[0], ast.Compare):
            return _call("int", self.visit(node.args[0]))
        if function.startswith("np."):
            args = [self.visit(a) for a in node.args]
            if (cast := _CASTS.get(function[3:])) is not None:
                return _call(cast, *args)
            keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
            return ast.Call(_name("_by_numpy"), [node.func, *args], keywords)
        if isinstance(node.func, ast.Attribute) and not function.startswith("math."):
            keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
            method = ast.Attribute(_call("_array", self.visit(node.func.value)), node.func.attr, ast.Load())
            return ast.Call(_name("_by_numpy"), [method, *map(self.visit, node.args)], keywords)
        node.args = [self._argument(a) for a in node.args]
        node.keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        return node

    def _argument(self, node: ast.expr) -> ast.expr:
        """An argument of another kernel; `array[2]` may be a part with dimensions of its own."""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return _call("_row", self.visit(node.value), self._index(node.slice))
        found = self.visit(node)
        assert isinstance(found, ast.expr)
        return found

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        wraps = self._can_wrap(node.op, node.left, node.right)
        divisor = node.right
        if isinstance(node.op, _BITS):  # such as `x & -x`, which wraps for the lowest number
            node.left, node.right = self._bits(node.left), self._bits(node.right)
            return node
        self.generic_visit(node)
        if isinstance(node.op, ast.Div):
            return _call("_divided", node.left, node.right)
        if isinstance(node.op, ast.Pow):
            return _call("_power", node.left, node.right)
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)) and not _is_constant(divisor):
            name = "_floor_divided" if isinstance(node.op, ast.FloorDiv) else "_modulo"
            return _call(name, node.left, node.right)
        if isinstance(node.op, ast.LShift) and not wraps:
            return _call("_wrapped", node)
        return _masked(node) if wraps else node

    def _bits(self, node: ast.expr) -> ast.expr:
        computed = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub))
        negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        wraps = (computed or negated) and not self._is_unsigned(node)
        found = self.visit(node)
        return _call("_wrapped", found) if wraps else found

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        wraps = not isinstance(node.op, ast.Not) and self._is_unsigned(node.operand)
        self.generic_visit(node)
        return _masked(node) if wraps else node

    def _can_wrap(self, op: ast.operator, left: ast.expr, right: ast.expr) -> bool:
        """Return whether an operation on unsigned numbers may leave 64 bits; counting does not."""
        if not isinstance(op, _CAN_WRAP) or not (self._is_unsigned(left) or self._is_unsigned(right)):
            return False
        counts = isinstance(right, ast.Call) and isinstance(right.args[0], ast.Constant)
        return not (isinstance(op, ast.Add) and counts and right.args[0].value == 1)  # type: ignore[attr-defined]

    def _operation(self, node: ast.Call) -> ast.expr:
        assert isinstance(node.func, ast.Name)
        left, right = (self.visit(a) for a in node.args)
        return ast.BinOp(left, WRAPPING[node.func.id](), right)


def _wraps(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WRAPPING


def _wrapped_after(name: str) -> list[ast.stmt]:
    """Wrap a number that was assigned, if that is needed; to call a function takes longer."""
    inside = ast.Compare(_name("_LOW"), [ast.LtE(), ast.LtE()], [_name(name), _name("_HIGH")])
    wrapped = ast.Assign([ast.Name(name, ast.Store())], _call("_wrapped", _name(name)))
    return [ast.If(ast.UnaryOp(ast.Not(), inside), [wrapped], [])]


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value)
