"""The compressed slots of a wheel: blocks, their directory, and how slots are compressed and decompressed.

Rings that keep many slots have the older ones in *blocks*. The directory locates the values of each block in
buffers, which are arrays in memory or in mapped files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidemill.codegen.algebra import numpy_type
from tidemill.jit.addresses import keeping
from tidemill.wheels.loops.bit_packing import (
    AT,
    BITS_EACH,
    BUFFER_SHIFT,
    COLUMN,
    COLUMNS,
    LEAST,
    THEN,
    bits_needed,
    pack,
    unpack,
)  # fmt: skip
from tidemill.wheels.loops.range_plan import END, LOW, PLAIN

if TYPE_CHECKING:
    from tidemill.wheels.memory.store import RingStore

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
FIRST_WORDS = 64
FIRST_BLOCKS = 4
MOST_BUFFERS = 32
"""If this many buffers are in files, a save writes all buffers as one."""


@dataclass
class BlockBuffer:
    """An array of words that holds blocks. Words in use never change."""

    words: Words
    used: int
    file: dict[str, Any] | None = None
    """The manifest entry of the buffer's file, if it has one."""


@dataclass
class Region:
    """The rows of a ring in the directory, for consecutive blocks."""

    begin: int
    room: int
    first: int = 0
    """The number of the first block."""
    count: int = 0


