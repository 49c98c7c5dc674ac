"""What lies in the kernel cache is run: where it may lie, and what of it is read."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tidemill.jit import cache_directory as place
from tidemill.jit.disk_cache import _Files

SCRIPT = """
import tidemill as tm
from tidemill import col
s = tm.stream('s', time='t', schema={'t': 'int64', 'x': 'int64'})
print(s.where(col.x % 7 == 3).run(s=[{'t': 1, 'x': 10}]).num_rows)
"""


def run(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    paths = [str(Path(tm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p), **env}
    known["TIDEMILL_KERNELS"] = "compiled"
    return subprocess.run([sys.executable, "-c", script], env=known, capture_output=True, text=True)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Look for the place of the cache anew, with temporary files in a directory of the test."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(place, "_found", None)
    monkeypatch.setattr(place, "_made", {})
    monkeypatch.setattr("tempfile.tempdir", str(temporary))

    def look(path: Path) -> Path:
        monkeypatch.setenv("TIDEMILL_CACHE", str(path))
        place._found = None
        return place.cache_directory()

    return look


def test_a_directory_that_others_can_write_is_not_used(fresh: Any, tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.warns(RuntimeWarning, match=f"others can write {open_to_all}"):
        assert fresh(open_to_all).name.startswith("tidemill-kernels-")
    assert list(open_to_all.iterdir()) == []
    with pytest.warns(RuntimeWarning, match="others can write"):
        assert fresh(open_to_all / "below").name.startswith("tidemill-kernels-")


def test_a_link_to_a_directory_that_others_can_write_is_not_used(fresh: Any, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    with pytest.warns(RuntimeWarning, match="others can write"):
        fresh(tmp_path / "link")
    (tmp_path / "own").mkdir()
    (tmp_path / "fine").symlink_to("own")
    assert fresh(tmp_path / "fine") == tmp_path / "fine" / "machine"


def test_what_is_planted_in_the_cache_is_looked_at_as_the_cache_is(fresh: Any, tmp_path: Path) -> None:
    cache, machine = tmp_path / "cache", tmp_path / "cache" / "machine"
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    cache.mkdir(mode=0o700)
    machine.symlink_to(tmp_path / "open")
    with pytest.warns(RuntimeWarning, match=f"others can write {tmp_path / 'open'}"):
        assert fresh(cache).name.startswith("tidemill-kernels-")
    assert list((tmp_path / "open").iterdir()) == []
    machine.unlink()
    machine.mkdir()
    machine.chmod(0o777)
    with pytest.warns(RuntimeWarning, match=f"others can write {machine}"):
        fresh(cache)
    machine.chmod(0o755)
    assert fresh(cache) == machine and machine.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_or_a_link_of_someone_else_is_not_used(fresh: Any, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 12345, 12345)
    with pytest.warns(RuntimeWarning, match="theirs is someone else's"):
        fresh(tmp_path / "theirs")
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    (tmp_path / "own").mkdir()
    (tmp_path / "sticky" / "link").symlink_to(tmp_path / "own")
    os.lchown(tmp_path / "sticky" / "link", 12345, 12345)
    with pytest.warns(RuntimeWarning, match="the link .* is someone else's"):
        fresh(tmp_path / "sticky" / "link")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fresh(tmp_path / "sticky" / "ours") == tmp_path / "sticky" / "ours" / "machine"


def test_what_is_made_is_for_the_user_alone(
    fresh: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)
    try:
        assert fresh(tmp_path / "a" / "b") == tmp_path / "a" / "b" / "machine"
        monkeypatch.delenv("TIDEMILL_CACHE")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
        (tmp_path / "home" / "tidemill").mkdir(parents=True)
        (tmp_path / "home").chmod(0o755)
        (tmp_path / "home" / "tidemill").chmod(0o755)
        place._found = None
        found = place.cache_directory()
    finally:
        os.umask(before)
    assert found == tmp_path / "home" / "tidemill" / "kernels" / "machine"
    below = tmp_path / "a" / "b" / "machine"
    for path in (below, *below.parents[:2], found, *found.parents[:2]):
        assert path.stat().st_mode & 0o777 == 0o700, path


def test_a_planted_source_or_bytecode_is_not_run(tmp_path: Path) -> None:
    assert run(SCRIPT, TIDEMILL_CACHE=str(tmp_path)).stdout == "1\n"
    evil = f"open({str(tmp_path / 'run')!r}, 'w')"
    (tmp_path / "__pycache__").mkdir()
    names = {f.name.split(".")[0] for f in (tmp_path / "machine").glob("tidemill_kernel_*")}
    assert names
    for name in names:
        (tmp_path / f"{name}.py").write_text(evil)
        (tmp_path / "machine" / f"{name}.py").write_text(evil)
    assert run(SCRIPT, TIDEMILL_CACHE=str(tmp_path)).stdout == "1\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("damage", ["cut", "empty", "garbage", "flipped", "link", "directory"])
def test_a_torn_cache_file_is_thrown_away_and_made_again(tmp_path: Path, damage: str) -> None:
    files = _Files(str(tmp_path), "kernel", "stamp")
    files.save("signature", ["code"] * 100)
    for file in (*tmp_path.glob("*.nbi"), *tmp_path.glob("*.nbc")):
        files.save("signature", ["code"] * 100)
        whole = file.read_bytes()
        file.unlink()
        match damage:
            case "cut":
                file.write_bytes(whole[:-3])
            case "empty":
                file.write_bytes(b"")
            case "garbage":
                file.write_bytes(b"\x80\x05\x95 not a pickle" * 9)
            case "flipped":
                file.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
            case "link":
                (tmp_path / "elsewhere").write_bytes(whole)
                file.symlink_to(tmp_path / "elsewhere")
            case "directory":
                file.mkdir()
        assert files.load("signature") is None
        if damage != "directory":
            assert not file.is_symlink() and not file.exists()
            files.save("signature", ["code"] * 100)
            assert files.load("signature") == ["code"] * 100
        else:
            file.rmdir()


def test_a_cache_that_cannot_be_written_any_more_is_done_without(tmp_path: Path) -> None:
    files = _Files(str(tmp_path / "gone"), "kernel", "stamp")
    files.save("signature", "code")
    assert files.load("signature") is None


def test_a_temporary_cache_is_removed_at_exit_by_who_made_it(tmp_path: Path) -> None:
    script = """
import os
from tidemill.jit import cache_directory as place
made = place.cache_directory()
if os.fork() == 0:
    raise SystemExit(0)  # it runs what was registered for the exit, too
os.wait()
assert made.is_dir() and made == place.cache_directory(), made
print(made)
"""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "tmp").mkdir()
    there = {"TIDEMILL_CACHE": str(tmp_path / "open"), "TMPDIR": str(tmp_path / "tmp")}
    done = run(script, **there)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "tmp") in done.stdout and list((tmp_path / "tmp").iterdir()) == []

    killed = run(script.replace("print(made)", "os.kill(os.getpid(), 9)"), **there)
    assert killed.returncode == -9
    [left] = (tmp_path / "tmp").iterdir()
    assert run(script, **there).returncode == 0
    assert not left.exists()
