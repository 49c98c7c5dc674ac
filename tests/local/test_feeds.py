"""Sources that go on, read into live queries: each gives what `run` gives, also after a restore."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill as tm
from tests.conformance.harness import assert_same
from tidemill import col
from tidemill.core.batch import to_rows
from tidemill.core.clock import Clock
from tidemill.core.files import appearing
from tidemill.io.feeds import Feed
from tidemill.local.live import Live

SCHEMA = {"t": "int64", "k": "string", "x": "int64"}
STREAM = tm.stream("s", time="t", schema=SCHEMA)
SUMS = STREAM.group_by("k").window(tm.tumbling(10)).agg(x=tm.sum(col.x))
POLICY = tm.Disorder(slack=5)
PARTS = 6


class MovedClock(Clock):
    """A clock that does not wait: waiting moves it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def wait(self, seconds: float, files: Any = (), woken: Any = None) -> None:
        self.seconds += seconds

    async def wait_async(self, seconds: float, files: Any = (), futures: Any = ()) -> None:
        self.seconds += seconds
        await asyncio.sleep(0)


def events() -> list[list[dict[str, Any]]]:
    """Rows in parts, out of order by less than the slack."""
    pick = random.Random(3)
    came = sorted(range(120), key=lambda t: t + pick.randint(0, 4))
    rows = [{"t": t, "k": f"k{pick.randint(0, 3)}", "x": t % 7} for t in came]
    return [rows[at : at + 20] for at in range(0, 120, 20)]


EVENTS = events()
ALL = [row for part in EVENTS for row in part]
ARROW = STREAM.schema.to_arrow()


PROMISED = [
    item
    for at, part in enumerate(EVENTS)
    for item in (
        part,
        tm.Punctuation(min([row["t"] for later in EVENTS[at + 1 :] for row in later] or [120])),
    )
]
"""The parts, each with the promise that holds after it."""


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=ARROW)


class Growing:
    """A source to which parts are added, each when a reader has found nothing new."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.written = folder, 0

    def more(self) -> bool:
        """Add the next part; return whether there was none."""
        if self.written == PARTS:
            return True
        self.add(EVENTS[self.written])
        self.written += 1
        return False

    def add(self, rows: list[dict[str, Any]]) -> None:
        raise NotImplementedError

    def feed(self) -> Any:
        """A new feed, as another process would make it."""
        raise NotImplementedError


class CsvFile(Growing):
    def add(self, rows: list[dict[str, Any]]) -> None:
        with open(self.folder / "log.csv", "a") as file:
            if file.tell() == 0:
                file.write("x,other,k,t\n")
            file.write("".join(f"{r['x']},,{r['k']},{r['t']}\n" for r in rows))
            if self.written % 2:
                file.flush()  # the file is between two lines, or in one
            file.write("\n")

    def feed(self) -> Feed:
        return tm.follow(self.folder / "log.csv", poll="0s", until=self.more)


class JsonFile(Growing):
    rest = b""

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Half of the last line is written with the next part."""
        data = self.rest + "".join(json.dumps(row) + "\n" for row in rows).encode()
        self.rest = b"" if self.written == PARTS - 1 else data[-7:]
        with open(self.folder / "log", "ab") as file:
            file.write(data[: len(data) - len(self.rest)])

    def feed(self) -> Feed:
        return tm.follow(self.folder / "log", format="json", poll="0s", until=self.more)


class StreamGrows(Growing):
    def add(self, rows: list[dict[str, Any]]) -> None:
        with tm.StreamWriter(self.folder / "s.arrows", SCHEMA) as writer:
            writer.write(rows[:7])
            writer.write(table_of(rows[7:]))

    def feed(self) -> Feed:
        return tm.follow(self.folder / "s.arrows", poll="0s", until=self.more)


class Parts(Growing):
    """Parts in a directory, whose names are in no order."""

    names = (5, 1, 9, 2, 7, 3)

    def add(self, rows: list[dict[str, Any]]) -> None:
        path = self.folder / "parts" / f"{self.names[self.written]}.parquet"
        path.parent.mkdir(exist_ok=True)
        (path.parent / "_unfinished").touch()
        (path.parent / "8.parquet.tmp").touch()
        with appearing(path, step="test") as file:
            pq.write_table(table_of(rows), file)

    def feed(self) -> Feed:
        (self.folder / "parts").mkdir(exist_ok=True)
        return tm.follow(self.folder / "parts", poll="0s", until=self.more)


