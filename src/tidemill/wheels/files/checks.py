"""Check the contents of files before kernels use them: kernels do not check bounds.

Checksums detect damage, not malice, and may be skipped (`verify=False`). The checks here always run; their
cost grows with rings and blocks, not with cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.core.errors import UserError
from tidemill.core.time import FARTHEST, Domain
from tidemill.wheels.loops.bit_packing import AT, BITS_EACH, BUFFER_SHIFT, COLUMN, COLUMNS, THEN
from tidemill.wheels.loops.range_plan import (
    BLOCK,
    END,
    FIRST,
    HEAD,
    KEYS,
    LOW,
    MARKED,
    PLAIN,
    PREFIX,
    RING,
    RINGS,
    TOTAL,
    UNIT,
)  # fmt: skip
from tidemill.wheels.memory.compressed import CompressedBlocks
from tidemill.wheels.rings import Ring, rings_of

Ints = npt.NDArray[np.int64]
MOST_KEYS = 1 << 31
"""Some code packs two key numbers, of 32 bits each, into one word."""
MOST_CELLS_BEHIND = 1 << 33
"""The most cells, slots times keys, that a bucket may be behind its store: opening it closes all of them."""


def require(holds: bool, expected: str, got: Any) -> None:
    """Raise a `UserError` about a file's contents unless `holds`."""
    if not holds:
        raise UserError("open wheel", expected=expected, got=f"{got!r:.200}")


def an_int(value: Any, name: str, least: int, most: int) -> int:
    """Require an int from `least` to `most` in a manifest."""
    require(type(value) is int and least <= value <= most, f"{name} from {least} to {most}", value)
    return int(value)


def a_text(value: Any, name: str) -> str:
    require(isinstance(value, str), f"{name}, a text", value)
    return str(value)


def a_bool(value: Any, name: str) -> bool:
    require(isinstance(value, bool), f"{name}, true or false", value)
    return bool(value)


def texts(value: Any, name: str) -> list[str]:
    require(isinstance(value, list) and all(isinstance(v, str) for v in value), f"{name}, texts", value)
    return list(value)


def by_text(value: Any, name: str, kind: type) -> dict[str, Any]:
    """Require a dict of names to values of one type."""
    ok = isinstance(value, dict) and all(isinstance(n, str) and type(v) is kind for n, v in value.items())
    require(ok, f"{name}, by name", value)
    return dict(value)


def rings_from(said: Any, domain: Domain) -> tuple[Ring, ...]:
    """Read the rings of a manifest, with the checks for user arguments."""
    listed = isinstance(said, list) and all(isinstance(r, list) and len(r) == 3 for r in said)
    require(listed, "rings of a length, slots and a name each", said)
    given: list[Any] = []
    for ticks, slots, _ in said:
        length = an_int(ticks, "ticks of a ring", 1, FARTHEST)
        kept = "keep" if slots is None else an_int(slots, "slots of a ring", 1, FARTHEST)
        given.append((length if domain is Domain.LOGICAL else f"{length}us", kept))
    return rings_of(given, step="open wheel")[0]


def check_length(head: Ints, rings: Sequence[Ring]) -> None:
    """Raise unless the length of a head fits these rings."""
    size = HEAD + RING * len(rings)
    require(len(head) == size, f"a head of {size} numbers", len(head))


