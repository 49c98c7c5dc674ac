"""Who holds a bucket, where its rows go: the examples of paper 002, and definitions in plain Python."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernels.buckets import MANY, bucket_of, counted, in_buckets
from tidemill.kernels.holders import UNLISTED, best_units, spread, unique_units
from tidemill.kernels.hyperloglog import estimate, registers
from tidemill.kernels.targets import DROP, SPREAD, STAY, Targets


def entries(*sets: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Buckets and the sources that hold them, in order."""
    pairs = sorted((b, s) for s, own in enumerate(sets) for b in own)
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


def test_figure_6_1_duplicate_detection() -> None:
    """10 is a duplicate and 1 seems to be one; 3 and 4 stay where they are."""
    buckets, sources = entries([1, 3, 10], [1, 4, 10])
    out = np.empty(len(buckets), dtype=np.int64)
    unique_units(buckets, sources, np.array([0, 1]), out)
    assert {(b, u) for b, u in zip(buckets.tolist(), out.tolist()) if u != UNLISTED} == {(3, 0), (4, 1)}


def test_figure_6_2_location_detection_of_a_join() -> None:
    """Buckets 3, 4 and 11 are on one side only and are discarded; bucket 1 is sent to one worker."""
    buckets, sources = entries([1, 3], [1, 4, 11])
    found = best_units(
        buckets, sources, np.array([2.0, 1.0, 1.0, 1.0, 1.0]), np.array([0, 1]), np.array([0, 1]), units=2,
        both=True, slack=10.0,
    )  # fmt: skip
    assert dict(zip(buckets.tolist(), found.units.tolist())) == {1: 0, 3: UNLISTED, 4: UNLISTED, 11: UNLISTED}


sets = st.lists(st.sets(st.integers(0, 30), max_size=12), min_size=1, max_size=6)


@given(sets, st.integers(1, 3), st.data())
def test_unique_means_one_unit(held: list[set[int]], units: int, data: st.DataObject) -> None:
    unit_of = np.array([data.draw(st.integers(0, units - 1)) for _ in held])
    buckets, sources = entries(*map(list, held))
    out = np.empty(len(buckets), dtype=np.int64)
    unique_units(buckets, sources, unit_of, out)
    holders = defaultdict(set)
    for b, s in zip(buckets.tolist(), sources.tolist()):
        holders[b].add(int(unit_of[s]))
    for b, u in zip(buckets.tolist(), out.tolist()):
        assert u == (next(iter(holders[b])) if len(holders[b]) == 1 else UNLISTED)


@given(sets, st.integers(1, 4), st.booleans(), st.data())
def test_rows_go_to_who_has_most_of_them(
    held: list[set[int]], units: int, both: bool, data: st.DataObject
) -> None:
    unit_of = np.array([data.draw(st.integers(0, units - 1)) for _ in held])
    side_of = np.array([data.draw(st.integers(0, int(both))) for _ in held])
    buckets, sources = entries(*map(list, held))
    weights = np.array([data.draw(st.integers(1, 5)) for _ in buckets], dtype=np.float64)
    found = best_units(
        buckets, sources, weights, unit_of, side_of, units=units, both=both, slack=1e9
    )  # nothing is too much
    held_by: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    sides = defaultdict(set)
    for b, s, w in zip(buckets.tolist(), sources.tolist(), weights.tolist()):
        held_by[b][int(unit_of[s])] += w
        sides[b].add(int(side_of[s]))
    for b, u in zip(buckets.tolist(), found.units.tolist()):
        if both and sides[b] != {0, 1}:
            assert u == UNLISTED
        else:
            gone = int(spread(b, units)) if u == UNLISTED else u
            assert not (both and u == UNLISTED)
            assert held_by[b][gone] == max(held_by[b].values())


def test_no_unit_gets_more_than_its_bound() -> None:
    """All rows are on one unit of four: most of them leave it."""
    buckets = np.arange(10_000)
    found = best_units(
        buckets, np.zeros(10_000, dtype=np.int64), np.ones(10_000), np.array([2]), np.array([0]), units=4,
        both=False, slack=1.5,
    )  # fmt: skip
    assert found.loads.sum() == 10_000
    assert found.loads.max() <= 1.5 * 2500 + 10_000 / 4 * 1.05  # its bound, and its part of what is spread
    assert found.loads.min() > 1000


def test_a_key_that_is_too_heavy_for_all_stays() -> None:
    found = best_units(
        np.array([5, 5]), np.array([0, 1]), np.array([90.0, 10.0]), np.array([0, 1]), np.array([0, 1]),
        units=2, both=True, slack=1.0,
    )  # fmt: skip
    assert found.units.tolist() == [0, 0]


def test_ties_go_to_who_has_less_to_do() -> None:
    buckets = np.repeat(np.arange(1000), 2)
    sources = np.tile([0, 1], 1000)
    found = best_units(
        buckets, sources, np.ones(2000), np.array([0, 1]), np.array([0, 1]), units=2, both=True, slack=9.0
    )
    assert abs(found.loads[0] - found.loads[1]) <= 2


@given(st.lists(st.integers(0, 2**64 - 1), max_size=50), st.integers(1, 2**61))
def test_buckets_keep_the_order_of_hashes(hashes: list[int], size: int) -> None:
    own, counts = counted(np.array(hashes, dtype=np.uint64))
    assert own.tolist() == sorted(set(hashes))
    assert counts.tolist() == [min(MANY, hashes.count(h)) for h in own.tolist()]
    buckets, sums = in_buckets(own, counts, size)
    expected: dict[int, int] = defaultdict(int)
    for h in hashes:
        assert bucket_of(np.uint64(h), size) == h * size >> 64
        expected[h * size >> 64] += 1
    assert dict(zip(buckets.tolist(), sums.tolist())) == expected


def test_counts_have_eight_bits() -> None:
    own, counts = counted(np.zeros(1000, dtype=np.uint64))
    assert (own.tolist(), counts.tolist()) == ([0], [MANY])


@given(st.sets(st.integers(0, 99)), st.integers(0, 3), st.sampled_from([SPREAD, STAY, DROP]))
def test_targets_are_those_listed(listed: set[int], own: int, missing: int) -> None:
    buckets = np.array(sorted(listed), dtype=np.int64)
    units = (buckets % 4).astype(np.int32)
    targets = Targets.of(buckets, units, size=100)
    # A hash in the middle of each bucket.
    hashes = np.array([(2 * b + 1) * 2**64 // 200 for b in range(100)], dtype=np.uint64)
    first = np.array([0, 1, 3, 3 + 4, 8])
    out = targets.partitions(hashes, missing=missing, own=own, first=first).tolist()
    for b, partition in enumerate(out):
        if b in listed:
            unit = b % 4
        elif missing == DROP:
            assert partition == -2
            continue
        else:
            unit = own if missing == STAY else int(spread(b, 4))
        assert first[unit] <= partition < first[unit + 1]


def test_hyperloglog_counts_what_several_saw() -> None:
    rng = np.random.default_rng(2)
    for n in (0, 1, 30, 5000, 300_000):
        hashes = rng.integers(0, 1 << 64, n, dtype=np.uint64)
        half = n // 2
        merged = np.maximum(registers(hashes[:half]), registers(hashes[half // 2 :]))
        assert abs(estimate(merged) - n) <= max(1, 0.06 * n)
