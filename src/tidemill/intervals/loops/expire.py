"""Drop leaves of the time-travel index that have expired: see `blocks`."""

from __future__ import annotations

from typing import Any

from tidemill.intervals.loops.blocks import (
    AT,
    CLOCK,
    COUNT,
    LAST,
    LEVELS,
    LIVE,
    META,
    NEVER,
    NODES,
    SIZE,
    SKIP,
    TICK,
    Store,
    begin,
    new_version,
    release,
    show,
)
from tidemill.intervals.loops.find import read_head_of_writer, retreat, seek
from tidemill.jit.intrinsics import address_of, publish
from tidemill.jit.kernel import bare_kernel


@bare_kernel
def expire_keys(s: Store, first: int, last: int, below: int, spare: int) -> None:
    """Drop the leaves of the keys `[first, last)` that end before an instant.

    The last `spare` rows of each key before it stay.
    """
    begin(s)
    head = s.scratch[2 * LEVELS : 4 * LEVELS]
    cursor = s.scratch[4 * LEVELS :]
    for k in range(first, last):
        if s.oldest[k] >= below:
            continue
        bound = below
        if spare > 0:
            read_head_of_writer(s.heads, k, head)
            seek(s.rows, s.nodes, head, below, cursor)
            left = spare
            while left > 0 and retreat(s.rows, s.nodes, head, cursor):
                left -= 1
            bound = min(below, s.rows[cursor[0] + cursor[1], 0])
        _expire_key(s, k, bound)
    publish(address_of(s.clock) + 8 * CLOCK, s.own[TICK])


@bare_kernel
def _expire_key(s: Store, k: int, below: int) -> None:
    v = new_version(s.heads, k)
    heads = s.heads
    for level in range(LEVELS - 1, 0, -1):
        meta = heads[k, v + 2 * level + 1]
        if meta & COUNT == 0:
            continue
        node = heads[k, v + 2 * level]
        meta = _expire_node(s, level, node, meta, below)
        if meta & COUNT == meta >> SKIP & COUNT:
            release(s, NODES, node)
            heads[k, v + 2 * level + 1] = 0
            continue
        heads[k, v + 2 * level + 1] = meta
        s.oldest[k] = _expire_below(s, level, node, meta, below)
        show(heads, k)
        return
    n = heads[k, v + 1] & COUNT
    s.oldest[k] = NEVER
    if n > 0:
        s.oldest[k] = s.rows[heads[k, v] + n - 1, 0]
        if s.oldest[k] < below:
            release(s, heads[k, v + 1] >> SIZE, heads[k, v])
            heads[k, v + 1] = 0
            s.own[LIVE] -= n
            s.oldest[k] = NEVER
    show(heads, k)


@bare_kernel
def _expire_node(s: Store, level: int, node: int, meta: int, below: int) -> Any:
    """Release what has expired of a node of a level; return its `META`."""
    skip = meta >> SKIP & COUNT
    gone = skip
    while gone < meta & COUNT and s.nodes[node + gone, LAST] < below:
        _release_entry(s, level, node + gone)
        gone += 1
    return meta + ((gone - skip) << SKIP)


@bare_kernel
def _expire_below(s: Store, level: int, node: int, meta: int, below: int) -> Any:
    """Release what has expired of the first entry of a node, which has not expired as a whole.

    Returns when the first leaf that is left ends. Readers see either of both numbers of the entry: what they
    ask for begins later.
    """
    while level > 1:
        at = node + (meta >> SKIP & COUNT)
        level -= 1
        node = s.nodes[at, AT]
        before = s.nodes[at, META]
        meta = _expire_node(s, level, node, before, below)
        if meta != before:
            publish(address_of(s.nodes) + 8 * (at * s.nodes.shape[1] + META), meta)
    return s.nodes[node + (meta >> SKIP & COUNT), LAST]


@bare_kernel
def _release_entry(s: Store, level: int, at: int) -> None:
    """Release the leaf or node of an entry in a node of a level, and all below it."""
    path = s.scratch[: 2 * LEVELS]
    path[2 * level] = at
    path[2 * level + 1] = at + 1
    bottom = level
    while level <= bottom:
        at = path[2 * level]
        if at == path[2 * level + 1]:
            level += 1
            if level <= bottom:
                release(s, NODES, s.nodes[path[2 * level], AT])
                path[2 * level] += 1
            continue
        meta = s.nodes[at, META]
        if level == 1:
            release(s, meta >> SIZE, s.nodes[at, AT])
            s.own[LIVE] -= meta & COUNT
            path[2 * level] += 1
            continue
        level -= 1
        path[2 * level] = s.nodes[at, AT] + (meta >> SKIP & COUNT)
        path[2 * level + 1] = s.nodes[at, AT] + (meta & COUNT)