def check_head(
    head: Ints, rings: Sequence[Ring], *, keys: int, prefix: bool, block: int, cells: bool
) -> None:
    """Raise unless the numbers of a head are valid for a store of these rings and keys.

    With `cells`, closed slots have cells in arrays from `PLAIN` on; otherwise `PLAIN` is ignored.
    """
    check_length(head, rings)
    h = head.tolist()
    known = {
        "keys": (KEYS, keys), "rings": (RINGS, len(rings)), "prefix": (PREFIX, int(prefix)),
        "block": (BLOCK, block),
    }  # fmt: skip
    for name, (at, value) in known.items():
        require(h[at] == value, f"{name}: {value} in the head", h[at])
    for name, at in (("marks", MARKED), ("totals", TOTAL)):
        require(h[at] in (0, 1), f"{name}: 0 or 1 in the head", h[at])
    farthest = FARTHEST // rings[0].ticks + 1
    first, now = h[FIRST], h[HEAD + END]
    require(-farthest <= first <= now <= farthest, f"slots from {-farthest} to {farthest}", (first, now))
    for r, ring in enumerate(rings):
        own = h[HEAD + RING * r : HEAD + RING * (r + 1)]
        unit, low, end = own[UNIT], own[LOW], own[END]
        require(unit == ring.ticks // rings[0].ticks, f"ring {ring.shown} of {ring.ticks} ticks", unit)
        require(end == now // unit, f"ring {ring.shown} up to slot {now // unit}", end)
        require(first // unit <= low <= end, f"ring {ring.shown} from slot {first // unit} on", low)
        few = ring.slots is None or end - low <= ring.slots
        require(few, f"{ring.slots} slots of {ring.shown}", end - low)
        if cells:
            plain = own[PLAIN]
            most = end if block else low  # slots before `plain` are compressed
            require(low <= plain <= most, f"cells of ring {ring.shown} from slots {low} to {most} on", plain)


def check_compressed(
    blocks: CompressedBlocks, head: Ints, compressed: Sequence[bool], plain_room: Sequence[int]
) -> None:
    """Raise for blocks that do not match the rings, or that lie outside of their buffers.

    `compressed` has which rings are compressed, `plain_room` the most slots of each that have cells.
    """
    size, begin = blocks.slots, 0
    for r, region in enumerate(blocks.regions):
        h = head[HEAD + RING * r : HEAD + RING * (r + 1)].tolist()
        low, plain, end = h[LOW], h[PLAIN], h[END]
        name = f"blocks of ring {r}"
        fits = region.begin == begin and 0 <= region.count <= region.room
        require(fits, f"{name} from row {begin}", region)
        begin += region.room
        if not compressed[r]:
            require(region.count == 0 and low == plain, f"no {name}", region)
            continue
        require(end - plain <= plain_room[r], f"{plain_room[r]} slots of ring {r} with cells", end - plain)
        if region.count:
            require((region.first + region.count) * size == plain, f"{name} up to slot {plain}", region)
        if low < plain:
            require(region.count > 0 and region.first * size <= low, f"{name} from slot {low}", region)
    require(blocks.directory.shape == (max(1, begin), COLUMNS + COLUMN * blocks.columns),
            f"a directory of {begin} blocks", blocks.directory.shape)  # fmt: skip
    used = [blocks.directory[g.begin : g.begin + g.count] for g in blocks.regions]
    _check_blocks(np.concatenate(used), blocks, int(head[KEYS]))


def _check_blocks(rows: Ints, blocks: CompressedBlocks, keys: int) -> None:
    if not len(rows):
        return
    then, at, bits = rows[:, [THEN]], rows[:, COLUMNS + AT :: COLUMN], rows[:, COLUMNS + BITS_EACH :: COLUMN]
    require(bool(((then >= 0) & (then <= keys)).all()), f"blocks of up to {keys} keys", then.max())
    require(bool(((bits >= 0) & (bits <= 64)).all()), "values of up to 64 bits", bits.max())
    buffer, word = at >> BUFFER_SHIFT, at & ((1 << BUFFER_SHIFT) - 1)
    lengths = np.array([p.used for p in blocks.buffers] or [0], dtype=np.int64)
    inside = (buffer >= 0) & (buffer < len(lengths))
    require(bool(inside.all()), f"blocks in {len(lengths)} buffers", buffer.max())
    # The bounds of keys, slots and bits keep this far below 2**63.
    words = word + -(-(bits * then * blocks.slots) // 64)
    there = (words <= lengths[buffer]) | (bits == 0)
    require(bool(there.all()), f"blocks in buffers of {lengths.tolist()} words", words.max())