class JsonParts(Parts):
    def add(self, rows: list[dict[str, Any]]) -> None:
        path = self.folder / f"{self.names[self.written]}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def feed(self) -> Feed:
        return tm.follow(self.folder / "*.jsonl", poll="0s", until=self.more)


class StreamParts(Parts):
    def add(self, rows: list[dict[str, Any]]) -> None:
        tm.write_stream(self.folder / "parts" / f"{self.names[self.written]}.arrows", [rows], SCHEMA)


class Whole(Growing):
    """A source that is all there."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.written = PARTS


class Slow(io.BytesIO):
    """A file that gives a few bytes at once."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(99)


class Memory(Whole):
    def feed(self) -> Feed:
        text = "t,k,x\n" + "".join(f"{r['t']},{r['k']},{r['x']}\n" for r in ALL)
        return tm.lines(Slow(text.encode()), format="csv", resume="skip")


class Pipe(Growing):
    """What another process sends again after a restart."""

    end: int | None = None

    def add(self, rows: list[dict[str, Any]]) -> None:
        assert self.end is not None
        os.write(self.end, "".join(json.dumps(row) + "\n" for row in rows).encode())

    def feed(self) -> Feed:
        read, self.end = os.pipe()
        self.written = 0
        return tm.lines(open(read, "rb"), resume="skip", until=self.more)


class Server(Whole):
    """A server that sends from the line for which it is asked."""

    def feed(self) -> Feed:
        server = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            with server, server.accept()[0] as connection:
                asked = int(connection.recv(100) or b"0")
                connection.sendall("".join(json.dumps(row) + "\n" for row in ALL[asked:]).encode())

        self.thread = threading.Thread(target=serve)
        self.thread.start()
        return tm.socket_lines("127.0.0.1", server.getsockname()[1], resume=self.hello, idle="10s")

    @staticmethod
    def hello(count: int) -> bytes:
        return str(count).encode()


class ListOfDicts(Whole):
    def feed(self) -> Any:
        return tm.items(
            [one for item in PROMISED for one in (item if isinstance(item, list) else [item])], resume="skip"
        )


class Batches(Whole):
    def feed(self) -> Any:
        return tm.items((table_of(part) for part in EVENTS), resume="skip")


class Made(Whole):
    def feed(self) -> Any:
        return tm.items(lambda n: iter(EVENTS[n:]))


class Replayed(Whole):
    def feed(self) -> Any:
        return tm.replay(table_of(ALL), speed=60, every=7)


class StreamIsRead(Whole):
    def feed(self) -> Any:
        path = self.folder / "whole.arrows"
        if not path.exists():
            tm.write_stream(path, PROMISED, SCHEMA)
        return tm.read_stream(path)


KINDS: list[type[Growing]] = [
    CsvFile, JsonFile, StreamGrows, Parts, JsonParts, StreamParts, Memory, Pipe, ListOfDicts, Batches, Made,
    Replayed, StreamIsRead,
]  # fmt: skip


def rows_of(tables: list[pa.Table]) -> list[Any]:
    return to_rows(pa.concat_tables(tables).to_batches(), SUMS.schema)


def expected() -> list[Any]:
    return rows_of([SUMS.run(s=table_of(ALL))])


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_that_is_left_and_restored_gives_each_row_once(kind: type[Growing], tmp_path: Path) -> None:
    source, saved = kind(tmp_path), tmp_path / "saved"
    live, found, clock = SUMS.live(POLICY), [], MovedClock()
    restores = 0
    while True:  # after each table another process goes on
        before = len(found)
        for table in live.read(s=source.feed(), clock=clock):
            found.append(table)
            break
        json.dumps(live.positions)
        live.checkpoint(saved)
        live = tm.restore(SUMS, saved, POLICY)
        restores += 1
        if len(found) == before:
            break
    assert restores > 3, "it was restored in the middle"
    found.append(live.flush())
    assert live.stats().late == 0
    assert_same(rows_of(found), expected(), SUMS.schema)


