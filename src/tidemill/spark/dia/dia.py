"""The fluent API: every method makes a node, or runs one."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidemill.core.errors import UserError
from tidemill.core.explanation import Explanation
from tidemill.spark.caching import holding
from tidemill.spark.dia import actions, file_sources, sources, writing
from tidemill.spark.dia.elements import spelled
from tidemill.spark.dia.explain import describe
from tidemill.spark.dia.group import group_by_key, group_to_index
from tidemill.spark.dia.join import join
from tidemill.spark.dia.local import (
    bernoulli_sample,
    cache,
    collapse,
    filter_,
    flat_map,
    keep,
    map_,
    union,
)
from tidemill.spark.dia.operation import Operation
from tidemill.spark.dia.order import concat, merge, rebalance, sort
from tidemill.spark.dia.picture import Graph, graph_of
from tidemill.spark.dia.positions import zip_, zip_with_index
from tidemill.spark.dia.prefix import prefix_sum
from tidemill.spark.dia.reduce import reduce_by_key, reduce_pair, reduce_to_index
from tidemill.spark.dia.sampling import sample
from tidemill.spark.dia.task_errors import clear_errors
from tidemill.spark.dia.tracing import Function
from tidemill.spark.dia.windows import window


class DIA:
    """A distributed, immutable, ordered array (paper 002, section 3.2).

    Elements are scalars, tuples or records (`e.name`, `e["name"]`), all of one type. Operations make
    new DIAs and are lazy; actions run jobs. A function is traced to an expression if possible and then
    runs in the JVM by the rules of Tidemill's expressions; others are opaque and run in Python, on
    Arrow batches; `explain` shows which. The result type of an opaque function is inferred from the
    first elements, which may start a job, unless `returns=` declares it.
    """

    def __init__(self, node: Operation) -> None:
        self._node = node

    def __repr__(self) -> str:
        return f"DIA of {spelled(self._node.kind)}:\n{describe(self._node)}"

    def explain(self) -> Explanation:
        """Show each operation by Spark stages: where it runs, what is shuffled, which order holds."""
        return Explanation({"stages": describe(self._node)})

    def graph(self) -> Graph:
        """The data-flow graph: `graph().dot` for Graphviz, `.svg` or `.save(path)` for an image."""
        return graph_of(self._node)

    # --- local operations: no shuffle -------------------------------------------------------------

    def map(self, function: Function, *, returns: Any = None) -> DIA:
        """Apply a function to each element. Order kept.

        Example: generate(spark, 3).map(lambda i: i * i).all_gather() == [0, 1, 4]
        """
        return DIA(map_(self._node, function, returns))

    def flat_map(self, function: Function, *, returns: Any = None) -> DIA:
        """Apply a function that returns a list to each element, and flatten. Order kept.

        Example: generate(spark, 3).flat_map(lambda i: [i, -i]).all_gather() == [0, 0, 1, -1, 2, -2]
        """
        return DIA(flat_map(self._node, function, returns))

    def filter(self, condition: Function) -> DIA:
        """Keep the elements for which a condition is true. Order kept.

        Example: generate(spark, 6).filter(lambda i: i % 2 == 0).all_gather() == [0, 2, 4]
        """
        return DIA(filter_(self._node, condition))

    def bernoulli_sample(self, p: float, seed: int | None = None) -> DIA:
        """Keep each element with probability p, independently. Order kept."""
        return DIA(bernoulli_sample(self._node, p, seed))

    def union(self, *others: DIA) -> DIA:
        """Unite the elements of several DIAs of one type. Order **not** kept: see `concat`."""
        return DIA(union(_nodes(self, others)))

    def cache(self) -> DIA:
        """Compute elements once, when first needed; then read them from memory or disk. Order kept.

        The cache lives as long as this DIA, or one made from it.
        """
        return DIA(cache(self._node))

    def collapse(self) -> DIA:
        """End the chain: Spark starts a new plan here, which keeps the plans of loops short. Order kept."""
        return DIA(collapse(self._node))

    def keep(self) -> DIA:
        """Return the same DIA. In Thrill, reading consumes a DIA; on Spark it does not."""
        return DIA(keep(self._node))

    # --- one element for each key -----------------------------------------------------------------

    def reduce_by_key(
        self, key: Function, reduce: Function, *, key_returns: Any = None, detect: str = "auto"
    ) -> DIA:
        """Reduce the elements of each key to one. Order **not** kept.

        The function must be associative and commutative. If it adds fields, or takes the smaller or
        greater (`tm.least`, `tm.greatest`), and keeps the fields of the key, it becomes aggregates in the
        JVM, which skip nulls. Any other function is folded in Python before the shuffle and again after it.
        `detect` is as in `tidemill.spark.exchange`.

        Example: sorted(generate(spark, 6).reduce_by_key(lambda i: i % 2, max).all_gather()) == [4, 5]
        """
        made = reduce_by_key(self._node, key, reduce, key_returns=key_returns, detect=detect)
        return DIA(made)

    def reduce_pair(self, reduce: Function, *, detect: str = "auto") -> DIA:
        """`reduce_by_key` of pairs (key, value); the function reduces values. Order **not** kept."""
        return DIA(reduce_pair(self._node, reduce, detect=detect))

    def reduce_to_index(
        self,
        index: Function,
        reduce: Function,
        n: int,
        neutral: Any = None,
        *,
        detect: str = "auto",
    ) -> DIA:
        """Make n elements: at each index the fold of its elements, or the neutral element.

        The result is ordered by index. An index outside [0, n) is an error. Without `neutral`, gaps are null.

        Example: generate(spark, 4).reduce_to_index(lambda i: i % 2, max, 3, -1).all_gather() == [2, 3, -1]
        """
        return DIA(reduce_to_index(self._node, index, reduce, n, neutral, detect=detect))

    def group_by_key(
        self, key: Function, function: Function, *, returns: Any = None, key_returns: Any = None,
        detect: str = "auto",
    ) -> DIA:  # fmt: skip
        """Make one element for each key from the list of its elements. Order **not** kept.

        The function takes the list, or the list and the key. All elements are shuffled: use
        `reduce_by_key` if it suffices, because it is cheaper.

        Example: generate(spark, 4).group_by_key(lambda i: i // 9, len).all_gather() == [4]
        """
        made = group_by_key(
            self._node, key, function, returns, key_returns=key_returns, detect=detect
        )
        return DIA(made)

    def group_to_index(
        self, index: Function, function: Function, n: int, neutral: Any = None, *,
        returns: Any = None, detect: str = "auto",
    ) -> DIA:  # fmt: skip
        """Make n elements: at each index the result of a function of the list of its elements.

        The result is ordered by index. An index outside [0, n) is an error. Without `neutral`, gaps are null.

        Example: generate(spark, 5).group_to_index(lambda i: i % 2, sum, 3, 0).all_gather() == [6, 4, 0]
        """
        made = group_to_index(self._node, index, function, n, neutral, returns, detect=detect)
        return DIA(made)

    # --- joins ------------------------------------------------------------------------------------

    def inner_join(
        self, other: DIA, key1: Function, key2: Function, function: Function, *,
        returns: Any = None, detect: str = "auto",
    ) -> DIA:  # fmt: skip
        """Apply a function to each pair of elements with equal keys. Order **not** kept.

        A null key matches nothing.
        """
        nodes = self._node, other._node
        return DIA(join(*nodes, key1, key2, function, returns=returns, detect=detect))

    def outer_join(
        self, other: DIA, key1: Function, key2: Function, function: Function, *,
        how: str = "full", returns: Any = None, detect: str = "auto",
    ) -> DIA:  # fmt: skip
        """Like `inner_join`, and keep elements of the "left", the "right" or both ("full") without a match:
        their partner has null in every field. Order **not** kept.
        """
        nodes = self._node, other._node
        return DIA(join(*nodes, key1, key2, function, how=how, returns=returns, detect=detect))

    # --- order ------------------------------------------------------------------------------------

    def sort(
        self, by: Function | None = None, *, descending: bool = False, key_returns: Any = None
    ) -> DIA:
        """Sort by a key, or by a comparison `less(a, b)`; the sort is stable.

        A comparison of one expression with itself, as in `lambda a, b: a[1] > b[1]`, is a key. Null
        sorts first, NaN after every number.

        Example: generate(spark, 4).sort(lambda a, b: a > b).all_gather() == [3, 2, 1, 0]
        """
        return DIA(sort(self._node, by, descending=descending, key_returns=key_returns))

    def merge(self, *others: DIA, by: Function | None = None, descending: bool = False) -> DIA:
        """Merge sorted DIAs into one; of equal elements, those of earlier DIAs come first."""
        return DIA(merge(_nodes(self, others), by, descending=descending))

    def concat(self, *others: DIA) -> DIA:
        """Concatenate DIAs. Order kept, without a shuffle: partitions are appended."""
        return DIA(concat(_nodes(self, others)))

    def rebalance(self, parts: int | None = None) -> DIA:
        """Distribute the elements evenly over partitions. Order kept."""
        return DIA(rebalance(self._node, parts))

    # --- positions --------------------------------------------------------------------------------

    def prefix_sum(self, function: Function | None = None, initial: Any = None) -> DIA:
        """Replace each element by the fold of all elements up to it. Order kept; only totals are sent.

        By default, numbers are added. The function must be associative, but need not be commutative.

        Example: generate(spark, 4).prefix_sum().all_gather() == [0, 1, 3, 6]
        """
        return DIA(prefix_sum(self._node, function, initial))

    def zip(
        self,
        *others: DIA,
        function: Function | None = None,
        how: str = "error",
        returns: Any = None,
    ) -> DIA:
        """Apply a function to the elements at the same index; by default, make a tuple. Order kept.

        Different lengths are an error, unless `how` is "cut" (end with the shortest) or "pad" (missing
        elements have null in every field).
        """
        return DIA(zip_(_nodes(self, others), function, how=how, returns=returns))

    def zip_with_index(self, function: Function | None = None, *, returns: Any = None) -> DIA:
        """Apply a function to (index, element); by default, make that pair. Order kept.

        Example: generate(spark, 2).zip_with_index(lambda i, e: i + e).all_gather() == [0, 2]
        """
        return DIA(zip_with_index(self._node, function, returns))

    def window(self, k: int, function: Function, *, every: int = 1, returns: Any = None) -> DIA:
        """Apply a function to each list of k consecutive elements. Order kept.

        Windows start at each element, or every `every` elements; with `every=k` they are disjoint. Windows
        with fewer than k elements are left out.

        Example: generate(spark, 4).window(2, lambda w: w[1] - w[0]).all_gather() == [1, 1, 1]
        """
        return DIA(window(self._node, k, function, returns, every=every))

    def flat_window(
        self, k: int, function: Function, *, every: int = 1, returns: Any = None
    ) -> DIA:
        """Like `window`, for a function that returns a list of elements. Order kept."""
        return DIA(window(self._node, k, function, returns, every=every, flat=True))

    def sample(self, n: int, seed: int | None = None) -> DIA:
        """Sample n elements, every subset equally likely. Order **not** kept."""
        return DIA(sample(self._node, n, seed))

    # --- actions ----------------------------------------------------------------------------------

    def execute(self) -> DIA:
        """Compute all elements now, cache them, and return a DIA that starts from them."""
        return DIA(actions.execute(self._node))

    def size(self) -> int:
        """The number of elements."""
        return actions.size(self._node)

    def all_gather(self) -> list[Any]:
        """All elements in order, in the memory of the driver."""
        return actions.all_gather(self._node)

    def sum(self, function: Function | None = None, initial: Any = None) -> Any:
        """The sum of all elements, by + or by a function; the initial value if there are none."""
        return actions.sum_(self._node, function, initial)

    def min(self) -> Any:
        """The smallest element, or None. Tuples are compared by their first difference."""
        return actions.extreme(self._node, "min")

    def max(self) -> Any:
        """The greatest element, or None. Tuples are compared by their first difference."""
        return actions.extreme(self._node, "max")

    def all_reduce(self, reduce: Function, initial: Any = None) -> Any:
        """Fold all elements into one, in order, by an associative function, commutative or not."""
        return actions.all_reduce(self._node, reduce, initial)

    def hyperloglog(self, lg_k: int = 12) -> int:
        """Estimate the number of distinct elements; the relative error is about 0.8 / 2**(lg_k/2)."""
        return actions.hyperloglog(self._node, lg_k)

    def write_lines(
        self, path: str | os.PathLike[str], *, one_file: bool = False,
        file_bytes: int = writing.FILE_BYTES,
    ) -> list[str]:  # fmt: skip
        """Write strings as lines of text, to a new directory of files named in order, or to one file.

        Files have at most `file_bytes`, unless a line is longer. One rename makes all of them visible; a
        failed write leaves none. Every worker must reach the path.
        """
        return writing.write_lines(self._node, path, one_file=one_file, file_bytes=file_bytes)

    def write_binary(
        self, path: str | os.PathLike[str], *, one_file: bool = False,
        file_bytes: int = writing.FILE_BYTES,
    ) -> list[str]:  # fmt: skip
        """Write elements as Arrow IPC files, which `read_binary` reads; see `write_lines`."""
        return writing.write_binary(self._node, path, one_file=one_file, file_bytes=file_bytes)

    def to_frame(self) -> DataFrame:
        """The elements as a DataFrame: columns `value`, `f0, f1, …`, or the fields of records."""
        with clear_errors("to_frame"):
            return holding(self._node.frame.select("*"), self._node)

    def to_arrow(self) -> pa.Table:
        """All elements as an Arrow table, in order, in the memory of the driver."""
        return actions.to_arrow(self._node)


def _nodes(first: DIA, others: tuple[Any, ...]) -> list[Operation]:
    for other in others:
        if not isinstance(other, DIA):
            hint = "pass several DIAs as separate arguments: a.zip(b, c)"
            raise UserError("DIA", expected="other DIAs", got=repr(other)[:80], hint=hint)
    return [first._node, *(other._node for other in others)]


# --- sources --------------------------------------------------------------------------------------


def generate(
    spark: SparkSession, n: int, g: Function | None = None, *, returns: Any = None,
    parts: int | None = None,
) -> DIA:  # fmt: skip
    """Make the indexes 0 … n-1, or the results of a function of each, in order.

    Example: generate(spark, 3, lambda i: (i, 1.0 / 3)).all_gather()[2] == (2, 1.0 / 3)
    """
    return DIA(sources.generate(spark, n, g, returns=returns, parts=parts))


def read_lines(spark: SparkSession, path: str | os.PathLike[str]) -> DIA:
    """Read the lines of a file, of all files of a directory, or of files that match a pattern.

    Lines are in the order of file names, then as in the file. Lines end with a newline, a carriage
    return, or both. Files such as `x.gz` are decompressed.
    """
    return DIA(file_sources.read_lines(spark, path))


def read_binary(spark: SparkSession, path: str | os.PathLike[str]) -> DIA:
    """Read a DIA that `write_binary` wrote. Every worker must reach the path."""
    return DIA(file_sources.read_binary(spark, path))


def from_frame(df: DataFrame) -> DIA:
    """Make elements from the rows of a DataFrame, in Spark's order.

    A single column `value` gives scalars, columns `f0, f1, …` tuples, others records.
    """
    return DIA(sources.from_frame(df))
