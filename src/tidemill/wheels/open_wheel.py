"""`tm.open_wheel`: open a directory as a wheel, a reader of a shared wheel, or a bucketed store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tidemill.aggregates.algebra import Aggregate
from tidemill.core.files import our_errors
from tidemill.wheels.files.buckets import BUCKETS
from tidemill.wheels.files.format import read_save
from tidemill.wheels.files.mapped import as_it_must_be
from tidemill.wheels.files.opening import spec_of, state_of
from tidemill.wheels.sharing.reader import WheelReader
from tidemill.wheels.sharing.writer import Subscriber, is_shared
from tidemill.wheels.wheel import Wheel
from tidemill.wheels.wheel_store import WheelStore


def open_wheel(
    path: str | os.PathLike[str], *, aggregates: Mapping[str, Aggregate] | None = None,
    save: int | None = None, verify: bool = True,
) -> Wheel | WheelReader | WheelStore:  # fmt: skip
    """Open a wheel that was saved in a directory, built there by Spark, or shared by another process.

    The cells of a saved wheel stay in the file, memory-mapped, until something changes. `verify` reads all
    files once and compares their checksums. Without it, a damaged file may give a wrong answer, and nothing
    worse; checksums are compared before such a wheel is saved again or merged. A shared wheel is read-only
    and always answers from its current state. A wheel that Spark built is read-only, too; its `wheel()`
    returns one that takes rows. User-defined `aggregates` must be given again: files hold no code.
    """
    where = Path(path)
    with our_errors("open wheel", where):
        if is_shared(where):
            source = Subscriber(where)
            with as_it_must_be(where, ""):
                spec = spec_of(source.described, aggregates or {})
            return WheelReader(source, spec)
    opened = read_save(where, save, verify=verify)
    if BUCKETS in opened.facts:
        return WheelStore(opened, aggregates or {}, verify=verify)
    return Wheel.of_state(state_of(opened, aggregates or {}, verify=verify))
