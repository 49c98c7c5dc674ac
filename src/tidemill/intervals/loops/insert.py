"""Insert rows into the blocks of the time-travel index: see `blocks`."""

from __future__ import annotations

from typing import Any

from tidemill.intervals.loops.blocks import (
    AT,
    BELOW,
    COUNT,
    FAN,
    FIRST,
    FULL,
    LACK_NEW,
    LACK_NODES,
    LACK_ROWS,
    LACK_TOUCHED,
    LACKS,
    LAST,
    LEAF,
    LEVELS,
    LIVE,
    META,
    NODES,
    NODES_TOP,
    QUEUE,
    QUEUES,
    READY,
    ROWS_TOP,
    SIZE,
    SKIP,
    SPARE,
    STALE,
    TICK,
    TOUCHED,
    UNIT,
    Ints,
    Store,
    new_version,
    release,
    take,
    take_leaf,
)
from tidemill.jit.intrinsics import address_of, copy_bytes
from tidemill.jit.kernel import bare_kernel

TOO_MANY = -1


@bare_kernel
def insert_groups(s: Store, keys: Ints, words: Ints, order: Ints, ties: int, first: int) -> Any:
    """Insert the rows `order[first:]`, which are in order of key, time, ties and arrival.

    Returns where to go on when there is more room, or `TOO_MANY`. Readers see nothing of it before
    `show_all`.
    """
    path = s.scratch[: 2 * LEVELS]
    j = first
    while j < order.size:
        k = keys[order[j]]
        end = j + 1
        while end < order.size and keys[order[end]] == k:
            end += 1
        v = new_version(s.heads, k)
        leaf = s.heads[k, v]
        n = s.heads[k, v + 1] & COUNT
        late = j
        if n > 0:
            while late < end and _before(words, order[late], s.rows, leaf + n - 1, ties):
                late += 1
        if s.heads[k, v + 2 * LEVELS - 1] & COUNT >= FAN - 1:
            return TOO_MANY
        if not _has_room(s, k, v, end - j, late - j):
            return j
        s.oldest[k] = min(s.oldest[k], words[order[j], 0])
        s.own[LIVE] += end - j
        if late > j:
            j = _insert_late(s, k, v, words, order, j, late, end, ties, path)
        _append_rows(s, k, v, words, order, j, end)
        j = end
    return j


@bare_kernel
def _has_room(s: Store, k: int, v: int, rows: int, late: int) -> Any:
    """Return whether there is room for the rows of a key, whatever leaves the late ones belong to."""
    leaves = 0
    height = 0
    for level in range(LEVELS - 1, 0, -1):
        count = s.heads[k, v + 2 * level + 1] & COUNT
        leaves = leaves * FAN + count
        if height == 0 and count > 0:
            height = level
    runs = min(late, leaves + 1)
    blocks = 2 * runs + late // (LEAF // 2) + rows // LEAF + 4
    nodes = runs * (height + 2) + blocks // (FAN // 2) + 2 * LEVELS
    own = s.own
    ready = LEAF * own[QUEUES + QUEUE * FULL + READY]
    ready_nodes = FAN * own[QUEUES + QUEUE * NODES + READY]
    touched = runs * (height + 1) * (FAN + 2) + 3 * blocks + FAN
    own[LACKS] = 0
    if own[ROWS_TOP] + LEAF * blocks > s.rows.shape[0] - LEAF + ready:
        own[LACKS] |= LACK_ROWS
    if own[NODES_TOP] + FAN * nodes > s.nodes.shape[0] + ready_nodes:
        own[LACKS] |= LACK_NODES
    # A run is one leaf of new entries, or more; each level may divide what it gets once more.
    if late // (LEAF // 2) + 2 * FAN + 4 > s.new.shape[1]:
        own[LACKS] |= LACK_NEW
    if own[TOUCHED] + touched > s.touched.shape[0]:
        own[LACKS] |= LACK_TOUCHED
    return own[LACKS] == 0


@bare_kernel
def _copy_rows(s: Store, to: int, words: Ints, at: int, n: int) -> None:
    """Copy rows, of the index or new ones."""
    size = 8 * words.shape[1]
    copy_bytes(address_of(s.rows) + size * to, address_of(words) + size * at, size * n)


# -- the order of rows


@bare_kernel
def _before(words: Ints, i: int, rows: Ints, at: int, ties: int) -> Any:
    """Return whether a row is before another one, by time and ties."""
    if words[i, 0] != rows[at, 0]:
        return words[i, 0] < rows[at, 0]
    for j in range(2, 2 + ties):
        if words[i, j] != rows[at, j]:
            return words[i, j] < rows[at, j]
    return False


