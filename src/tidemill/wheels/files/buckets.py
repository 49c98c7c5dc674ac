"""The files of `WheelStore`: a manifest, and a saved wheel for each bucket of keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidemill.aggregates.algebra import Aggregate
from tidemill.core.errors import UserError
from tidemill.core.files import require_own_directory
from tidemill.core.time import FARTHEST
from tidemill.wheels.files.checks import (
    MOST_CELLS_BEHIND,
    a_text,
    an_int,
    by_text,
    require,
)
from tidemill.wheels.files.claims import LAST_SAVE
from tidemill.wheels.files.format import Fields, read_save
from tidemill.wheels.files.opening import spec_of, state_of, store_rings
from tidemill.wheels.rings import Ring
from tidemill.wheels.spec import MOST_AHEAD
from tidemill.wheels.state import WheelState, empty_state

MOST_BUCKETS = 10_000
BUCKETS = "buckets"
"""The manifest field that describes the buckets."""
_STEP = 1 << 16
"""Cells to close in one step when a bucket is behind the watermark of its store."""


def empty_bucket(
    facts: Mapping[str, Any], aggregates: Mapping[str, Aggregate], first: int, compress: int
) -> WheelState:
    """An empty bucket of the store that `facts` describe; it starts at slot `first`."""
    return empty_state(spec_of(facts, aggregates), first, compress)


def bucket_path(path: Path, bucket: int | str) -> Path:
    return path / f"bucket-{int(bucket):05}"


def read_store(
    path: Path, aggregates: Mapping[str, Aggregate], save: int | None = None, *, step: str, hint: str
) -> Fields:
    """Read and check the manifest of a store in buckets."""
    opened = read_save(path, save)
    if BUCKETS not in opened.facts:
        raise UserError(
            step, expected=f"a wheel that tm.spark.build_wheel made in {path}", got="another one", hint=hint
        )
    with opened.understood():
        spec_of(opened.facts, aggregates)
        check_buckets(opened.facts, store_rings(opened.facts))
    return opened.facts


def check_buckets(facts: Mapping[str, Any], rings: Sequence[Ring]) -> None:
    """Raise if the description of the buckets is invalid."""
    said = facts[BUCKETS]
    count = an_int(said["count"], "buckets", 1, MOST_BUCKETS)
    farthest = FARTHEST // rings[0].ticks + 1
    an_int(said["until"], "the watermark, in slots", -farthest, farthest)
    for bucket, number in by_text(said["saves"], "saves of buckets", int).items():
        known = bucket.isascii() and bucket.isdigit() and bucket == str(int(bucket)) and int(bucket) < count
        require(known, f"buckets from 0 to {count - 1}", bucket)
        an_int(number, "a save", 1, LAST_SAVE)
    an_int(facts["rows"], "rows", 0, 1 << 63)
    by_text(facts["left out"], "rows that were left out", int)
    a_text(facts["name"], "a name")
    a_text(facts["line"], "a line")
    slots = facts["compress"]
    require(isinstance(slots, bool) or type(slots) is int, "slots to a block, true or false", slots)
    an_int(int(slots), "slots to a block", 0, MOST_AHEAD)


def open_bucket(
    path: Path, facts: Mapping[str, Any], aggregates: Mapping[str, Aggregate], bucket: int | str, *,
    verify: bool,
) -> WheelState:  # fmt: skip
    """Open a bucket and advance it to the store's watermark: buckets without new rows were not rewritten."""
    number, until = facts[BUCKETS]["saves"][str(bucket)], facts[BUCKETS]["until"]
    own = bucket_path(path, bucket)
    require_own_directory(own, step="open wheel")
    opened = read_save(own, number, verify=verify)
    wheel = state_of(opened, aggregates, verify=verify)
    with opened.understood():
        behind, keys = until - wheel.store.now, max(1, wheel.store.keys)
        near = 0 <= behind <= MOST_CELLS_BEHIND // keys
        require(near, f"a bucket of {keys} keys at most {MOST_CELLS_BEHIND // keys} slots behind", behind)
        if behind * keys > _STEP:
            wheel.require_memory(until)
        while wheel.store.now < until:  # in steps: Ctrl-C cannot interrupt a kernel
            wheel.advance(min(until, wheel.store.now + max(1, _STEP // keys)))
    return wheel
