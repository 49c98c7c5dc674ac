"""Lines through file objects and sockets: as they come, and from where."""

from __future__ import annotations

import io
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.examples import examples
from tests.io.test_follow import SOURCE, opened, taken
from tidemill.io.sources import open_source


@pytest.mark.parametrize(
    ("file", "format"),
    [
        (io.BytesIO(b'{"t": 1, "k": "a"}\n\n{"t": 2, "k": "b"}'), "json"),
        (io.StringIO('{"t": 1, "k": "a"}\n\n{"t": 2, "k": "b"}\n'), "json"),
        (io.TextIOWrapper(io.BytesIO(b"\nk,t\na,1\nb,2")), "csv"),
    ],
)
def test_a_file_ends_with_its_last_line_with_or_without_a_line_break(file: Any, format: str) -> None:
    feed = opened(tm.lines(file, format=format))
    assert taken(feed) == [(1, "a"), (2, "b")]
    assert feed.ended


def test_lines_come_as_they_are_written_to_a_pipe() -> None:
    read, write = os.pipe()
    with open(read, "rb") as file:
        feed = opened(tm.lines(file, format="csv"))
        assert feed.poll() is None and feed.file == read
        os.write(write, b"t,k\n1,a\n2,")
        assert taken(feed) == [(1, "a")]
        os.write(write, b"b\n")
        assert taken(feed) == [(2, "b")] and feed.position == 3
        os.close(write)
        assert taken(feed) == [] and feed.ended


def test_a_bad_line_is_named_or_given_to_a_function() -> None:
    text = b'{"t": 1, "k": "a"}\nnothing\n{"t": 2, "k": "b"}\n'
    refused = opened(tm.lines(io.BytesIO(text)))
    for _ in range(2):  # it stays there, and so do the lines beside it
        with pytest.raises(tm.UserError, match="read s, lines, line 2 at byte 19: cannot be read: 'nothing'"):
            refused.poll()
    bad: list[Any] = []
    feed = tm.lines(io.BytesIO(text), on_bad=bad.append)
    assert taken(opened(feed)) == [(1, "a"), (2, "b")]
    assert feed.bad_lines == 1 and bad[0].text == b"nothing"


@pytest.mark.parametrize(
    ("resume", "rows"), [("skip", [(3, "c")]), ("continue", [(1, "a"), (2, "b"), (3, "c")])]
)
def test_where_lines_go_on_after_a_restore(resume: str, rows: list[Any]) -> None:
    text = b"t,k\n1,a\n2,b\n3,c\n"
    feed = opened(tm.lines(io.BytesIO(text), format="csv", resume=resume), position=3)
    assert taken(feed) == rows
    assert feed.position == (4 if resume == "skip" else 7)


def served(*pieces: bytes) -> tuple[int, threading.Thread]:
    """A server that sends these to who connects, and closes the connection."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server, server.accept()[0] as connection:
            for piece in pieces:
                connection.sendall(piece)

    thread = threading.Thread(target=serve)
    thread.start()
    return server.getsockname()[1], thread


def test_lines_of_a_server_until_it_closes_the_connection() -> None:
    port, thread = served(b"t,k\n1,", b"a\n2,b\n")
    source = tm.socket_lines("127.0.0.1", port, format="csv")
    live = tm.stream("s", time="t", schema={"t": "int64", "k": "string"}).live()
    found = [row for table in live.read(s=source) for row in table.to_pylist()]
    thread.join()
    assert sorted(row["t"] for row in found) == [1, 2] and live.positions == {"s": 3}
    assert f"127.0.0.1:{port}" in repr(source)


def test_a_server_that_is_not_there_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(tm.UserError, match=rf"read s, 127.0.0.1:{port}: expected a server .*Refused"):
        opened(tm.socket_lines("127.0.0.1", port))


def test_a_connection_that_breaks_is_an_error() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    feed = opened(tm.socket_lines("127.0.0.1", server.getsockname()[1]))
    connection, _ = server.accept()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset, not closed
    connection.close()
    server.close()
    with pytest.raises(tm.UserError, match="the connection was lost"):
        while feed.poll() is None:
            assert not feed.ended


def test_a_program_reads_its_standard_input() -> None:
    program = (
        "import sys, tidemill as tm\n"
        "live = tm.stream('s', time='t', schema={'t': 'int64', 'k': 'string'}).live()\n"
        "for table in live.read(s=tm.lines(sys.stdin)):\n"
        "    print(table['k'].to_pylist(), flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    for t in range(2):
        child.stdin.write(b'{"t": %d, "k": "a%d"}\n' % (t, t))
        child.stdin.flush()
        assert child.stdout.readline() == b"['a%d']\n" % t, "a line is answered before the next one comes"
    child.stdin.close()
    assert child.wait() == 0
    child.stdout.close()


def test_a_header_that_does_not_fit_stays_one() -> None:
    feed = opened(tm.lines(io.BytesIO(b"\nt,x\n1,2\n"), format="csv"))
    for _ in range(2):
        with pytest.raises(tm.UserError, match="read s, lines, line 1: expected a column 'k'"):
            feed.poll()


class Pieces(io.BytesIO):
    """A file that gives pieces of given sizes."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        super().__init__(data)
        self._sizes = itertools.cycle(sizes)

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(next(self._sizes))


TEXTS = st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=6))


@pytest.mark.parametrize("format", ["csv", "json"])
@examples(25)
@given(
    st.lists(st.tuples(st.integers(-(1 << 62), 1 << 62), TEXTS), max_size=12),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_lines_in_any_pieces_are_what_the_file_is(
    tmp_path_factory: pytest.TempPathFactory,
    format: str,
    rows: list[tuple[int, str | None]],
    sizes: list[int],
) -> None:
    if format == "csv":
        quoted = ((t, "" if k is None else '"' + k.replace('"', '""') + '"') for t, k in rows)
        text = "t,k\n" + "".join(f"{t},{k}\n" for t, k in quoted)
    else:
        text = "".join(json.dumps({"t": t, "k": k}, ensure_ascii=False) + "\n" for t, k in rows)
    path = tmp_path_factory.mktemp("lines") / f"s.{format}"
    path.write_text(text, newline="")
    assert taken(opened(tm.lines(Pieces(text.encode(), sizes), format=format))) == rows
    assert taken(opened(tm.follow(path))) == rows
    assert [
        tuple(row.values()) for chunk in open_source(path, SOURCE) for row in chunk.batch.to_pylist()
    ] == rows