@bare_kernel
def _before_all(s: Store, words: Ints, i: int, level: int, at: int, ties: int) -> Any:
    """Return whether a row is before all of an entry in a node of a level; level 0 has rows."""
    if level == 0:
        return _before(words, i, s.rows, at, ties)
    if ties == 0 or words[i, 0] != s.nodes[at, FIRST]:
        return words[i, 0] < s.nodes[at, FIRST]
    while level > 1:
        at = s.nodes[at, AT] + (s.nodes[at, META] >> SKIP & COUNT)
        level -= 1
    return _before(words, i, s.rows, s.nodes[at, AT], ties)


# -- entries


@bare_kernel
def _entry_of(path: Ints, level: int) -> Any:
    return path[2 * level] + path[2 * level + 1]


@bare_kernel
def _touch(s: Store, level: int, at: int) -> None:
    """Remember an entry at a place if its partial is to be computed."""
    if s.nodes[at, META] >> STALE & 1:
        s.touched[s.own[TOUCHED], 0] = level
        s.touched[s.own[TOUCHED], 1] = at
        s.own[TOUCHED] += 1


@bare_kernel
def _put(s: Store, level: int, to: int, entries: Ints, at: int) -> None:
    """Copy an entry into a node of a level."""
    for w in range(s.nodes.shape[1]):
        s.nodes[to, w] = entries[at, w]
    _touch(s, level, to)


@bare_kernel
def _append_entry(s: Store, k: int, v: int, level: int, entries: Ints, at: int) -> None:
    """Append an entry to the open node of a level. Full nodes get entries in the levels above."""
    held = s.new[2]
    for w in range(held.shape[1]):
        held[1, w] = entries[at, w]
    while True:
        own = v + 2 * level
        node = s.heads[k, own]
        meta = s.heads[k, own + 1]
        count = meta & COUNT
        if 0 < count < FAN:
            _put(s, level, node + count, held, 1)
            s.heads[k, own + 1] = meta + 1
            return
        fresh = take(s, NODES)
        _put(s, level, fresh, held, 1)
        s.heads[k, own] = fresh
        s.heads[k, own + 1] = 1
        if count == 0:
            return
        skip = meta >> SKIP & COUNT
        held[1, FIRST] = s.nodes[node + skip, FIRST]
        held[1, LAST] = s.nodes[node + count - 1, LAST]
        held[1, AT] = node
        held[1, META] = meta | 1 << STALE
        level += 1


# -- rows at the end


@bare_kernel
def _append_rows(s: Store, k: int, v: int, words: Ints, order: Ints, j: int, end: int) -> None:
    """Append rows to the open leaf, and open another one whenever it is full."""
    while j < end:
        leaf = s.heads[k, v]
        meta = s.heads[k, v + 1]
        n = meta & COUNT
        size = meta >> SIZE
        if n == 0:
            leaf, size = take_leaf(s, min(end - j, LEAF))
        elif n == LEAF:
            _describe(s, s.new[2], 0, leaf, n, size)
            _append_entry(s, k, v, 1, s.new[2], 0)
            leaf, size = take_leaf(s, LEAF)
            n = 0
        elif n == UNIT << size:
            leaf, n, size = _larger(s, leaf, n, size, end - j)
        m = min((UNIT << size) - n, end - j)
        for q in range(m):
            _copy_rows(s, leaf + n + q, words, order[j + q], 1)
        s.heads[k, v] = leaf
        s.heads[k, v + 1] = (n + m) | size << SIZE
        j += m


@bare_kernel
def _larger(s: Store, leaf: int, n: int, size: int, more: int) -> Any:
    """Copy a leaf that is full to a larger one, without the rows that have expired."""
    rows = s.rows
    gone = 0
    while gone < n and rows[leaf + gone, 0] < s.own[BELOW]:
        gone += 1
    gone = max(gone - s.own[SPARE], 0)
    to, c = take_leaf(s, min(n - gone + more, LEAF))
    _copy_rows(s, to, rows, leaf + gone, n - gone)
    release(s, size, leaf)
    s.own[LIVE] -= gone
    return to, n - gone, c


# -- rows before the end


@bare_kernel
def _insert_late(
    s: Store, k: int, v: int, words: Ints, order: Ints, j: int, late: int, end: int, ties: int, path: Ints
) -> Any:
    """Insert the rows `[j, late)`, which are before the last one of the key; return `late`."""
    older = False
    for level in range(1, LEVELS):
        older |= s.heads[k, v + 2 * level + 1] & COUNT > 0
    if older:
        while j < late and _before(words, order[j], s.rows, s.heads[k, v], ties):
            j = _insert_run(s, k, v, words, order, j, late, ties, path)
    if j < late:
        _into_open_leaf(s, k, v, words, order, j, late, end, ties)
    return late


