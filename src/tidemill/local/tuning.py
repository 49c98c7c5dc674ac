"""Thresholds that affect when the engine does work, never its results."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Tuning:
    """Thresholds of the local engine. The defaults suit files and large batches."""

    few_rows: int = 1 << 17
    """Inputs that are known to have fewer rows run on one thread."""
    plain_rows: int = 1 << 16
    """Queries on fewer rows do not wait for the compiler: what is not compiled runs as plain Python."""
    few_partials: int = 1 << 18
    """Complete windows may stay open while fewer partials wait: sorting few partials is inefficient."""
    many_partials: int = 1 << 22
    """If more partials wait, they are combined although no window closes, so that memory is bounded by
    keys times panes."""
    output_rows: int = 1 << 17
    """Rows of a result batch, few enough to stay in the CPU cache."""
    plane_bytes: int = 1 << 28
    """Memory limit for the planes of all lanes. With more keys, every record is spilled and sorted."""
    dense_rows: int = 1 << 12
    """Batches with fewer rows do not start the records of all keys at once."""
    small_planes: int = 1 << 22
    """Memory that the planes of a lane may take in any case; only those of recent panes are in use."""
    few_unneeded: int = 1 << 6
    """So many partials of row windows may stay that no window needs any more: to find them, all are read."""
    few_strings: int = 1 << 16
    """A pool with at most this many strings is not searched for unused ones."""
    held_text: int = 1 << 26
    """Bytes of text that a store may hold in the columns of its input, before it copies what it needs."""
    few_keys: int = 1 << 20
    """With at most this many keys, only a snapshot removes keys without state from the index."""
    loop_rows: int = 1 << 12
    """The keys of fewer rows are looked up before the loop: to stop it at a new key would take longer."""
    few_lookups: int = 1 << 14
    """The keys of fewer rows are looked up on the caller's thread."""
    keys_by_row: int = 1 << 12
    """With at most this many keys, each thread collects whole batches; with more, it has keys of its own."""
    few_closing: int = 1 << 9
    """If each thread collects whole batches, windows of at most this many keys are closed by the caller."""
    sample_rows: int = 1 << 16
    """The first rows of an input, which show whether keys are many, and how to arrange records."""
    groups: tuple[str, ...] = ("rows", "sorted", "hashed")
    """The ways in which tables may be grouped by key (`group_operator`)."""
    few_groups: int = 1 << 14
    """With at most this many keys, threads take whole batches of a table, with groups of their own."""
    long_runs: int = 1 << 12
    """If fewer keys than rows divided by this come in order, it does not pay to cut rows between them."""
    parts: int = 32
    """The parts into which rows are divided by a hash of their keys: a power of two."""
    many_grouped: int = 1 << 25
    """If more rows of these parts wait, the parts take them before the end, so that memory is bounded."""
    few_sprayed: int = 1 << 12
    """Batches of fewer rows go through steps that keep nothing on the thread that drives the query."""
    few_waiting: int = 1 << 17
    """Operators on lifetimes let fewer rows than this wait, as long as nobody waits for their results."""
    few_arrived: int = 1 << 12
    """Joins that answer on arrival look for rows that nobody needs any more when at least so many came."""
    few_joined: int = 1 << 15
    """Fewer base rows of an interval join are answered on the caller's thread: to wake others takes time."""
    few_sought: int = 1 << 11
    """As `few_joined`, where each row says its bounds: intervals that jump take several times as long."""
    few_kept: int = 1 << 14
    """Operators on lifetimes that keep fewer rows look at all of them at each advance."""
    many_due: int = 1 << 3
    """If so many advances with as many new rows lead to putting rows apart again, all are looked at."""
    many_touched: int = 1 << 4
    """If the keys of new rows have more of the kept rows than one in so many, an advance looks at all."""
    many_pairs: int = 1 << 21
    """Rows that find more rows of a table than this are divided, so that memory is bounded."""
    snapshots: tuple[str, ...] = ("edges", "moving", "copies")
    """The ways in which snapshots may be computed; the last one is always possible (`snapshot_operator`)."""
    few_divided: int = 1 << 16
    """Between two reports of a progressive query, no thread gets fewer rows than this."""
    many_open: int = 1 << 14
    """If open windows have more rows in a report of a progressive query, the complete ones are closed before
    the next report. For that, all times of a table are read."""
    backlog: int = 4
    """Maximum number of calls queued for the lanes before the caller waits."""


DEFAULT = Tuning()
LIVE = replace(DEFAULT, few_keys=1 << 15)
"""For queries that go on: keys that are gone make room soon, so that memory stays what it was."""
