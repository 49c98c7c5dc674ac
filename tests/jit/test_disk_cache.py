"""Several processes share one cache of machine code."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tidemill.jit.disk_cache import _Files


def save(args: tuple[str, int]) -> None:
    path, number = args
    _Files(path, "kernel", "stamp").save(f"signature {number}", f"code {number}")


def test_signatures_saved_at_once_keep_their_own_code(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, mp_context=get_context("forkserver")) as pool:
        list(pool.map(save, [(str(tmp_path), n) for n in range(40)]))
    files = _Files(str(tmp_path), "kernel", "stamp")
    found = {n: files.load(f"signature {n}") for n in range(40)}
    assert found == {n: f"code {n}" for n in range(40)}


def test_an_index_never_names_data_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Files(str(tmp_path), "kernel", "old").save("signature", "old code")
    fresh = _Files(str(tmp_path), "kernel", "new")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fresh, "_save_data", killed)
        with pytest.raises(KeyboardInterrupt):
            fresh.save("signature", "new code")
    assert fresh.load("signature") is None
    fresh.save("signature", "new code")
    assert fresh.load("signature") == "new code"


def test_without_a_place_to_write_functions_still_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidemill.jit import disk_cache as machine_code
    from tidemill.jit.kernel import kernel

    monkeypatch.setattr(machine_code._Kept, "_locator_classes", [])
    assert kernel(lambda x: x + 1)(2) == 3
