"""Compressed slots of a wheel: a directory of blocks, and the pieces of memory or files they lie in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.addresses import keeping
from tidemill.wheels.loops.compressed import (
    AT,
    BITS_EACH,
    COLUMN,
    COLUMNS,
    LEAST,
    PIECE,
    THEN,
    bits_needed,
    pack,
    unpack,
)  # fmt: skip

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
FIRST_WORDS = 64
FIRST_BLOCKS = 4
MOST_PIECES = 32
"""A wheel in more pieces is written as one when it is saved."""


@dataclass
class Piece:
    """Words that blocks lie in. Of those in use none ever changes."""

    words: Words
    used: int
    file: dict[str, Any] | None = None
    """What a manifest says of the file it lies in, if it does."""


@dataclass
class Region:
    """The rows of a ring in the directory, for blocks that follow each other."""

    begin: int
    room: int
    first: int = 0
    """The number of the first block."""
    count: int = 0


@dataclass
class Cold:
    """The compressed slots of all rings: blocks of so many `slots`, of so many `columns`."""

    slots: int
    columns: int
    regions: list[Region]
    directory: Ints = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    pieces: list[Piece] = field(default_factory=list)
    bases: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    """Where the words of each piece begin in memory."""

    @classmethod
    def empty(cls, rings: int, slots: int, columns: int) -> Cold:
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
        """Whether a block fits in without new arrays."""
        free = len(self.pieces[-1].words) - self.pieces[-1].used if self.pieces else 0
        region = self.regions[ring]
        return region.count < region.room and free >= self.columns * (cells + 1)

    def make_room(self, ring: int, cells: int, blocks: int = 1) -> None:
        """New arrays, with room for blocks; the old ones stay as they are for who reads them."""
        if self.regions[ring].count + blocks > self.regions[ring].room:
            self._lay_out(ring, blocks)
        need = self.columns * (cells + 1)
        if not self.pieces or len(self.pieces[-1].words) - self.pieces[-1].used < need:
            size = max(FIRST_WORDS, need, self.words // 8)
            self.pieces.append(Piece(np.zeros(size, dtype=np.uint64), 0))
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
        """Where the pieces are, in this process."""
        words = [p.words for p in self.pieces]
        self.bases = keeping([w.ctypes.data for w in words] or [0], words)

    def add(self, ring: int, block: int, keys: int, columns: Sequence[Ints]) -> None:
        """Add the block after the last one of a ring, for which there is room: its values by column."""
        region, piece = self.regions[ring], self.pieces[-1]
        if region.count == 0:
            region.first = block
        assert block == region.first + region.count
        row = self.directory[region.begin + region.count]
        row[THEN] = keys
        for c, values in enumerate(columns):
            least, bits = bits_needed(values) if len(values) else (0, 0)
            own = COLUMNS + COLUMN * c
            row[own + AT] = (len(self.pieces) - 1) << PIECE | piece.used
            row[own + LEAST], row[own + BITS_EACH] = least, bits
            if bits:
                size = -(-len(values) * bits // 64)
                pack(values, least, bits, piece.words[piece.used : piece.used + size])
                piece.used += size
        region.count += 1

    def add_constant(self, ring: int, block: int, count: int, keys: int, values: Sequence[int]) -> None:
        """Add blocks after the last one of a ring. In each column all of them have one value."""
        if count == 0:
            return
        self.make_room(ring, 0, count)
        region = self.regions[ring]
        if region.count == 0:
            region.first = block
        assert block == region.first + region.count
        row = self._rows(1)[0]
        row[THEN] = keys
        row[COLUMNS + AT :: COLUMN] = (len(self.pieces) - 1) << PIECE | self.pieces[-1].used
        row[COLUMNS + LEAST :: COLUMN] = values
        at = region.begin + region.count
        self.directory[at : at + count] = row
        region.count += count

    def restart(self, ring: int, block: int) -> None:
        """The blocks of a ring begin with one that is to come: those before are never asked for again."""
        self.regions = [Region(**vars(r)) for r in self.regions]
        self.regions[ring].first, self.regions[ring].count = block, 0
        self._let_go()

    # -- blocks out

    def forget(self, ring: int, below: int) -> None:
        """Blocks of a ring below one are never asked for again."""
        region = self.regions[ring]
        gone = min(max(0, below - region.first), region.count)
        if gone < max(region.count // 2, 1):  # rows move, so not for every block
            return
        self.directory = self.directory.copy()
        kept = self.directory[region.begin + gone : region.begin + region.count].copy()
        self.regions = [Region(**vars(r)) for r in self.regions]
        region = self.regions[ring]
        region.first, region.count = region.first + gone, len(kept)
        self.directory[region.begin : region.begin + len(kept)] = kept
        self._let_go()

    def _let_go(self) -> None:
        """Pieces in which no block lies any more need no memory."""
        used = set(self._pieces_of_blocks().tolist())
        for number, piece in enumerate(self.pieces[:-1]):
            if number not in used and len(piece.words):
                self.pieces[number] = Piece(np.zeros(0, dtype=np.uint64), 0, piece.file)
        self.find_bases()

    def _pieces_of_blocks(self) -> Ints:
        own = [self._own(r)[:, COLUMNS + AT :: COLUMN].ravel() for r in self.regions]
        return np.unique(np.concatenate(own) >> PIECE)

    def block(self, ring: int, number: int) -> tuple[int, list[Ints]]:
        """How many keys a block has, and its values by column."""
        region = self.regions[ring]
        row = self.directory[region.begin + number - region.first]
        keys = int(row[THEN])
        found = []
        for c in range(self.columns):
            at, least, bits = row[COLUMNS + COLUMN * c : COLUMNS + COLUMN * (c + 1)].tolist()
            values = np.empty(self.slots * keys, dtype=np.int64)
            address = int(self.bases[at >> PIECE]) + ((at & ((1 << PIECE) - 1)) << 3)
            unpack(address, bits, least, values)
            found.append(values)
        return keys, found

    # -- as it is kept

    def seal(self) -> None:
        """Have one piece for all that is in no file yet; all in one if there are many."""
        whole = sum(p.file is not None for p in self.pieces) >= MOST_PIECES
        first = next((i for i, p in enumerate(self.pieces) if whole or p.file is None), len(self.pieces))
        loose = self.pieces[first:]
        if len(loose) == 0 or (len(loose) == 1 and loose[0].used == len(loose[0].words)):
            return
        sizes = [p.used for p in loose]
        words = np.concatenate([p.words[: p.used] for p in loose])
        moved = np.zeros(len(self.pieces), dtype=np.int64)
        moved[first:] = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        self.directory = self.directory.copy()
        at = self.directory[:, COLUMNS + AT :: COLUMN]
        piece = at >> PIECE
        shift = (first - piece << PIECE) + moved[np.minimum(piece, len(moved) - 1)]
        at += np.where(piece >= first, shift, 0)
        self.pieces = [*self.pieces[:first], Piece(words, len(words))]
        self.find_bases()

    def copy(self) -> Cold:
        """Another with the same blocks. Words are shared, for none changes; new ones go elsewhere."""
        regions = [Region(**vars(r)) for r in self.regions]
        pieces = [Piece(p.words[: p.used], p.used, p.file) for p in self.pieces]
        other = Cold(self.slots, self.columns, regions, self.directory.copy(), pieces)
        other.find_bases()
        return other

    @property
    def words(self) -> int:
        return sum(len(p.words) for p in self.pieces)

    @property
    def nbytes(self) -> int:
        return 8 * self.words + self.directory.nbytes

    def ring_bytes(self, ring: int) -> int:
        """What the blocks of a ring take."""
        rows = self._own(self.regions[ring])
        bits = rows[:, COLUMNS + BITS_EACH :: COLUMN] * rows[:, [THEN]] * self.slots
        return int((-(-bits // 64) * 8).sum()) + rows.nbytes
