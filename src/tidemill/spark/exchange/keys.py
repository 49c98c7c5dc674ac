"""Check keys, and hash them to 64 bits with Spark expressions."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core.errors import UserError
from tidemill.spark.expr.values import canonical, named
from tidemill.spark.frames import require_classic_batch
from tidemill.spark.names import alike, check_not_ours, folded
from tidemill.spark.settings import case_matters


def checked_keys(step: str, df: DataFrame, keys: Sequence[str]) -> tuple[str, ...]:
    """Check the names of key columns: each must exist once, and Spark must be able to hash it."""
    if isinstance(keys, str):
        keys = (keys,)
    given: object = keys
    if isinstance(given, Column) or not all(isinstance(k, str) for k in keys):
        what = "the names of key columns, which both sides of a join have"
        raise UserError(step, expected=what, got=str(given))
    if not keys:
        raise UserError(step, expected="the names of key columns", got="none")
    require_classic_batch(step, df)
    check_not_ours(step, df.columns)
    if not case_matters(df.sparkSession):
        for key in set(keys) & set(alike(df.columns)):
            others = [c for c in df.columns if folded(c) == folded(key)]
            raise UserError(
                step, expected=f"one column {key!r}", got=f"columns {others}, which Spark cannot tell apart",
                hint="rename one of them",
            )  # fmt: skip
    for key in keys:
        found = [f for f in df.schema.fields if f.name == key]
        if len(found) != 1:
            what = "several columns of that name" if found else f"columns {df.columns}"
            raise UserError(step, expected=f"a key column {key!r}", got=what)
        if _holds(found[0].dataType, (T.MapType, T.VariantType)):
            raise UserError(
                step, expected=f"a key {key!r} that can be hashed",
                got=found[0].dataType.simpleString(),
                hint="a map has no order: use its sorted entries, "
                f"F.array_sort(F.map_entries({key!r}))",
            )  # fmt: skip
    return tuple(keys)


def why_no_hash(df: DataFrame, keys: Sequence[str]) -> str | None:
    """The reason why equal keys might get different hashes; None if they cannot."""
    for key in keys:
        kind = df.schema[key].dataType
        nested = isinstance(kind, (T.ArrayType, T.StructType))
        if nested and _holds(kind, (T.FloatType, T.DoubleType)):
            return f"key {key!r} contains floats, of which 0.0 equals -0.0"
        if _is_collated(kind):
            return f"key {key!r} is compared by a collation"
    return None


def common_types(step: str, left: DataFrame, right: DataFrame, keys: Sequence[str]) -> list[T.DataType]:
    """The types in which keys of two sides are compared."""
    found = []
    for key in keys:
        a, b = left.schema[key].dataType, right.schema[key].dataType
        if a.simpleString() == b.simpleString():  # nullability inside the type does not matter
            found.append(a)
        elif isinstance(a, T.NumericType) and isinstance(b, T.NumericType):
            found.append(left.select(named(key)).union(right.select(named(key))).schema[0].dataType)
        else:
            raise UserError(
                step, expected=f"keys {key!r} of one type on both sides",
                got=f"{a.simpleString()} and {b.simpleString()}", hint="cast one of them",
            )  # fmt: skip
    return found


def hash_of(keys: Sequence[str], kinds: Sequence[T.DataType]) -> Column:
    """A 64-bit hash of a row's keys: keys that Spark considers equal have equal hashes."""
    return F.xxhash64(*(_plain(named(k).cast(t), t) for k, t in zip(keys, kinds)))


def _plain(value: Column, kind: T.DataType) -> Column:
    if not isinstance(kind, (T.FloatType, T.DoubleType)):
        return value
    return canonical(value).cast(kind)


def row_bytes(df: DataFrame) -> float:
    """The bytes of a row, guessed from types: exact enough to find the side with wider rows."""
    return sum(_SIZES.get(type(f.dataType), 8.0) for f in df.schema.fields)


_SIZES: dict[type[T.DataType], float] = {
    T.StringType: 20.0, T.BinaryType: 100.0, T.ArrayType: 100.0, T.StructType: 40.0, T.MapType: 100.0,
}  # fmt: skip


def any_null(keys: Sequence[str]) -> Column:
    """Whether a key of a row is null, so that it has no partner in a join."""
    found = named(keys[0]).isNull()
    for key in keys[1:]:
        found = found | named(key).isNull()
    return found


def _is_collated(kind: T.DataType) -> bool:
    if isinstance(kind, T.StringType):
        return not kind.isUTF8BinaryCollation()
    if isinstance(kind, T.ArrayType):
        return _is_collated(kind.elementType)
    return isinstance(kind, T.StructType) and any(_is_collated(f.dataType) for f in kind.fields)


def _holds(kind: T.DataType, kinds: tuple[type[T.DataType], ...]) -> bool:
    if isinstance(kind, kinds):
        return True
    if isinstance(kind, T.ArrayType):
        return _holds(kind.elementType, kinds)
    if isinstance(kind, T.StructType):
        return any(_holds(f.dataType, kinds) for f in kind.fields)
    return False
