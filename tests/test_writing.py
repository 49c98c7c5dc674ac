"""Files appear by rename, by one function: nobody else opens a file to write it, or renames one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

ALLOWED = {
    "src/tidemill/core/files.py:_hidden": "this is the writer",
    "src/tidemill/core/files.py:appearing": "this is the writer",
    "src/tidemill/io/stream_files.py:StreamWriter.__init__": "a stream that others read while it is written",
    "src/tidemill/io/sinks.py:write_parquet.writer": "into the file of `appearing`",
    "src/tidemill/demo.py:generate": "into the file of `appearing`",
    "src/tidemill/demo.py:write_png": "into the file of `appearing`",
    "src/tidemill/demo.py:start_spark": "settings in a directory of this run alone",
    "src/tidemill/jit/cache_directory.py:_temporary": "a lock file, which stays empty",
    "src/tidemill/jit/disk_cache.py:_Files._locked": "a lock file, which stays empty",
    "src/tidemill/spark/dia/writing.py:_published": "renames a directory that was filled while it was hidden",
    "src/tidemill/spark/dia/writing.py:_joined_lines": "in that hidden directory",
    "src/tidemill/spark/dia/writing.py:_joined_arrow": "in that hidden directory",
    "src/tidemill/spark/dia/writing.py:Lines.__init__": "in that hidden directory",
    "src/tidemill/spark/dia/writing.py:ArrowFile.__init__": "in that hidden directory",
    "src/tidemill/core/shared_arrays.py:create_mapped": "memory of several processes: a root names it",
    "benchmarks/docs.py:_draw": "into the file of `appearing`",
    "benchmarks/exchange/data.py:kept": "renames a directory that was filled while it was hidden",
    "benchmarks/exchange/data.py:_write": "in that hidden directory",
    "benchmarks/exchange/data.py:_tpch": "in that hidden directory",
    "benchmarks/exchange/network.py:Network.start": "a log, and a list that grows",
    "benchmarks/exchange/network.py:_locked": "a lock file, which stays empty",
    "benchmarks/relational/serialized.py:_ours": "a temporary file without a name to keep",
    "benchmarks/intervals/spark.py:_files": "in a directory of this run alone",
    "benchmarks/temporal/spark.py:_files": "in a directory of this run alone",
    "benchmarks/progressive.py:_file": "in a directory of this run alone",
    "benchmarks/start.py:file_of": "in a directory of this run alone",
    "benchmarks/latency/feed.py:Feed.saved": "in a directory of this run alone",
    "benchmarks/latency/bytewax_peer.py:main": "in a directory of this run alone",
    "benchmarks/latency/pathway_peer.py:main": "in a directory of this run alone",
    "benchmarks/wheels/spark.py:_parquet": "in a directory of this run alone",
    "benchmarks/windows/spark.py:_parquet": "in a directory of this run alone",
    "benchmarks/windows/spark.py:_few": "in a directory of this run alone",
    "benchmarks/windows/memory.py:_hours": "in a directory of this run alone",
    "benchmarks/windows/memory.py:_one_file": "in a directory of this run alone",
}
"""Function by function, who may, and why."""

WRITERS = {
    "write_text", "write_bytes", "savefig", "write_table", "ParquetWriter", "write_feather", "mkstemp",
    "NamedTemporaryFile", "tofile", "savez", "symlink_to", "hardlink_to",
}  # fmt: skip
RENAMES = {"os.rename", "os.replace", "os.renames", "os.link", "os.symlink", "shutil.move", "shutil.copy"}


def writes(call: ast.Call) -> bool:
    """Whether a call opens a file to write it, writes one by its path, or gives one another name."""
    name = ast.unparse(call.func)
    last = name.rsplit(".", 1)[-1]
    if name in RENAMES:
        return True
    if last in ("rename", "replace"):  # of a path; that of a string has two arguments
        return "." in name and len(call.args) == 1 and not call.keywords
    if name == "os.open":
        return any(flag in ast.unparse(call) for flag in ("O_CREAT", "O_WRONLY"))
    if last in ("open", "OSFile", "fdopen"):
        modes = [*call.args, *(k.value for k in call.keywords if k.arg == "mode")]
        texts = [m.value for m in modes if isinstance(m, ast.Constant) and isinstance(m.value, str)]
        return any(set(t) <= set("rwaxbt+") and set(t) & set("wax+") for t in texts)
    # What writes a table into an open writer of Arrow's is called so as well.
    return last in WRITERS and (last != "write_table" or name.startswith(("pq.", "parquet.")))


def writing(path: Path, name: str) -> Iterator[str]:
    """The functions of a file that write, as `file:Class.function`, with the line."""

    def walk(node: ast.AST, inside: tuple[str, ...]) -> Iterator[str]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inside = (*inside, node.name)
        if isinstance(node, ast.Call) and writes(node):
            yield f"{name}:{'.'.join(inside)}"
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    yield from walk(ast.parse(path.read_text()), ())


def found() -> set[str]:
    files = [p for folder in ("src", "benchmarks", "examples") for p in (ROOT / folder).rglob("*.py")]
    return {place for p in files for place in writing(p, p.relative_to(ROOT).as_posix())}


def test_only_these_write_files() -> None:
    assert found() - set(ALLOWED) == set(), "use core.files.appearing, or say here why not"


def test_the_list_has_nobody_who_does_not() -> None:
    assert set(ALLOWED) - found() == set()


@pytest.mark.parametrize(
    "source",
    [
        "open(path, 'w')", "open(path, mode='ab')", "path.open('x')", "os.open(p, os.O_RDWR | os.O_CREAT)",
        "os.replace(a, b)", "a.rename(b)", "a.replace(b)", "path.write_text(text)", "pa.OSFile(path, 'wb')",
        "pq.write_table(table, path)", "pq.ParquetWriter(path, schema)", "figure.savefig(path)",
    ],
)  # fmt: skip
def test_the_check_finds(tmp_path: Path, source: str) -> None:
    (tmp_path / "x.py").write_text(f"class A:\n    def f():\n        {source}\n")
    assert list(writing(tmp_path / "x.py", "x.py")) == ["x.py:A.f"]


@pytest.mark.parametrize(
    "source",
    [
        "open(path)", "open(path, 'rb')", "os.open(p, os.O_RDONLY)", "text.replace('a', 'b')",
        "replace(node, child=x)", "dataclasses.replace(node, child=x)", "writer.write_table(table)",
        "pa.OSFile(path)", "pa.ipc.open_file(file)",
    ],
)  # fmt: skip
def test_the_check_allows(tmp_path: Path, source: str) -> None:
    (tmp_path / "x.py").write_text(source)
    assert list(writing(tmp_path / "x.py", "x.py")) == []