@pytest.mark.parametrize("every", [1, 3])
def test_checkpoints_on_the_way_and_late_rows_in_a_directory(every: int, tmp_path: Path) -> None:
    """Whoever is killed goes on from the last checkpoint; late rows are in the directory once."""
    late = [{"t": 1, "k": "late", "x": at} for at in range(PARTS)]
    parts = [[*part, late[at]] for at, part in enumerate(EVENTS)]
    saved, found, clock = tmp_path / "saved", [], MovedClock()

    def given(start: int) -> Iterator[list[dict[str, Any]]]:
        for part in parts[start:]:
            clock.seconds += 1
            yield part

    policy = tm.Disorder(slack=5, late="drop", consistent=True)
    SUMS.live(policy).checkpoint(saved)
    for attempt in range(30):
        live, gone = tm.restore(SUMS, saved, policy), []
        reading = live.read(
            s=tm.items(given), checkpoint=saved, every=f"{every}s", late=tmp_path / "late", clock=clock
        )
        for table in reading:
            gone.append(table)
            if attempt % 3 < 2 and len(gone) > attempt % 3 + every:
                break  # killed: what came since the last checkpoint is lost
        else:
            found += gone
            break
        kept = tm.restore(SUMS, saved, policy).stats().rows_out - sum(table.num_rows for table in found)
        while kept > 0:
            found.append(gone.pop(0))
            kept -= found[-1].num_rows
        assert kept == 0
    found.append(live.flush())
    assert attempt > 0
    accepted = [row for part in parts for row in part if row["k"] != "late"]
    lost = live.stats().late
    assert lost >= PARTS - 1, "the first one was not late"
    assert_same(
        rows_of(found), rows_of([SUMS.run(s=table_of([*accepted, *late[: PARTS - lost]]))]), SUMS.schema
    )
    assert live.late().num_rows == 0
    written = pq.read_table(tmp_path / "late")
    assert sorted(written["x"].to_pylist()) == list(range(PARTS - lost, PARTS))
    assert set(written["late_reason"].to_pylist()) == {"late"}


