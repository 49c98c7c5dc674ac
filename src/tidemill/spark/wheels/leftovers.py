"""Remove the saves of buckets that failed or killed builds and appends left, and saves that are outdated.

The manifest of each save of a bucket names the build or append that made it. A save is needed if a manifest
of the store names it, or if the driver that made it is alive, which its claim shows: see
`wheels.files.claims`. The next build or append removes all other saves.
"""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path

from tidemill.core.errors import UserError
from tidemill.core.files import our_errors
from tidemill.wheels.files.buckets import BUCKETS, check_buckets
from tidemill.wheels.files.claims import LOCK, locked, names_in, running
from tidemill.wheels.files.format import forget_saves, manifest_of, saves_in
from tidemill.wheels.files.opening import store_rings
from tidemill.wheels.files.saving import JOB

_BUCKET = re.compile(r"bucket-(\d{5})")


def forget_buckets(where: Path) -> None:
    """Remove the saves of buckets that are not needed any more."""
    with our_errors("build wheel", where), locked(where, "build wheel"):
        counts = _counting(where)
        if counts is None:
            return
        alive = running(where)
        for name in names_in(where):
            found, path = _BUCKET.fullmatch(name), where / name
            if found is None or path.is_symlink() or not path.is_dir():
                continue
            own = counts.get(int(found[1]), set())
            forget_saves(path, partial(_counts, path, own, alive))
            if not own and not alive and set(names_in(path)) <= {LOCK}:
                (path / LOCK).unlink(missing_ok=True)
                os.rmdir(path)


def _counts(path: Path, own: set[int], alive: set[str], save: int) -> bool:
    # Called with the bucket's lock held: a task of another append may be saving there now.
    return save in own or _job(path, save) in alive


def _counting(where: Path) -> dict[int, set[int]] | None:
    """The saves of each bucket that manifests of the store name; None if one cannot be read."""
    counts: dict[int, set[int]] = {}
    for version in saves_in(where):
        try:
            facts = manifest_of(where, version)
            check_buckets(facts, store_rings(facts))
        except UserError:
            return None
        for bucket, number in facts[BUCKETS]["saves"].items():
            counts.setdefault(int(bucket), set()).add(number)
    return counts


def _job(path: Path, save: int) -> str:
    """The build or append that a save of a bucket is part of."""
    try:
        return str(manifest_of(path, save).get(JOB, ""))
    except UserError:
        return ""
