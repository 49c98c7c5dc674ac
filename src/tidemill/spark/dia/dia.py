"""The fluent surface: every method makes a node, or runs one."""

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
    new DIAs and run nothing; actions do. A function is traced to an expression where that goes and
    then runs in the JVM by the rules of Tidemill's expressions; others run in Python, on Arrow
    batches, and `explain` says which. The type of what an opaque function returns is read off the
    first elements, which may start a job, unless `returns=` says it.
    """

    def __init__(self, node: Operation) -> None:
        self._node = node

    def __repr__(self) -> str:
        return f"DIA of {spelled(self._node.kind)}:\n{describe(self._node)}"

    def explain(self) -> Explanation:
        """Each operation by stages of Spark: where it runs, what travels, which order there is."""
        return Explanation({"stages": describe(self._node)})

    def graph(self) -> Graph:
        """The data-flow graph: `graph().dot` for Graphviz, `.svg` or `.save(path)` for a picture."""
        return graph_of(self._node)

    # --- local operations: nothing travels --------------------------------------------------------

    def map(self, function: Function, *, returns: Any = None) -> DIA:
        """Each element becomes another. Order kept.

        Example: generate(spark, 3).map(lambda i: i * i).all_gather() == [0, 1, 4]
        """
        return DIA(map_(self._node, function, returns))

    def flat_map(self, function: Function, *, returns: Any = None) -> DIA:
        """Each element becomes those of the list that a function makes of it. Order kept.

        Example: generate(spark, 3).flat_map(lambda i: [i, -i]).all_gather() == [0, 0, 1, -1, 2, -2]
        """
        return DIA(flat_map(self._node, function, returns))

    def filter(self, condition: Function) -> DIA:
        """The elements for which a condition is true. Order kept.

        Example: generate(spark, 6).filter(lambda i: i % 2 == 0).all_gather() == [0, 2, 4]
        """
        return DIA(filter_(self._node, condition))

    def bernoulli_sample(self, p: float, seed: int | None = None) -> DIA:
        """Each element with probability p, independently. Order kept."""
        return DIA(bernoulli_sample(self._node, p, seed))

    def union(self, *others: DIA) -> DIA:
        """The elements of several DIAs of one type. Order **not** kept: see `concat`."""
        return DIA(union(_nodes(self, others)))

    def cache(self) -> DIA:
        """Computed once, when first needed; then read from memory or disk. Order kept.

        It is held as long as this DIA, or one made from it, is.
        """
        return DIA(cache(self._node))

    def collapse(self) -> DIA:
        """Ends the chain: Spark's plan starts afresh here, which keeps loops short. Order kept."""
        return DIA(collapse(self._node))

    def keep(self) -> DIA:
        """The same DIA. In Thrill reading consumes a DIA; on Spark it does not."""
        return DIA(keep(self._node))

    # --- one element for each key -----------------------------------------------------------------

    def reduce_by_key(
        self, key: Function, reduce: Function, *, key_returns: Any = None, detect: str = "auto"
    ) -> DIA:
        """One element for each key: those that have it, folded. Order **not** kept.

        The function must be associative and commutative. One that adds fields, or takes the smaller or
        greater (`tm.least`, `tm.greatest`), and keeps those of the key becomes aggregates in the
        JVM, which skip nulls; any other is folded in Python where the elements are, and again after
        they have met. `detect` is that of `tidemill.spark.exchange`.

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
        """n elements: at each index the fold of those that have it, else the neutral one.

        In order of the index. An index outside [0, n) is an error. Without `neutral` a gap is null.

        Example: generate(spark, 4).reduce_to_index(lambda i: i % 2, max, 3, -1).all_gather() == [2, 3, -1]
        """
        return DIA(reduce_to_index(self._node, index, reduce, n, neutral, detect=detect))

    def group_by_key(
        self, key: Function, function: Function, *, returns: Any = None, key_returns: Any = None,
        detect: str = "auto",
    ) -> DIA:  # fmt: skip
        """One element for each key, made from the list of all that have it. Order **not** kept.

        The function takes the list, or the list and the key. All elements travel: where a
        `reduce_by_key` does, it is cheaper.

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
        """n elements: at each index what is made from the list of elements that have it.

        In order of the index. An index outside [0, n) is an error. Without `neutral` a gap is null.

        Example: generate(spark, 5).group_to_index(lambda i: i % 2, sum, 3, 0).all_gather() == [6, 4, 0]
        """
        made = group_to_index(self._node, index, function, n, neutral, returns, detect=detect)
        return DIA(made)

    # --- joins ------------------------------------------------------------------------------------

    def inner_join(
        self, other: DIA, key1: Function, key2: Function, function: Function, *,
        returns: Any = None, detect: str = "auto",
    ) -> DIA:  # fmt: skip
        """What a function makes of each pair of elements with equal keys. Order **not** kept.

        A null key equals none.
        """
        nodes = self._node, other._node
        return DIA(join(*nodes, key1, key2, function, returns=returns, detect=detect))

    def outer_join(
        self, other: DIA, key1: Function, key2: Function, function: Function, *,
        how: str = "full", returns: Any = None, detect: str = "auto",
    ) -> DIA:  # fmt: skip
        """Like `inner_join`, with the elements of the "left", the "right" or both ("full") that match
        none: beside them stands an element with null in every field. Order **not** kept.
        """
        nodes = self._node, other._node
        return DIA(join(*nodes, key1, key2, function, how=how, returns=returns, detect=detect))

    # --- order ------------------------------------------------------------------------------------

    def sort(
        self, by: Function | None = None, *, descending: bool = False, key_returns: Any = None
    ) -> DIA:
        """In order of a key, or by a comparison `less(a, b)`; equal elements stay as they were.

        A comparison of one expression with itself, as in `lambda a, b: a[1] > b[1]`, is a key. Null
        is below everything, NaN above every number.

        Example: generate(spark, 4).sort(lambda a, b: a > b).all_gather() == [3, 2, 1, 0]
        """
        return DIA(sort(self._node, by, descending=descending, key_returns=key_returns))

    def merge(self, *others: DIA, by: Function | None = None, descending: bool = False) -> DIA:
        """Sorted DIAs as one sorted DIA; of equal elements, those of the first DIA come first."""
        return DIA(merge(_nodes(self, others), by, descending=descending))

    def concat(self, *others: DIA) -> DIA:
        """One DIA after the other. Order kept, and nothing travels: partitions follow one another."""
        return DIA(concat(_nodes(self, others)))

    def rebalance(self, parts: int | None = None) -> DIA:
        """The same elements, equally many in each partition. Order kept."""
        return DIA(rebalance(self._node, parts))

    # --- positions --------------------------------------------------------------------------------

    def prefix_sum(self, function: Function | None = None, initial: Any = None) -> DIA:
        """Each element becomes the fold of all up to it. Order kept; only totals travel.

        Without a function, numbers are added. It must be associative, and need not be commutative.

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
        """What a function makes of the elements at the same index; without one, a tuple. Order kept.

        Different lengths are an error, unless `how` is "cut" (the shortest ends it) or "pad"
        (what is missing has null in every field).
        """
        return DIA(zip_(_nodes(self, others), function, how=how, returns=returns))

    def zip_with_index(self, function: Function | None = None, *, returns: Any = None) -> DIA:
        """What a function makes of (index, element); without one, that pair. Order kept.

        Example: generate(spark, 2).zip_with_index(lambda i, e: i + e).all_gather() == [0, 2]
        """
        return DIA(zip_with_index(self._node, function, returns))

    def window(self, k: int, function: Function, *, every: int = 1, returns: Any = None) -> DIA:
        """What a function makes of each list of k elements that follow one another. Order kept.

        Windows start at each element, or at `every` n-th; with `every=k` they are disjoint. There is
        none with fewer than k elements.

        Example: generate(spark, 4).window(2, lambda w: w[1] - w[0]).all_gather() == [1, 1, 1]
        """
        return DIA(window(self._node, k, function, returns, every=every))

    def flat_window(
        self, k: int, function: Function, *, every: int = 1, returns: Any = None
    ) -> DIA:
        """Like `window`, for a function that makes a list of elements. Order kept."""
        return DIA(window(self._node, k, function, returns, every=every, flat=True))

    def sample(self, n: int, seed: int | None = None) -> DIA:
        """n of the elements, every subset equally likely. Order **not** kept."""
        return DIA(sample(self._node, n, seed))

    # --- actions ----------------------------------------------------------------------------------

    def execute(self) -> DIA:
        """Computes all elements now, keeps them, and gives a DIA that starts from them."""
        return DIA(actions.execute(self._node))

    def size(self) -> int:
        """How many elements there are."""
        return actions.size(self._node)

    def all_gather(self) -> list[Any]:
        """All elements in order, in the memory of the driver."""
        return actions.all_gather(self._node)

    def sum(self, function: Function | None = None, initial: Any = None) -> Any:
        """The sum of all elements, by + or by a function; of none, the initial value."""
        return actions.sum_(self._node, function, initial)

    def min(self) -> Any:
        """The smallest element, or None. Tuples are compared by their first difference."""
        return actions.extreme(self._node, "min")

    def max(self) -> Any:
        """The greatest element, or None. Tuples are compared by their first difference."""
        return actions.extreme(self._node, "max")

    def all_reduce(self, reduce: Function, initial: Any = None) -> Any:
        """All elements folded into one, in order, by an associative function, commutative or not."""
        return actions.all_reduce(self._node, reduce, initial)

    def hyperloglog(self, lg_k: int = 12) -> int:
        """About how many different elements there are; off by about 0.8 / 2**(lg_k/2)."""
        return actions.hyperloglog(self._node, lg_k)

    def write_lines(
        self, path: str | os.PathLike[str], *, one_file: bool = False,
        file_bytes: int = writing.FILE_BYTES,
    ) -> list[str]:  # fmt: skip
        """Strings as lines of text: a new directory of files whose names are in order, or one file.

        Files have at most `file_bytes`, unless a line is longer. They appear all together by a rename,
        or not at all. Every worker must reach the path.
        """
        return writing.write_lines(self._node, path, one_file=one_file, file_bytes=file_bytes)

    def write_binary(
        self, path: str | os.PathLike[str], *, one_file: bool = False,
        file_bytes: int = writing.FILE_BYTES,
    ) -> list[str]:  # fmt: skip
        """Elements as Arrow IPC files, of which `read_binary` makes the same DIA; see `write_lines`."""
        return writing.write_binary(self._node, path, one_file=one_file, file_bytes=file_bytes)

    def to_frame(self) -> DataFrame:
        """The DataFrame of the elements: columns `value`, `f0, f1, …`, or those of records."""
        with clear_errors("to_frame"):
            return holding(self._node.frame.select("*"), self._node)

    def to_arrow(self) -> pa.Table:
        """All elements as an Arrow table, in order, in the memory of the driver."""
        return actions.to_arrow(self._node)


def _nodes(first: DIA, others: tuple[Any, ...]) -> list[Operation]:
    for other in others:
        if not isinstance(other, DIA):
            hint = "several are written one after the other: a.zip(b, c)"
            raise UserError("DIA", expected="other DIAs", got=repr(other)[:80], hint=hint)
    return [first._node, *(other._node for other in others)]


# --- sources --------------------------------------------------------------------------------------


def generate(
    spark: SparkSession, n: int, g: Function | None = None, *, returns: Any = None,
    parts: int | None = None,
) -> DIA:  # fmt: skip
    """The indexes 0 … n-1, or what a function makes of each, in order.

    Example: generate(spark, 3, lambda i: (i, 1.0 / 3)).all_gather()[2] == (2, 1.0 / 3)
    """
    return DIA(sources.generate(spark, n, g, returns=returns, parts=parts))


def read_lines(spark: SparkSession, path: str | os.PathLike[str]) -> DIA:
    """The lines of a file, of all files of a directory, or of those that match a pattern.

    In the order of the file names, and of lines in a file. Lines end with a newline, a carriage
    return, or both. Files such as `x.gz` are decompressed.
    """
    return DIA(file_sources.read_lines(spark, path))


def read_binary(spark: SparkSession, path: str | os.PathLike[str]) -> DIA:
    """The DIA that `write_binary` wrote. Every worker must reach the path."""
    return DIA(file_sources.read_binary(spark, path))


def from_frame(df: DataFrame) -> DIA:
    """The rows of a DataFrame, in the order in which Spark has them.

    One column `value` gives scalars, columns `f0, f1, …` tuples, others records.
    """
    return DIA(sources.from_frame(df))
