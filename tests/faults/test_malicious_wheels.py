"""Wheels that someone sends you: every number and every name in them is another, under right checksums."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.faults.counts import SOAK, report, seed_of
from tests.faults.wheels_damage import files_of, places, seal
from tests.faults.wheels_machine import run_cases, wrong
from tests.faults.wheels_made import KINDS, MAKERS, SOME
from tidemill.core.checksums import CHECKSUM, checksum
from tidemill.wheels.files.format import manifest_of, saves_in
from tidemill.wheels.open_wheel import open_wheel

pytestmark = pytest.mark.interpreted  # the child of machines compiles some
VALUES: list[Any] = [
    -1, 0, 1, {"add": 1}, {"add": -1}, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63,
    -(1 << 63), 10**30, 1.5, True, None, "", "x", "../x", [], {}, [[0]], {"deep": 400}, "drop", "\ud800",
    float("nan"),
]  # fmt: skip
NAMES = ["absolute", "above", "below", "system", "here", "other", "lock", "zero", "long", "none", "number"]
SPECIAL = ["symlink", "dangling", "loop", "fifo", "directory", "device", "unreadable"]


def _crafted(made: Path, kind: str) -> list[dict[str, Any]]:
    """All that can be written into the files of a wheel of one kind."""
    cases: list[dict[str, Any]] = []
    for file in files_of(made / kind):
        name = Path(file).name
        if "-000001" in name and kind != "plain":  # the save before is not asked, only removed
            continue
        if name != "save.lock":
            cases += [{"file": file, "how": "special", "value": v} for v in SPECIAL]
        if name.startswith("manifest-"):
            facts = json.loads((made / kind / file).read_bytes())
            for at in places(facts)[1:]:
                if at[0] not in ("files", CHECKSUM):
                    cases += [{"file": file, "how": "value", "at": at, "value": v} for v in VALUES]
            cases += [{"file": file, "how": "name", "at": n, "value": v} for v in NAMES for n in range(8)]
        elif name.endswith(".arrow"):
            many = 64 if name.startswith(("head", "blocks")) else 4
            cases += [
                {"file": file, "how": "number", "column": c, "row": r, "value": v, "sealed": True}
                for r in range(many) for c in range(1 if many > 4 else 6) for v in VALUES[:14]
            ]  # fmt: skip
    return [{"kind": kind, "verify": True, "sealed": True, "go on": True, **c} for c in cases]


def _craft(made: Path, work: Path, count: int, kinds: list[str]) -> None:
    machine = "malicious wheels"
    pick = random.Random(seed_of(machine))
    crafted = [c for kind in kinds for c in _crafted(made, kind)]
    cases = pick.sample(crafted, min(count, len(crafted)))
    for number, case in enumerate(cases):
        case["verify"] = number % 4 > 0
    outcomes = run_cases(made, cases, work)
    faults = [(c, w) for c, o in zip(cases, outcomes) if (w := wrong(c, o, []))]
    report(machine, len(cases), len(faults))
    assert not faults, faults[:5]


def test_crafted_wheels_do_no_harm(saved_wheels: Path, tmp_path: Path) -> None:
    _craft(saved_wheels, tmp_path, 28, SOME)


@pytest.mark.soak
def test_many_crafted_wheels_do_no_harm(saved_wheels: Path, tmp_path: Path) -> None:
    _craft(saved_wheels, tmp_path, int(8_000 * SOAK), KINDS)


# --- one by one, by what was done -------------------------------------------------------------------


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    MAKERS["plain"](tmp_path / "wheel")
    return tmp_path / "wheel"


def _edit(manifest: Path, change: Any) -> None:
    facts = json.loads(manifest.read_text())
    change(facts)
    facts[CHECKSUM] = checksum(facts)
    manifest.write_text(json.dumps(facts))


@pytest.mark.parametrize("name", ["{}/thesis.txt", "../thesis.txt"])
def test_an_old_manifest_that_names_my_thesis_does_not_get_it_deleted(wheel: Path, name: str) -> None:
    thesis = wheel.parent / "thesis.txt"
    thesis.write_text("three years")
    said = name.format(wheel.parent)
    _edit(wheel / "manifest-000001.json", lambda facts: facts["files"]["cells"].update(file=said))
    going: Any = open_wheel(wheel)
    for _ in range(3):
        going.save(wheel)
    assert thesis.read_text() == "three years"
    assert not (wheel / "manifest-000001.json").exists()


@pytest.mark.parametrize("name", ["{}/thesis.txt", "../thesis.txt", "/dev/zero"])
def test_a_manifest_cannot_have_a_file_read_from_elsewhere(wheel: Path, name: str) -> None:
    [cells] = wheel.glob("cells-000002-*")
    (wheel.parent / "thesis.txt").write_bytes(cells.read_bytes())
    said = name.format(wheel.parent)
    _edit(wheel / "manifest-000002.json", lambda facts: facts["files"]["cells"].update(file=said))
    with pytest.raises(tm.UserError, match=rf"{wheel}.*expected files of the directory itself"):
        open_wheel(wheel)


def test_a_lock_that_is_a_symlink_does_not_empty_its_target(wheel: Path) -> None:
    going: Any = open_wheel(wheel)
    thesis = wheel.parent / "thesis.txt"
    thesis.write_text("three years")
    for make in (lambda lock: lock.symlink_to(thesis), lambda lock: os.link(thesis, lock), os.mkfifo):
        (wheel / "save.lock").unlink()
        make(wheel / "save.lock")
        try:
            going.save(wheel)
        except tm.UserError as refused:
            assert str(wheel / "save.lock") in str(refused)
        assert thesis.read_text() == "three years"


def test_a_bucket_that_is_a_symlink_is_refused(tmp_path: Path) -> None:
    MAKERS["buckets"](tmp_path / "store")
    (tmp_path / "store" / "bucket-00000").rename(tmp_path / "elsewhere")
    (tmp_path / "store" / "bucket-00000").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(tm.UserError, match=r"a directory at .*bucket-00000, got a link"):
        open_wheel(tmp_path / "store")


def test_a_manifest_that_was_edited_by_hand_is_refused(wheel: Path) -> None:
    manifest = wheel / "manifest-000002.json"
    manifest.write_text(manifest.read_text().replace('"rows": ', '"rows": 1'))
    with pytest.raises(tm.UserError, match=r"manifest-000002.json as it was written, got its checksum"):
        open_wheel(wheel, verify=False)


def test_a_wheel_opened_without_verify_gets_no_new_checksums_over_its_damage(wheel: Path) -> None:
    [cells] = wheel.glob("cells-000002-*")
    content = bytearray(cells.read_bytes())
    at = content.index((5).to_bytes(8, "little"))
    content[at] ^= 1
    cells.write_bytes(content)
    going: Any = open_wheel(wheel, verify=False)
    whole: Any = open_wheel(wheel, save=1)
    with pytest.raises(tm.UserError, match=r"cells-000002.*checksum differs"):
        going.save(wheel)
    with pytest.raises(tm.UserError, match=r"cells-000002.*checksum differs"):
        whole.merge(going)
    assert saves_in(wheel) == [1, 2]


def test_a_head_with_an_odd_version_does_not_hang_the_reader(wheel: Path) -> None:
    [file] = wheel.glob("head-000002-*")
    head = pa.ipc.open_file(pa.BufferReader(file.read_bytes())).read_all()["head"].to_pylist()
    head[7] = 1  # odd while slots close
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, pa.schema({"head": pa.int64()})) as out:
        out.write_table(pa.table({"head": head}))
    seal(wheel)
    again: Any = open_wheel(wheel)
    assert again.landmark() == again.query(0, 40)


def test_a_small_file_does_not_become_more_than_there_is_memory_for(wheel: Path) -> None:
    [file] = wheel.glob("cells-000002-*")
    zeros = pa.table({"f_s0_0": pa.array(np.zeros(1 << 20, dtype=np.int64))})
    packed = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, zeros.schema, options=packed) as out:
        out.write_table(zeros)
    assert file.stat().st_size < 10_000
    seal(wheel)
    with pytest.raises(tm.UserError, match=r"cells-000002.*compressed"):
        open_wheel(wheel)


def test_metadata_of_a_batch_cannot_say_that_it_is_compressed(wheel: Path) -> None:
    [file] = wheel.glob("head-000002-*")
    size = 1 << 20
    small = size.to_bytes(8, "little") + pa.compress(bytes(size), codec="zstd", asbytes=True)
    small += bytes(-len(small) % 8)
    batch = pa.record_batch({"head": np.frombuffer(small, dtype=np.int64)})
    old = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema, options=old) as out:
        out.write_batch(batch, custom_metadata={"ARROW:experimental_compression": "zstd"})
    seal(wheel)
    with pytest.raises(tm.UserError, match=r"head-000002.*compressed"):
        open_wheel(wheel)


def test_a_watermark_far_away_does_not_hang_who_opens_a_store(tmp_path: Path) -> None:
    MAKERS["buckets"](tmp_path / "store")
    manifest = max((tmp_path / "store").glob("manifest-0*.json"))
    _edit(manifest, lambda facts: facts["buckets"].update(until=(1 << 33) - 1))
    with pytest.raises(tm.UserError, match=r"bucket of \d keys at most \d+ slots behind|GB"):
        open_wheel(tmp_path / "store")


def test_a_save_that_is_made_is_no_error_because_old_ones_cannot_be_removed(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going: Any = open_wheel(wheel)
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.name == "manifest-000001.json":
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.warns(RuntimeWarning, match=r"files that are not needed stay in .*Permission denied"):
        going.save(wheel)
    assert saves_in(wheel) == [1, 2, 3]


@pytest.mark.parametrize(
    "text", ["", "[", "7", '"x"', "[" * 100_000, '{"a":' * 100_000, "\xff", '{"format": 2}']
)
def test_what_is_no_manifest_is_refused_with_its_path(wheel: Path, text: str) -> None:
    (wheel / "manifest-000002.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(tm.UserError, match=r"manifest-000002.json"):
        open_wheel(wheel)
    assert open_wheel(wheel, save=1) is not None


def test_files_that_others_put_there_are_neither_saves_nor_removed(wheel: Path) -> None:
    others = ["manifest-x.json", "manifest-1.json", "manifest-0000002.json", "manifest-000000.json",
              "notes.arrow", "cells-2.arrow", ".cells.tmp", "manifest-9999999999.json"]  # fmt: skip
    for name in others:
        (wheel / name).write_text("mine")
    going: Any = open_wheel(wheel)
    for _ in range(3):
        going.save(wheel)
    assert all((wheel / name).read_text() == "mine" for name in others)


@pytest.mark.parametrize("first", ["manifest-000002.json", "manifest-0000002.json"])
def test_a_save_does_not_disappear_behind_a_number_with_more_zeros(
    wheel: Path, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wheel / "manifest-0000002.json").write_text("mine")
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: sorted(listed(path), key=lambda name: name != first))
    assert saves_in(wheel) == [1, 2]


def test_a_save_after_the_last_number_there_is_is_refused(wheel: Path) -> None:
    going: Any = open_wheel(wheel)
    (wheel / "manifest-999999999.json").write_text("mine")
    before = sorted(os.listdir(wheel))
    with pytest.raises(tm.UserError, match=rf"saves up to 999999999 in {wheel}, got save 999999999 there"):
        going.save(wheel)
    assert sorted(os.listdir(wheel)) == before


def test_a_manifest_that_is_gone_is_said_to_be_missing(wheel: Path) -> None:
    with pytest.raises(tm.UserError, match=r"manifest-000007.json as it was written, got missing"):
        manifest_of(wheel, 7)