def test_a_directory_with_late_rows_of_another_run_is_refused(tmp_path: Path) -> None:
    rows = [{"t": 9, "k": "a", "x": 1}, {"t": 3, "k": "b", "x": 2}, None, {"t": 4, "k": "b", "x": 2}, None]
    live = SUMS.live(tm.Disorder(slack=0))
    list(live.read(s=iter(rows), late=tmp_path, every="0s"))
    list(live.read(s=tm.items([{"t": 5, "k": "b", "x": 2}], resume="continue"), late=tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"s-{n:012d}.parquet" for n in range(3)]
    with pytest.raises(tm.UserError, match=r"read late=: .*s-000000000002.parquet .*of another run"):
        list(SUMS.live().read(s=rows, late=tmp_path))


def test_late_rows_to_a_function() -> None:
    live, got = SUMS.live(tm.Disorder(slack=0)), []
    list(
        live.read(
            s=iter([{"t": 9, "k": "a", "x": 1}, {"t": 3, "k": "b", "x": 2}]), late=lambda *a: got.append(a)
        )
    )
    assert [(name, table.to_pydict()["k"]) for name, table in got] == [("s", ["b"])]
    assert live.late().num_rows == 0 and live.stats().late == 1


def test_a_server_is_told_where_to_go_on(tmp_path: Path) -> None:
    source, live = Server(tmp_path), SUMS.live(POLICY)
    found = list(live.read(s=tm.items(iter(ALL[:50]))))
    found += list(live.read(s=source.feed()))
    source.thread.join()
    assert live.positions == {"s": 120}
    assert_same(rows_of([*found, live.flush()]), expected(), SUMS.schema)


# --- several sources ----------------------------------------------------------------------------------

ONE, TWO = (tm.stream(name, time="t", schema={"t": "int64"}) for name in ("one", "two"))
BOTH = ONE.union(TWO).window(tm.tumbling(10)).agg(n=tm.count())


def test_sources_have_their_turns_and_one_that_ended_holds_nobody_back() -> None:
    live = BOTH.live(tm.Disorder(slack=0))
    asked: list[str] = []

    def rows(name: str, times: list[int]) -> Iterator[dict[str, int]]:
        for t in times:
            asked.append(name)
            yield {"t": t}

    found = list(live.read(one=rows("one", [5, 15, 25, 35]), two=rows("two", [3])))
    assert asked == ["one", "two", "one", "one", "one"]
    assert pa.concat_tables(found).to_pydict()["n"] == [2, 1, 1]
    assert live.flush().to_pydict()["n"] == [1]


def test_an_idle_source_does_not_hold_the_others_back() -> None:
    clock = MovedClock()
    live = Live(BOTH.optimized, tm.Disorder(slack=0, idle="30s"), clock=clock.now)

    def slow(times: list[int | None]) -> Iterator[dict[str, int] | None]:
        for t in times:
            yield None if t is None else {"t": t}

    two: Any = tm.items(slow([1, *[None] * 1000]), poll="10s", until=lambda: clock.now() > 100)
    one = tm.items(slow([5, *[None] * 200, 25]))
    came = [(clock.now() >= 30, table.to_pydict()["n"]) for table in live.read(one=one, two=two, clock=clock)]
    assert came == [(True, [2])], "two sent nothing for 30 seconds"
    live.push(two=[{"t": 3}])
    assert live.stats().inputs["two"].late_after_idle == 1


def test_a_punctuation_says_no_less_than_is_known_already() -> None:
    live = SUMS.live(tm.Disorder(slack=0))
    rows = [{"t": 25, "k": "a", "x": 1}, tm.Punctuation(20), {"t": 26, "k": "a", "x": 1}, tm.Punctuation(31)]
    assert [t.num_rows for t in live.read(s=rows)] == [1]
    assert live.stats().inputs["s"].watermark == 31


def test_promises_of_keys_come_through() -> None:
    live = SUMS.live()
    rows = [[{"t": 2, "k": "a", "x": 1}, {"t": 3, "k": "b", "x": 2}], tm.Punctuation(10, key={"k": "b"})]
    assert [table.to_pydict()["k"] for table in live.read(s=rows)] == [["b"]]


def test_a_promise_is_news_for_the_keys_of_which_it_says_more() -> None:
    live = SUMS.live()
    rows = [
        [{"t": 2, "k": "a", "x": 1}, {"t": 3, "k": "b", "x": 2}],
        tm.Punctuation(5, key={"k": ["a", "b"]}), tm.Punctuation(9, key={"k": "b"}),
        tm.Punctuation(7, key={"k": "b"}), tm.Punctuation(8, key={"k": ["a", "b"]}),
        tm.Punctuation(10, key={"k": "b"}),
    ]  # fmt: skip
    assert [table.to_pydict()["k"] for table in live.read(s=rows)] == [["b"]]
    with pytest.raises(tm.UserError, match="watermark of s by k of at least 8"):
        live.punctuate(6, key={"k": "a"})


# --- async --------------------------------------------------------------------------------------------


async def arriving(parts: list[Any]) -> AsyncIterator[Any]:
    for part in parts:
        await asyncio.sleep(0)
        yield part


async def collected(tables: AsyncIterator[pa.Table], most: int = 1000) -> list[pa.Table]:
    found: list[pa.Table] = []
    async for table in tables:
        found.append(table)
        if len(found) == most:
            break
    await tables.aclose()  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("kind", [None, CsvFile, Pipe, Replayed])
def test_an_event_loop_reads_the_same(kind: type[Growing] | None, tmp_path: Path) -> None:
    def feed() -> Any:
        return tm.items(lambda n: arriving(PROMISED[n:])) if kind is None else kind(tmp_path).feed()

    source = feed()
    live = SUMS.live(POLICY)
    found = asyncio.run(collected(live.read_async(s=source, clock=MovedClock()), most=2))
    live.checkpoint(tmp_path / "saved")
    live = tm.restore(SUMS, tmp_path / "saved", POLICY)
    if kind is CsvFile:  # the file is there now
        grown = CsvFile(tmp_path)
        grown.written = (tmp_path / "log.csv").read_text().count("\n\n")
        source = grown.feed()
    else:
        source = feed()
    found += asyncio.run(collected(live.read_async(s=source, clock=MovedClock())))
    assert_same(rows_of([*found, live.flush()]), expected(), SUMS.schema)


def test_other_tasks_go_on_while_sources_wait() -> None:
    async def main() -> list[int]:
        read, write = os.pipe()
        done: list[int] = []

        async def writer() -> None:
            for t in (5, 12):
                await asyncio.sleep(0)
                os.write(write, json.dumps({"t": t, "k": "a", "x": t}).encode() + b"\n")
            os.close(write)

        live = SUMS.live(tm.Disorder(slack=0))
        with open(read, "rb") as file:
            other = asyncio.ensure_future(writer())
            async for table in live.read_async(s=tm.lines(file)):
                done += table["x"].to_pylist()
            await other
        return done

    assert asyncio.run(main()) == [5]


def test_an_async_iterator_is_left_and_read_again() -> None:
    async def main() -> list[pa.Table]:
        live, source, found = SUMS.live(POLICY), tm.items(arriving(PROMISED)), []
        while len(found) < 20:
            before = len(found)
            found += await collected(live.read_async(s=source, clock=MovedClock()), most=1)
            if len(found) == before:
                return [*found, live.flush()]
        raise AssertionError("it does not end")

    assert_same(rows_of(asyncio.run(main())), expected(), SUMS.schema)


def test_an_async_iterator_that_was_cancelled_says_so() -> None:
    live = SUMS.live(POLICY)

    async def waits() -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield

    source = tm.items(waits(), until=lambda: True)
    asyncio.run(collected(live.read_async(s=source)))
    with pytest.raises(tm.UserError, match="cancelled with its event loop"):
        asyncio.run(collected(live.read_async(s=source)))


def test_an_async_iterator_needs_an_event_loop() -> None:
    with pytest.raises(tm.UserError, match=r"an iterator, got an async iterator — async for table in"):
        list(SUMS.live().read(s=arriving([])))


# --- what goes wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda live: live.read(), "read: expected a source"),
        (lambda live: live.read(other=[]), "read: expected inputs .*, got 'other'"),
        (lambda live: live.read(s="x.csv"), r"read s: expected a source that goes on.*tm.follow\(path\)"),
        (lambda live: live.read(s=table_of(ALL)), r"tm.replay\(table\) for history"),
        (lambda live: live.read(s=[], every=5), "read every=: expected a time such as"),
        (lambda live: live.read(s=[], late=5), "read: expected late= a directory, or a function"),
        (lambda live: list(live.read(s=[{"t": 1}])), "push s, row 1: expected a column 'k'"),
        (lambda live: tm.items(5), "items: expected an iterable"),
        (lambda live: tm.items([], resume="later"), "expected resume= one of"),
        (lambda live: tm.items([], until=True), "expected until= a function"),
        (lambda live: tm.replay([], speed=0), "a speed above 0"),
        (lambda live: tm.replay([], every=0), "a positive duration"),
        (
            lambda live: list(live.read(s=tm.replay([], every="1s"))),
            "replay: expected every= in logical time",
        ),
        (lambda live: list(live.read(s=tm.replay([], time="k"))), "time= a column of the stream with times"),
        (lambda live: tm.socket_lines("h", 1, format="xml"), "expected format= one of"),
        (lambda live: tm.lines(3), "lines: expected a file object"),
    ],
)
def test_what_cannot_be_read_is_refused_and_the_query_goes_on(call: Callable[[Live], Any], said: str) -> None:
    live = SUMS.live(POLICY)
    list(live.read(s=tm.items([{"t": 3, "k": "a", "x": 1}])))
    live.positions.clear()
    with pytest.raises(tm.UserError, match=said):
        call(live)
    live.push(s={"t": 4, "k": "a", "x": 1})
    assert live.flush().to_pydict()["x"] == [2]