@bare_kernel
def _merge(
    s: Store, to: int, want: int, words: Ints, order: Ints, j: int, stop: int, at: int, n: int, ties: int
) -> Any:
    """Write so many rows, of the `n` at a place and of new ones, in order; return how many are new.

    Of equal ones, those that were there are first.
    """
    b = j
    done = 0
    while done < want:
        low = 0
        high = min(n, want - done)
        if b < stop:  # how many rows that were there come before the next new one
            while low < high:
                middle = (low + high) >> 1
                if _before(words, order[b], s.rows, at + middle, ties):
                    high = middle
                else:
                    low = middle + 1
        _copy_rows(s, to + done, s.rows, at, high)
        at += high
        n -= high
        done += high
        if done < want:
            _copy_rows(s, to + done, words, order[b], 1)
            b += 1
            done += 1
    return b - j


@bare_kernel
def _into_open_leaf(
    s: Store, k: int, v: int, words: Ints, order: Ints, j: int, late: int, end: int, ties: int
) -> None:
    """Merge rows into a copy of the open leaf. If they are too many, only the last leaf of them is open."""
    leaf = s.heads[k, v]
    meta = s.heads[k, v + 1]
    n = meta & COUNT
    at = leaf
    while True:
        left = n + late - j
        want = min(left, LEAF)
        to, size = take_leaf(s, min(left + end - late, LEAF))
        new = _merge(s, to, want, words, order, j, late, at, n, ties)
        j += new
        at += want - new
        n -= want - new
        if left <= LEAF:
            s.heads[k, v] = to
            s.heads[k, v + 1] = want | size << SIZE
            release(s, meta >> SIZE, leaf)
            return
        _describe(s, s.new[2], 0, to, want, size)
        _append_entry(s, k, v, 1, s.new[2], 0)


@bare_kernel
def _describe(s: Store, entries: Ints, p: int, leaf: int, n: int, size: int) -> None:
    entries[p, FIRST] = s.rows[leaf, 0]
    entries[p, LAST] = s.rows[leaf + n - 1, 0]
    entries[p, AT] = leaf
    entries[p, META] = n | 1 << STALE | size << SIZE


@bare_kernel
def _insert_run(
    s: Store, k: int, v: int, words: Ints, order: Ints, j: int, late: int, ties: int, path: Ints
) -> Any:
    """Insert the rows from `j` on that belong to one leaf that is not open; return the first one after them.

    The leaf and the nodes above it are copied, if readers know them.
    """
    top, stop = _find_leaf(s, k, v, words, order, j, late, ties, path)
    _own_path(s, k, v, top, path)
    first = words[order[j], 0]
    last = words[order[stop - 1], 0]
    for level in range(top, 0, -1):
        e = _entry_of(path, level)
        s.nodes[e, FIRST] = min(s.nodes[e, FIRST], first)
        s.nodes[e, LAST] = max(s.nodes[e, LAST], last)
        if not s.nodes[e, META] >> STALE & 1:
            s.nodes[e, META] |= 1 << STALE
            _touch(s, level, e)
    e = _entry_of(path, 1)
    leaf = s.nodes[e, AT]
    meta = s.nodes[e, META]
    n = meta & COUNT
    total = n + stop - j
    pieces = (total + LEAF - 1) // LEAF
    at = leaf
    for p in range(pieces):
        want = total * (p + 1) // pieces - total * p // pieces
        to, size = take_leaf(s, want)
        fresh = _merge(s, to, want, words, order, j, stop, at, n, ties)
        j += fresh
        at += want - fresh
        n -= want - fresh
        if p == 0:
            _describe(s, s.nodes, e, to, want, size)
        else:
            _describe(s, s.new[0], p - 1, to, want, size)
    release(s, meta >> SIZE, leaf)
    _insert_entries(s, k, v, top, path, pieces - 1)
    return stop


