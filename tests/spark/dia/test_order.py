"""Operations that make, keep and use an order, over several partitions and adaptive execution."""

from __future__ import annotations

import random
from functools import cmp_to_key
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.examples import examples
from tidemill.core.errors import UserError
from tidemill.spark.dia import generate

few = examples(1, of=3, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
layouts = st.lists(st.lists(st.integers(-9, 9), max_size=5), min_size=1, max_size=4)


def flat(layout: list[list[Any]]) -> list[Any]:
    return [x for part in layout for x in part]


def shuffled(spark: Any, n: int) -> tuple[Any, list[int]]:
    """A DIA behind a shuffle, whose partitions adaptive execution merges."""
    values = list(range(n))
    random.Random(n).shuffle(values)
    dia = generate(spark, n, parts=4).map(lambda i: (values[i], i), returns=(int, int))
    return dia.sort(lambda e: e[0]), [(v, i) for v, i in sorted(zip(values, range(n)))]


@few
@given(layout=layouts, descending=st.booleans())
def test_sort_is_stable(dia_of: Any, layout: list[list[int]], descending: bool) -> None:
    number = iter(range(1000))
    tagged = [[(x // 3, next(number)) for x in part] for part in layout]
    dia = dia_of(tagged, (int, int)).sort(lambda e: e[0], descending=descending)
    sign = -1 if descending else 1
    assert dia.all_gather() == sorted(flat(tagged), key=lambda e: sign * e[0])


def test_sorts_by_comparison(spark: Any, dia_of: Any) -> None:
    words = ["bb", "a", "ccc", "dd", "", "e", "ff", None]
    dia = dia_of([words[:3], [], words[3:]], str)
    assert dia.sort().all_gather() == [None, "", "a", "bb", "ccc", "dd", "e", "ff"]
    down = dia.sort(lambda a, b: a > b)
    assert down._node.runs == "JVM"
    assert down.all_gather() == ["ff", "e", "dd", "ccc", "bb", "a", "", None]
    assert dia.sort(lambda a, b: b.len() >= a.len())._node.function == "by length(col.value)"
    less = lambda a, b: len(a or "") < len(b or "")
    opaque = dia.sort(less)
    assert opaque._node.runs == "Arrow batches"
    want = sorted(words, key=cmp_to_key(lambda a, b: -1 if less(a, b) else int(less(b, a))))
    assert opaque.all_gather() == want
    assert dia.sort(lambda w: len(w or "")).all_gather() == want
    assert dia.sort(lambda w: len(w or ""), descending=True).all_gather() == sorted(
        words, key=lambda w: -len(w or "")
    )
    with pytest.raises(UserError, match="sort: expected a key or a comparison"):
        dia.sort("f0")


def test_sort_after_sort_keeps_the_first_among_equals(spark: Any) -> None:
    dia = generate(spark, 30, lambda i: (i % 3, i * 7 % 30), parts=4)
    twice = dia.sort(lambda e: e[1]).sort(lambda e: e[0])
    assert twice.all_gather() == sorted((i % 3, i * 7 % 30) for i in range(30))


def test_merge_takes_the_first_of_equals_first(dia_of: Any) -> None:
    a, b, c = [(1, "a"), (3, "a"), (3, "A")], [(1, "b"), (3, "b")], [(0, "c")]
    first, second = dia_of([a[:1], a[1:]], (int, str)), dia_of([b], (int, str))
    merged = first.merge(second, dia_of([c], (int, str)), by=lambda e: e[0])
    assert merged.all_gather() == sorted(a + b + c, key=lambda e: e[0])


def test_concat_follows_the_partitions(spark: Any, dia_of: Any) -> None:
    sorted_, want = shuffled(spark, 40)
    both = sorted_.concat(sorted_, dia_of([[(-1, -1)], []], (int, int)))
    assert both.all_gather() == [*want, *want, (-1, -1)]
    # Two that Spark knows to be partitioned alike it would unite partition by partition.
    ones = generate(spark, 40).map(lambda i: (i % 9, 1)).reduce_pair(lambda a, b: a + b)
    tagged = ones.map(lambda e: (e[0], 0)).concat(ones.map(lambda e: (e[0], 1)))
    assert [e[1] for e in tagged.all_gather()] == [0] * 9 + [1] * 9
    indexed = sorted_.zip_with_index().concat(sorted_.zip_with_index())
    assert [i for i, _ in indexed.all_gather()] == [*range(40), *range(40)]


@few
@given(layout=layouts)
def test_positions(dia_of: Any, layout: list[list[int]]) -> None:
    dia, values = dia_of(layout), flat(layout)
    assert dia.zip_with_index().all_gather() == list(enumerate(values))
    assert dia.prefix_sum().all_gather() == list(accumulate(values))
    assert dia.rebalance(3).all_gather() == values


@pytest.mark.soak
def test_positions_behind_a_shuffle(spark: Any) -> None:
    dia, want = shuffled(spark, 60)
    assert dia.to_frame().rdd.getNumPartitions() > 1
    assert dia.zip_with_index(lambda i, e: (i, e[0])).all_gather() == [(i, i) for i in range(60)]
    pairs = dia.prefix_sum(lambda a, b: (a[0] + b[0], max(a[1], b[1])))
    assert pairs.all_gather() == list(accumulate(want, lambda a, b: (a[0] + b[0], max(a[1], b[1]))))
    reversed_ = dia.sort(lambda a, b: a[0] > b[0])
    zipped = dia.zip(reversed_, function=lambda a, b: a[0] + b[0])
    assert zipped._node.runs == "JVM"
    assert zipped.all_gather() == [59] * 60
    assert dia.map(lambda e: e[0]).window(3, lambda w: w[2] - w[0]).all_gather() == [2] * 58
    even = dia.rebalance(4)
    assert even.all_gather() == want
    assert [len(p) for p in even.to_frame().rdd.glom().collect()] == [15] * 4


def test_two_passes_over_what_has_no_order_of_its_own(spark: Any) -> None:
    counts = generate(spark, 50, parts=4).map(lambda i: (i % 20, 1)).reduce_pair(lambda a, b: a + b)
    numbered = counts.zip_with_index().all_gather()
    assert [i for i, _ in numbered] == list(range(20))
    assert sorted(e[0] for _, e in numbered) == list(range(20))
    pairs = counts.map(lambda e: e[0]).window(2, lambda w: w[0]).all_gather()
    assert len(set(pairs)) == 19


def test_prefix_sums(spark: Any, dia_of: Any) -> None:
    words = dia_of([["a", "b"], [], ["c"]], str)
    assert words.prefix_sum(lambda a, b: a + b, initial=">").all_gather() == [">a", ">ab", ">abc"]
    assert dia_of([[3, 5], [1]]).prefix_sum(min, initial=4).all_gather() == [3, 3, 1]
    assert dia_of([[1, None], [2]]).prefix_sum().all_gather() == [1, None, None]
    big = 2**62
    with pytest.raises(UserError, match="int64"):
        dia_of([[big, big]]).prefix_sum().all_gather()
    with pytest.raises(UserError, match="int64"):
        dia_of([[big], [big]]).prefix_sum().all_gather()
    with pytest.raises(UserError, match="prefix_sum: expected numbers, got string"):
        words.prefix_sum()


@pytest.mark.soak
def test_more_prefix_sums(dia_of: Any) -> None:
    assert dia_of([[3, 5], [4, 9], [1]]).prefix_sum(max).all_gather() == [3, 5, 5, 9, 9]
    assert dia_of([[1.5], [2.0]], float).prefix_sum(initial=1).all_gather() == [2.5, 4.5]


def test_zip_states_what_it_does_with_other_lengths(spark: Any) -> None:
    three, five = generate(spark, 3), generate(spark, 5, lambda i: (i, str(i)), parts=2)
    with pytest.raises(UserError, match=r"zip: expected DIAs of one length, got lengths \[3, 5\]"):
        three.zip(five).all_gather()
    assert three.zip(five, how="cut").all_gather() == [(i, (i, str(i))) for i in range(3)]
    cut = five.zip(three, five, how="cut", function=lambda a, b, c: (a[0], b, c[1]))
    assert cut.all_gather() == [(i, i, str(i)) for i in range(3)]
    pad = three.zip(five, three, how="pad", function=lambda a, b, c: (a, b[0], c))
    assert pad.all_gather() == [(0, 0, 0), (1, 1, 1), (2, 2, 2), (None, 3, None), (None, 4, None)]
    opaque = three.zip(three, function=lambda a, b: f"{a}{b}")
    assert opaque.all_gather() == ["00", "11", "22"]
    with pytest.raises(UserError, match="zip: expected how= one of"):
        three.zip(five, how="longest")


@few
@given(layout=layouts, k=st.integers(1, 7), every=st.sampled_from([1, 1, 2, 3, 8]))
@pytest.mark.soak
def test_windows(dia_of: Any, layout: list[list[int]], k: int, every: int) -> None:
    values = flat(layout)
    want = [values[i : i + k] for i in range(0, len(values) - k + 1, every)]
    dia = dia_of(layout)
    traced = dia.window(k, lambda w: sum(w) * w[0], every=every)
    assert traced._node.runs == "JVM"
    assert traced.all_gather() == [sum(w) * w[0] for w in want]
    lists = dia.window(k, lambda w: sorted(w), every=every, returns=[int])
    assert lists.all_gather() == [sorted(w) for w in want]


def test_windows_across_several_partitions(spark: Any, dia_of: Any) -> None:
    layout = [[1], [], [2], [3], [], [4, 5], [6]]
    dia = dia_of(layout)
    assert dia.window(4, lambda w: w[3]).all_gather() == [4, 5, 6]
    assert dia.window(3, tuple, every=3).all_gather() == [(1, 2, 3), (4, 5, 6)]
    assert dia.flat_window(2, lambda w: [w[0], w[1] * 10]).all_gather() == [
        x for a in range(1, 6) for x in (a, (a + 1) * 10)
    ]
    wide = generate(spark, 100, parts=3).window(40, lambda w: sum(w))
    assert "more than 32" in wide._node.why
    assert wide.all_gather() == [sum(range(i, i + 40)) for i in range(61)]
    with pytest.raises(UserError, match="window: expected k of at least 1"):
        dia.window(0, sum)


@pytest.mark.soak
def test_more_windows_across_several_partitions(spark: Any, dia_of: Any) -> None:
    dia = dia_of([[1], [], [2], [3], [], [4, 5], [6]])
    assert dia.window(9, sum, returns=int).all_gather() == []
    assert dia.flat_window(2, lambda w: [w[0]] if w[1] > 4 else []).all_gather() == [4, 5]
    pairs = generate(spark, 5, lambda i: {"a": i, "b": (i, "x")}, parts=2)
    assert pairs.window(2, lambda w: w[0].a + w[1].b[0]).all_gather() == [1, 3, 5, 7]


@pytest.mark.soak
def test_operations_on_nothing(spark: Any) -> None:
    for nothing in (generate(spark, 0), generate(spark, 5).filter(lambda x: x > 9).sort()):
        assert nothing.rebalance().all_gather() == []
        assert nothing.zip_with_index().all_gather() == []
        assert nothing.zip(nothing).all_gather() == []
        assert nothing.prefix_sum().all_gather() == []
        assert nothing.window(2, lambda w: w[0] + w[1]).all_gather() == []
        assert nothing.sort().merge(nothing).all_gather() == []
        assert nothing.concat(generate(spark, 2)).all_gather() == [0, 1]


def test_rebalanced_partitions_differ_by_one_at_most(spark: Any) -> None:
    even = generate(spark, 9).rebalance(8)
    sizes = [len(part) for part in even.to_frame().rdd.glom().collect()]
    assert (sum(sizes), len(sizes), min(sizes), max(sizes)) == (9, 8, 1, 2)


def test_merge_by_a_comparison(dia_of: Any) -> None:
    one = dia_of([[(9, "a"), (5, "a")], [(1, "a")]], (int, str))
    two = dia_of([[(8, "b"), (5, "b")]], (int, str))
    want = [(9, "a"), (8, "b"), (5, "a"), (5, "b"), (1, "a")]
    assert one.merge(two, by=lambda x, y: x[0] > y[0]).all_gather() == want
    opaque = one.merge(two, by=lambda x, y: bool(x[0] > y[0]))
    assert (opaque.all_gather(), opaque._node.op) == (want, "merge")


def test_windows_look_at_the_function_of_the_user(dia_of: Any) -> None:
    dia = dia_of([[None, 2], [3]])
    assert dia.window(2, lambda w: -1 if w[0] is None else w[0]).all_gather() == [-1, 2]
