"""Who holds a bucket, where its rows go: the examples of paper 002, and definitions in plain Python."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernels.bucket_holders import STAYS, located
from tidemill.kernels.bucket_targets import Cells
from tidemill.kernels.hash_buckets import MANY, bucket_of, counted, in_buckets
from tidemill.kernels.hyperloglog import estimate, registers


def entries(*sets: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Buckets and the sources that hold them, in order."""
    pairs = sorted((b, s) for s, own in enumerate(sets) for b in own)
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


def test_figure_6_1_duplicate_detection() -> None:
    """10 is a duplicate and 1 seems to be one: their rows meet. 3 and 4 stay where they are."""
    buckets, sources = entries([1, 3, 10], [1, 4, 10])
    ones = np.ones(len(buckets))
    out, loads = located(
        buckets, sources, ones, np.array([0, 1]), np.zeros(2, int), np.array([0, 1]), partners=False,
        slack=10.0,
    )  # fmt: skip
    assert buckets[out != STAYS].tolist() == [1, 10]
    assert sources[out != STAYS].tolist() == (1 - out[out != STAYS]).tolist()
    assert loads.sum() == len(buckets)


def test_figure_6_2_location_detection_of_a_join() -> None:
    """Buckets 3, 4 and 11 are on one side only and are not sent; bucket 1 is sent to one worker."""
    buckets, sources = entries([1, 3], [1, 4, 11])
    found = located(
        buckets, sources, np.array([2.0, 1.0, 1.0, 1.0, 1.0]), np.array([0, 1]), np.array([0, 1]),
        np.array([0, 1]), partners=True, slack=10.0,
    )  # fmt: skip
    assert list(zip(buckets.tolist(), sources.tolist(), found.slots.tolist())) == [
        (1, 0, STAYS), (1, 1, 0), (3, 0, STAYS), (4, 1, STAYS), (11, 1, STAYS),
    ]  # fmt: skip


sets = st.lists(st.sets(st.integers(0, 30), max_size=12), min_size=1, max_size=6)


@given(sets, st.integers(1, 5), st.integers(1, 3), st.booleans(), st.data())
def test_rows_go_to_who_has_most_of_them(
    held: list[set[int]], slots: int, hosts: int, partners: bool, data: st.DataObject
) -> None:
    slot_of = np.array([data.draw(st.integers(0, slots - 1)) for _ in held])
    side_of = np.array([data.draw(st.integers(0, int(partners))) for _ in held])
    host_of = np.arange(slots) % hosts
    buckets, sources = entries(*map(list, held))
    weights = np.array([data.draw(st.integers(1, 5)) for _ in buckets], dtype=np.float64)
    found = located(
        buckets, sources, weights, slot_of, side_of, host_of, partners=partners, slack=1e9
    )  # nothing is too much
    by_host: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    by_slot: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    sides = defaultdict(set)
    for b, s, w in zip(buckets.tolist(), sources.tolist(), weights.tolist()):
        by_slot[b][int(slot_of[s])] += w
        by_host[b][int(host_of[slot_of[s]])] += w
        sides[b].add(int(side_of[s]))
    goes = defaultdict(set)
    for b, s, slot in zip(buckets.tolist(), sources.tolist(), found.slots.tolist()):
        assert slot != slot_of[s]  # who is there is told nothing
        if partners and sides[b] != {0, 1}:
            assert slot == STAYS
        else:
            goes[b].add(int(slot_of[s]) if slot == STAYS else slot)
    for b, where in goes.items():
        (slot,) = where  # all rows of a bucket meet
        host = int(host_of[slot])
        assert by_host[b][host] == max(by_host[b].values())
        assert by_slot[b][slot] == max(w for s, w in by_slot[b].items() if host_of[s] == host)


def test_no_slot_gets_more_than_its_bound() -> None:
    """All rows are in one slot of four: most of them leave it."""
    buckets = np.arange(10_000)
    found = located(
        buckets, np.zeros(10_000, dtype=np.int64), np.ones(10_000), np.array([2]), np.array([0]),
        np.array([0, 0, 1, 1]), partners=False, slack=1.5,
    )  # fmt: skip
    assert found.loads.sum() == 10_000
    assert (
        found.loads.max() <= 1.5 * 2500 + 10_000 / 4 * 1.05
    )  # its bound, and its part of what is spread
    assert found.loads.min() > 1000
    assert (found.slots != STAYS).sum() == 10_000 - found.loads[2]


def test_a_key_that_is_too_heavy_for_all_stays() -> None:
    found = located(
        np.array([5, 5]), np.array([0, 1]), np.array([90.0, 10.0]), np.array([0, 1]), np.array([0, 1]),
        np.array([0, 1]), partners=True, slack=1.0,
    )  # fmt: skip
    assert found.slots.tolist() == [STAYS, 0]


def test_ties_go_to_who_has_less_to_do() -> None:
    buckets = np.repeat(np.arange(1000), 2)
    sources = np.tile([0, 1], 1000)
    for host_of in ([0, 1], [0, 0]):
        found = located(
            buckets, sources, np.ones(2000), np.array([0, 1]), np.array([0, 1]), np.array(host_of),
            partners=True, slack=9.0,
        )  # fmt: skip
        assert abs(found.loads[0] - found.loads[1]) <= 2


@given(st.lists(st.integers(0, 2**64 - 1), max_size=50), st.integers(1, 2**61))
def test_buckets_keep_the_order_of_hashes(hashes: list[int], size: int) -> None:
    own, counts = counted(np.array(hashes, dtype=np.uint64), np.ones(len(hashes), dtype=np.int64))
    assert own.tolist() == sorted(set(hashes))
    assert counts.tolist() == [min(MANY, hashes.count(h)) for h in own.tolist()]
    buckets, sums = in_buckets(own, counts, size)
    expected: dict[int, int] = defaultdict(int)
    for h in hashes:
        assert bucket_of(np.uint64(h), size) == h * size >> 64
        expected[h * size >> 64] += 1
    assert dict(zip(buckets.tolist(), sums.tolist())) == expected


def test_counts_have_eight_bits() -> None:
    own, counts = counted(np.zeros(1000, dtype=np.uint64), np.ones(1000, dtype=np.int64))
    assert (own.tolist(), counts.tolist()) == ([0], [MANY])


@given(
    st.dictionaries(st.integers(0, 2**12 - 1), st.integers(0, 9), max_size=300), st.integers(1, 12)
)
def test_cells_have_what_is_listed(listed: dict[int, int], high: int) -> None:
    buckets = np.array(sorted(listed), dtype=np.int64)
    cells = Cells.of(
        buckets, np.array([listed[b] for b in buckets.tolist()], int), bits=12, high=high
    )
    shift = 12 - high
    found = {
        (cell << shift) + int(cells.lows[i]): int(cells.targets[i])
        for cell in range(1 << high)
        for i in range(cells.starts[cell], cells.starts[cell + 1])
    }
    assert found == listed and len(cells.starts) == (1 << high) + 1


def test_hyperloglog_counts_what_several_saw() -> None:
    rng = np.random.default_rng(2)
    for n in (0, 1, 30, 5000, 300_000):
        hashes = rng.integers(0, 1 << 64, n, dtype=np.uint64)
        half = n // 2
        merged = np.maximum(registers(hashes[:half]), registers(hashes[half // 2 :]))
        assert abs(estimate(merged) - n) <= max(1, 0.06 * n)