@dataclass
class CompressedBlocks:
    """The compressed slots of all rings: blocks of `slots` slots and `columns` columns."""

    slots: int
    columns: int
    regions: list[Region]
    directory: Ints = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    buffers: list[BlockBuffer] = field(default_factory=list)
    bases: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    """The memory address of each buffer's words."""

    @classmethod
    def empty(cls, rings: int, slots: int, columns: int) -> CompressedBlocks:
        regions = [Region(FIRST_BLOCKS * r, FIRST_BLOCKS) for r in range(rings)]
        made = cls(slots, columns, regions)
        made.directory = made._rows(FIRST_BLOCKS * rings)
        return made

    def _rows(self, count: int) -> Ints:
        return np.zeros((max(1, count), COLUMNS + COLUMN * self.columns), dtype=np.int64)

    def row(self, ring: int) -> int:
        """The row of the directory that block 0 of a ring would have."""
        region = self.regions[ring]
        return region.begin - region.first

    # -- blocks in

    def has_room(self, ring: int, cells: int) -> bool:
        """Whether a block fits without new arrays."""
        free = len(self.buffers[-1].words) - self.buffers[-1].used if self.buffers else 0
        region = self.regions[ring]
        return region.count < region.room and free >= self.columns * (cells + 1)

    def make_room(self, ring: int, cells: int, blocks: int = 1) -> None:
        """Allocate arrays for more blocks; readers may keep using the old arrays."""
        if self.regions[ring].count + blocks > self.regions[ring].room:
            self._lay_out(ring, blocks)
        need = self.columns * (cells + 1)
        if not self.buffers or len(self.buffers[-1].words) - self.buffers[-1].used < need:
            size = max(FIRST_WORDS, need, self.words // 8)
            self.buffers.append(BlockBuffer(np.zeros(size, dtype=np.uint64), 0))
            self.find_bases()

    def _lay_out(self, ring: int, blocks: int) -> None:
        rooms = [r.room for r in self.regions]
        rooms[ring] = rooms[ring] + max(FIRST_BLOCKS, rooms[ring] // 8, blocks)
        wider, begin, regions = self._rows(sum(rooms)), 0, []
        for region, room in zip(self.regions, rooms):
            wider[begin : begin + region.count] = self._own(region)
            regions.append(Region(begin, room, region.first, region.count))
            begin += room
        self.directory, self.regions = wider, regions

    def _own(self, region: Region) -> Ints:
        return self.directory[region.begin : region.begin + region.count]

    def find_bases(self) -> None:
        """Compute the addresses of the buffers in this process."""
        words = [p.words for p in self.buffers]
        self.bases = keeping([w.ctypes.data for w in words] or [0], words)

    def add(self, ring: int, block: int, keys: int, columns: Sequence[Ints]) -> None:
        """Append a block to a ring, which must have room for it. `columns` has its values."""
        region, buffer = self.regions[ring], self.buffers[-1]
        if region.count == 0:
            region.first = block
        assert block == region.first + region.count
        row = self.directory[region.begin + region.count]
        row[THEN] = keys
        for c, values in enumerate(columns):
            least, bits = bits_needed(values) if len(values) else (0, 0)
            own = COLUMNS + COLUMN * c
            row[own + AT] = (len(self.buffers) - 1) << BUFFER_SHIFT | buffer.used
            row[own + LEAST], row[own + BITS_EACH] = least, bits
            if bits:
                size = -(-len(values) * bits // 64)
                pack(values, least, bits, buffer.words[buffer.used : buffer.used + size])
                buffer.used += size
        region.count += 1

    def add_constant(self, ring: int, block: int, count: int, keys: int, values: Sequence[int]) -> None:
        """Append blocks to a ring in which each column has a single value."""
        if count == 0:
            return
        self.make_room(ring, 0, count)
        region = self.regions[ring]
        if region.count == 0:
            region.first = block
        assert block == region.first + region.count
        row = self._rows(1)[0]
        row[THEN] = keys
        row[COLUMNS + AT :: COLUMN] = (len(self.buffers) - 1) << BUFFER_SHIFT | self.buffers[-1].used
        row[COLUMNS + LEAST :: COLUMN] = values
        at = region.begin + region.count
        self.directory[at : at + count] = row
        region.count += count

    def restart(self, ring: int, block: int) -> None:
        """Drop all blocks of a ring; the next one will have number `block`."""
        self.regions = [Region(**vars(r)) for r in self.regions]
        self.regions[ring].first, self.regions[ring].count = block, 0
        self._let_go()

    # -- blocks out

    def forget(self, ring: int, below: int) -> None:
        """Drop the blocks of a ring below `below`, if they are at least half of its blocks."""
        region = self.regions[ring]
        gone = min(max(0, below - region.first), region.count)
        if gone < max(region.count // 2, 1):  # rows are copied, so not for every block
            return
        self.directory = self.directory.copy()
        kept = self.directory[region.begin + gone : region.begin + region.count].copy()
        self.regions = [Region(**vars(r)) for r in self.regions]
        region = self.regions[ring]
        region.first, region.count = region.first + gone, len(kept)
        self.directory[region.begin : region.begin + len(kept)] = kept
        self._let_go()

    def _let_go(self) -> None:
        """Free the memory of buffers without blocks."""
        used = set(self._buffers_in_use().tolist())
        for number, buffer in enumerate(self.buffers[:-1]):
            if number not in used and len(buffer.words):
                self.buffers[number] = BlockBuffer(np.zeros(0, dtype=np.uint64), 0, buffer.file)
        self.find_bases()

    def _buffers_in_use(self) -> Ints:
        own = [self._own(r)[:, COLUMNS + AT :: COLUMN].ravel() for r in self.regions]
        return np.unique(np.concatenate(own) >> BUFFER_SHIFT)

    def block(self, ring: int, number: int) -> tuple[int, list[Ints]]:
        """The number of keys of a block, and its values by column."""
        region = self.regions[ring]
        row = self.directory[region.begin + number - region.first]
        keys = int(row[THEN])
        found = []
        for c in range(self.columns):
            at, least, bits = row[COLUMNS + COLUMN * c : COLUMNS + COLUMN * (c + 1)].tolist()
            values = np.empty(self.slots * keys, dtype=np.int64)
            address = int(self.bases[at >> BUFFER_SHIFT]) + ((at & ((1 << BUFFER_SHIFT) - 1)) << 3)
            unpack(address, bits, least, values)
            found.append(values)
        return keys, found

    # -- files

    def seal(self) -> None:
        """Merge the buffers that are in no file into one; merge all buffers if many are in files."""
        whole = sum(p.file is not None for p in self.buffers) >= MOST_BUFFERS
        first = next((i for i, p in enumerate(self.buffers) if whole or p.file is None), len(self.buffers))
        loose = self.buffers[first:]
        if len(loose) == 0 or (len(loose) == 1 and loose[0].used == len(loose[0].words)):
            return
        sizes = [p.used for p in loose]
        words = np.concatenate([p.words[: p.used] for p in loose])
        moved = np.zeros(len(self.buffers), dtype=np.int64)
        moved[first:] = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        self.directory = self.directory.copy()
        at = self.directory[:, COLUMNS + AT :: COLUMN]
        buffer = at >> BUFFER_SHIFT
        shift = (first - buffer << BUFFER_SHIFT) + moved[np.minimum(buffer, len(moved) - 1)]
        at += np.where(buffer >= first, shift, 0)
        self.buffers = [*self.buffers[:first], BlockBuffer(words, len(words))]
        self.find_bases()

    def copy(self) -> CompressedBlocks:
        """Return a copy. Words are shared, because they never change; new blocks go to new buffers."""
        regions = [Region(**vars(r)) for r in self.regions]
        buffers = [BlockBuffer(p.words[: p.used], p.used, p.file) for p in self.buffers]
        other = CompressedBlocks(self.slots, self.columns, regions, self.directory.copy(), buffers)
        other.find_bases()
        return other

    @property
    def words(self) -> int:
        return sum(len(p.words) for p in self.buffers)

    @property
    def nbytes(self) -> int:
        return 8 * self.words + self.directory.nbytes

    def ring_bytes(self, ring: int) -> int:
        """The bytes of a ring's blocks."""
        rows = self._own(self.regions[ring])
        bits = rows[:, COLUMNS + BITS_EACH :: COLUMN] * rows[:, [THEN]] * self.slots
        return int((-(-bits // 64) * 8).sum()) + rows.nbytes


# --- compression and decompression of slots --------------------------------------------------------


def compress_full(store: RingStore) -> None:
    """Compress full blocks of slots that need not stay uncompressed."""
    for r in range(len(store.rings) if store.compress else 0):
        h = store.ring(r)
        while store.compresses(r) and h[END] - h[PLAIN] >= store.plain_room(r) - store.compress:
            _compress_block(store, r)
            h = store.ring(r)
        if store.compresses(r) and store.rings[r].slots is not None:
            h[LOW] = max(h[LOW], h[END] - store.rings[r].slots)


def _compress_block(store: RingStore, r: int) -> None:
    assert store.blocks is not None
    h, size = store.ring(r), store.compress
    block = int(h[PLAIN]) // size
    # The first block may be partial: its missing slots repeat the first slot, and are never read.
    slots = np.maximum(np.arange(block * size, (block + 1) * size), h[PLAIN])
    cells = size * store.keys
    if not store.blocks.has_room(r, cells):
        store.head = store.head.copy()  # concurrent reads are repeated: see `RingStore.changed`
        store.blocks.make_room(r, cells)
        if store.rings[r].slots is not None:
            store.blocks.forget(r, int(h[LOW]) // size)
        store.note_directory()
        store.changed()
    columns, marks = store.cells(r, slots)
    values = [*columns, *(m.astype(np.int64) for m in marks)]
    store.blocks.add(r, block, store.keys, [_as_ints(v).ravel() for v in values])
    store.note_directory()
    store.ring(r)[PLAIN] = (block + 1) * size


def compress_empty(store: RingStore, r: int, end: int) -> None:
    """Close the slots of a ring below `end`. They must be empty, and so must all uncompressed slots.

    Empty blocks take only rows of the directory. Blocks that the ring would not keep are skipped.
    """
    assert store.blocks is not None
    size, kept, block = store.compress, store.rings[r].slots, int(store.ring(r)[PLAIN]) // store.compress
    plain = store.plain_room(r) - size
    until = max(block, (end - plain) // size + 1)  # the remaining slots stay uncompressed
    store.head = store.head.copy()  # concurrent reads are repeated: see `RingStore.changed`
    if kept is not None and (end - kept) // size > block:
        block = min(until, (end - kept) // size)
        store.blocks.restart(r, block)
    nothing = [_as_ints(np.array([store.identity[n]], numpy_type(k)))[0] for n, k in store.slots.stored]
    store.blocks.add_constant(r, block, until - block, store.keys, [*nothing, *(0 for _ in store.marks)])
    h = store.ring(r)
    h[END], h[PLAIN] = end, until * size
    if kept is not None:
        h[LOW] = max(h[LOW], end - kept)
    store.note_directory()
    store.changed()


def decompressed(store: RingStore, r: int, slots: Ints) -> tuple[list[Any], list[Any]]:
    """As `RingStore.cells`, but also for compressed slots."""
    hot = int(store.ring(r)[PLAIN])
    own = store.cells(r, slots[slots >= hot])
    packed = slots[slots < hot]
    if len(packed) == 0:
        return own
    parts = [_of_block(store, r, block, packed) for block in np.unique(packed // store.compress).tolist()]
    parts.append(own)
    columns = [np.concatenate(c) for c in zip(*(p[0] for p in parts))]
    return columns, [np.concatenate(m) for m in zip(*(p[1] for p in parts))]


def _of_block(store: RingStore, r: int, block: int, wanted: Ints) -> tuple[list[Any], list[Any]]:
    """The wanted slots of a block; keys that were added later have empty cells."""
    assert store.blocks is not None
    size, stored = store.compress, len(store.slots.stored)
    then, values = store.blocks.block(r, block)
    at = wanted[wanted // size == block] - block * size
    columns = []
    for values_, (name, kind) in zip(values[:stored], store.slots.stored):
        wide = np.full((len(at), store.keys), store.identity[name], dtype=numpy_type(kind))
        wide[:, :then] = _from_ints(values_, wide.dtype).reshape(size, then)[at]
        columns.append(wide)
    marks = []
    for values_ in values[stored:]:
        there = np.zeros((len(at), store.keys), dtype=np.bool_)
        there[:, :then] = values_.reshape(size, then)[at]
        marks.append(there)
    return columns, marks


def _as_ints(values: npt.NDArray[Any]) -> Ints:
    """Values as ints for compression: floats by their bits."""
    return values.view(np.int64) if values.dtype == np.float64 else values.astype(np.int64, copy=False)


def _from_ints(values: Ints, kind: Any) -> npt.NDArray[Any]:
    return values.view(np.float64) if kind == np.float64 else values.astype(kind, copy=False)
