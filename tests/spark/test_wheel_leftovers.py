"""What builds and appends leave when they are killed is removed by the next, and nothing else is."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.faults.wheels_made import MAKERS, wheel_of
from tidemill.core.errors import UserError
from tidemill.spark.wheels.leftovers import forget_buckets
from tidemill.wheels.files.buckets import bucket_path
from tidemill.wheels.files.claims import claimed, tidying
from tidemill.wheels.files.format import saves_in
from tidemill.wheels.files.saving import save
from tidemill.wheels.open_wheel import open_wheel


def test_buckets_of_a_killed_append_are_removed_by_the_next(tmp_path: Path) -> None:
    MAKERS["buckets"](tmp_path)
    wheel = wheel_of("compressed")
    for bucket in (0, 2, 7):  # the store has no bucket 7: a build with more of them was killed
        save(wheel._state, bucket_path(tmp_path, bucket), job="000009-0123abcd")
    assert saves_in(bucket_path(tmp_path, 0)) == [1, 2, 3]
    forget_buckets(tmp_path)
    assert [saves_in(bucket_path(tmp_path, b)) for b in (0, 2)] == [[2], [2]]
    assert not bucket_path(tmp_path, 7).exists()
    assert open_wheel(tmp_path) is not None


def test_buckets_of_an_append_that_goes_on_stay(tmp_path: Path) -> None:
    MAKERS["buckets"](tmp_path)
    with claimed(tmp_path, 2) as job:
        save(wheel_of("compressed")._state, bucket_path(tmp_path, 0), job=job)
        save(wheel_of("compressed")._state, bucket_path(tmp_path, 7), job=job)
        forget_buckets(tmp_path)
        assert saves_in(bucket_path(tmp_path, 0)) == [2, 3]
        assert saves_in(bucket_path(tmp_path, 7)) == [1]
    forget_buckets(tmp_path)
    assert saves_in(bucket_path(tmp_path, 0)) == [2]
    assert not bucket_path(tmp_path, 7).exists()


def test_nothing_is_removed_where_it_is_not_known_what_counts(tmp_path: Path) -> None:
    MAKERS["buckets"](tmp_path)
    save(wheel_of("compressed")._state, bucket_path(tmp_path, 0), job="000009-0123abcd")
    manifest = tmp_path / "manifest-000001.json"
    manifest.write_text(manifest.read_text()[:-9])
    forget_buckets(tmp_path)
    assert saves_in(bucket_path(tmp_path, 0)) == [1, 2, 3]


def test_a_bucket_that_is_a_link_is_left_alone(tmp_path: Path) -> None:
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    MAKERS["buckets"](store)
    save(wheel_of("compressed")._state, elsewhere, job="000009-0123abcd")
    bucket_path(store, 7).symlink_to(elsewhere)
    forget_buckets(store)
    assert saves_in(elsewhere) == [1]


def test_an_append_that_is_done_is_no_error_because_leftovers_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MAKERS["buckets"](tmp_path)
    bucket_path(tmp_path, 7).mkdir()

    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "rmdir", refused)
    with pytest.raises(UserError, match=r"bucket-00007 .*PermissionError"):
        forget_buckets(tmp_path)
    with pytest.warns(RuntimeWarning, match="not needed stay in"), tidying(tmp_path):
        forget_buckets(tmp_path)
    failed = ValueError("the append itself")
    with pytest.warns(RuntimeWarning), pytest.raises(ValueError, match="the append itself"):
        try:
            raise failed
        finally:
            with tidying(tmp_path):
                forget_buckets(tmp_path)