@bare_kernel
def _find_leaf(
    s: Store, k: int, v: int, words: Ints, order: Ints, j: int, late: int, ties: int, path: Ints
) -> Any:
    """Write the path to the leaf of a row, as the node and the entry of each level.

    Returns the highest level, and the first of the following rows that does not belong to that leaf.
    """
    heads = s.heads
    top = 0
    next_level = 0
    next_at = heads[k, v]
    for level in range(1, LEVELS):
        meta = heads[k, v + 2 * level + 1]
        if meta & COUNT == 0:
            continue
        if top > 0:
            next_level = top
            next_at = heads[k, v + 2 * top] + (heads[k, v + 2 * top + 1] >> SKIP & COUNT)
        top = level
        if not _before_all(s, words, order[j], level, heads[k, v + 2 * level] + (meta >> SKIP & COUNT), ties):
            break
    node = heads[k, v + 2 * top]
    meta = heads[k, v + 2 * top + 1]
    level = top
    while True:
        count = meta & COUNT
        low = meta >> SKIP & COUNT
        high = count
        while high - low > 1:  # the last entry that begins at the row or before it
            middle = (low + high) >> 1
            if _before_all(s, words, order[j], level, node + middle, ties):
                high = middle
            else:
                low = middle
        path[2 * level] = node
        path[2 * level + 1] = low
        if low + 1 < count:
            next_level = level
            next_at = node + low + 1
        if level == 1:
            break
        meta = s.nodes[node + low, META]
        node = s.nodes[node + low, AT]
        level -= 1
    stop = j + 1
    while stop < late and _before_all(s, words, order[stop], next_level, next_at, ties):
        stop += 1
    return top, stop


@bare_kernel
def _own_path(s: Store, k: int, v: int, top: int, path: Ints) -> None:
    """Copy the nodes of a path that readers know, without the entries that have expired."""
    for level in range(top, 0, -1):
        node = path[2 * level]
        if s.node_stamps[node // FAN] == s.own[TICK]:
            continue
        in_head = level == top
        above = 0 if in_head else _entry_of(path, level + 1)
        meta = s.heads[k, v + 2 * top + 1] if in_head else s.nodes[above, META]
        skip = meta >> SKIP & COUNT
        to = take(s, NODES)
        count = (meta & COUNT) - skip
        size = 8 * s.nodes.shape[1]
        begin = address_of(s.nodes)
        copy_bytes(begin + size * to, begin + size * (node + skip), size * count)
        for q in range(count):
            _touch(s, level, to + q)
        release(s, NODES, node)
        meta -= skip | skip << SKIP
        if in_head:
            s.heads[k, v + 2 * top] = to
            s.heads[k, v + 2 * top + 1] = meta
        else:
            s.nodes[above, AT] = to
            s.nodes[above, META] = meta
        path[2 * level] = to
        path[2 * level + 1] -= skip


@bare_kernel
def _insert_entries(s: Store, k: int, v: int, top: int, path: Ints, more: int) -> None:
    """Insert entries behind that of a path in its lowest node. Nodes that are too full are divided."""
    level = 1
    new = s.new
    while more > 0:
        node = path[2 * level]
        in_head = level == top
        above = 0 if in_head else _entry_of(path, level + 1)
        meta = s.heads[k, v + 2 * top + 1] if in_head else s.nodes[above, META]
        count = meta & COUNT
        total = count + more
        behind = path[2 * level + 1] + 1
        if total <= FAN:
            for q in range(count - 1, behind - 1, -1):
                _put(s, level, node + q + more, s.nodes, node + q)
            for q in range(more):
                _put(s, level, node + behind + q, new[0], q)
            if in_head:
                s.heads[k, v + 2 * top + 1] += more
            else:
                s.nodes[above, META] += more
            return
        for q in range(total):
            from_new = behind <= q < behind + more
            for w in range(s.nodes.shape[1]):
                if from_new:
                    new[1, q, w] = new[0, q - behind, w]
                else:
                    new[1, q, w] = s.nodes[node + (q if q < behind else q - more), w]
        parts = (total + FAN - 1) // FAN
        for p in range(parts):
            begin = total * p // parts
            share = total * (p + 1) // parts - begin
            to = node if p == 0 else take(s, NODES)
            for q in range(share):
                _put(s, level, to + q, new[1], begin + q)
            new[0, p, FIRST] = new[1, begin, FIRST]
            new[0, p, LAST] = new[1, begin + share - 1, LAST]
            new[0, p, AT] = to
            new[0, p, META] = share | 1 << STALE
        if in_head:
            for p in range(parts - 1):
                _append_entry(s, k, v, level + 1, new[0], p)
            s.heads[k, v + 2 * top] = new[0, parts - 1, AT]
            s.heads[k, v + 2 * top + 1] = new[0, parts - 1, META] & COUNT
            return
        _put(s, level + 1, above, new[0], 0)
        for p in range(1, parts):
            for w in range(s.nodes.shape[1]):
                new[0, p - 1, w] = new[0, p, w]
        more = parts - 1
        level += 1