def test_an_input_that_cannot_be_read_again_says_where_it_begins() -> None:
    live = SUMS.live(POLICY)
    rows = tm.items(iter(ALL))
    first = next(live.read(s=rows))
    with pytest.raises(tm.UserError, match="resume='skip' if it begins at its beginning again"):
        list(live.read(s=iter(ALL)))
    with pytest.raises(tm.UserError, match="one that was read for 's'"):
        list(SUMS.live().read(s=rows))
    found = [first, *live.read(s=rows)]  # it goes on where it was left
    assert_same(rows_of([*found, live.flush()]), expected(), SUMS.schema)


def test_a_batch_that_is_refused_is_not_lost() -> None:
    live = SUMS.live(tm.Disorder(slack=0, late="raise"))
    rows = tm.items(
        iter([{"t": 9, "k": "a", "x": 1}, {"t": 3, "k": "a", "x": 1}, {"t": 11, "k": "a", "x": 1}])
    )
    for _ in range(2):
        with pytest.raises(tm.UserError, match="no row below the watermark"):
            list(live.read(s=rows))
        assert live.positions == {"s": 1}


def test_what_fails_after_a_push_is_raised_when_its_rows_were_given() -> None:
    rows = [{"t": 3, "k": "a", "x": 1}, {"t": 12, "k": "a", "x": 1}, {"t": 1, "k": "b", "x": 1}]
    live = SUMS.live(tm.Disorder(slack=0))
    reading = live.read(s=[pa.Table.from_pylist(rows)], late=lambda name, table: 1 // 0)
    assert next(reading).to_pydict()["x"] == [1]
    with pytest.raises(ZeroDivisionError):
        next(reading)
    assert live.positions == {"s": 1} and live.late().num_rows == 1
    live = SUMS.live()
    with pytest.raises(tm.UserError, match="punctuate: expected key columns of s"):
        list(live.read(s=[tm.Punctuation(5, key={"y": 1})]))
    assert live.positions == {"s": 1}


def other_handler(number: int, frame: Any) -> None:
    """As PySpark has one: it does something else first."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("handler", [signal.default_int_handler, other_handler])
def test_ctrl_c_leaves_the_query_usable(handler: Any, request: pytest.FixtureRequest) -> None:
    """The signal comes while a push is at work, and is raised after it."""
    before = signal.signal(signal.SIGINT, handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    live = SUMS.live(POLICY)
    pushed = live.push
    live.push = lambda **rows: (os.kill(os.getpid(), signal.SIGINT), pushed(**rows))[1]  # type: ignore
    rows = tm.items(iter(EVENTS))
    reading = live.read(s=rows)
    found = [next(reading)]
    with pytest.raises(KeyboardInterrupt):
        next(reading)
    assert live.positions == {"s": 1}
    live.push = pushed  # type: ignore[method-assign]
    found += live.read(s=rows)
    assert_same(rows_of([*found, live.flush()]), expected(), SUMS.schema)


def test_a_source_can_be_stopped(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text(json.dumps(ALL[0]) + "\n")
    feed = tm.follow(tmp_path / "s.jsonl")
    live = SUMS.live()
    live.subscribe(lambda table: None)
    stopper = threading.Timer(0.01, feed.stop)
    stopper.start()
    list(live.read(s=feed))  # would not end otherwise
    stopper.join()
    quiet = tm.follow(tmp_path / "s.jsonl", idle="20s")
    clock = MovedClock()
    list(live.read(s=quiet, clock=clock))
    assert 20 <= clock.now() < 21


def test_the_real_clock_waits_for_files_and_events() -> None:
    read, write = os.pipe()
    clock, event = Clock(), threading.Event()
    os.write(write, b"x")
    clock.wait(60, [read])
    event.set()
    clock.wait(60, (), event)
    os.close(read), os.close(write)
    assert clock.now() <= clock.now()


# --- examples and the demo ----------------------------------------------------------------------------


def test_clicks_from_history_to_live(capsys: pytest.CaptureFixture[str]) -> None:
    from examples.live_clicks import main

    main()
    said = capsys.readouterr().out
    assert "restored: 12 files were read" in said
    assert "80 rows live, 80 from history, the same" in said


def test_two_feeds_of_which_one_goes_idle(capsys: pytest.CaptureFixture[str]) -> None:
    from examples.live_two_feeds import main

    main()
    said = capsys.readouterr().out
    assert "32 rows live, 32 from history, the same" in said and "\n0 windows came" not in said


def test_the_demo_shows_live_beside_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from tidemill import demo

    demo.generate(tmp_path / "clicks.parquet", 1_000, lambda count: None)
    run = demo.run_live(demo.per_ad(), tmp_path / "clicks.parquet", every="30m")
    assert demo.differences(run.history.table, run.live.table) == []
    assert run.tables == 13 and run.history.table.num_rows > 100
    demo.show_live(Console(), run)
    assert "1,000 clicks live beside history" in capsys.readouterr().out
