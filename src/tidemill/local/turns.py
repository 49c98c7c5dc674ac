"""In which order the chunks of several inputs are read."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from types import MappingProxyType

from tidemill.core.time import BEGINNING, FOREVER
from tidemill.io.chunks import Chunk


def in_turn(
    inputs: Mapping[str, Iterable[Chunk]], rank: Mapping[str, int] = MappingProxyType({}),
) -> Generator[tuple[str, Chunk | None, int], None, None]:
    """Yield the chunks of inputs with their names and watermarks; no chunk at the end of an input.

    The next chunk is read from the input with the lowest watermark, because it holds the others back. The
    watermark of a single input is not asked for, as that may take a pass over its rows: it is `BEGINNING`.
    Inputs of a lower `rank` are read to their end first.

    >>> chunks = {"a": [Chunk("a1", 5), Chunk("a2", 9)], "b": [Chunk("b1", 7)]}
    >>> [(name, below) for name, chunk, below in in_turn(chunks) if chunk]
    [('a', 5), ('b', 7), ('a', 9)]
    """
    below = dict.fromkeys(inputs, BEGINNING)
    chunks = {name: iter(given) for name, given in inputs.items()}
    alone = len(inputs) == 1
    while chunks:
        name = min(chunks, key=lambda n: (rank.get(n, 0), below[n]))
        chunk = next(chunks[name], None)
        if chunk is None:
            del chunks[name]
            yield name, None, FOREVER
            continue
        chunks[name] = chunks.pop(name)  # inputs with equal watermarks take turns
        promised = BEGINNING if alone else chunk.complete_below
        if promised < FOREVER:  # the end of an input comes once, by itself
            below[name] = max(below[name], promised)
        yield name, chunk, below[name]
