"""The harness: answers before times, the best run counts, ratios, JSON, the page."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

import benchmarks.__main__ as command
from benchmarks import registry
from benchmarks.answers import Mismatch, same_numbers, same_rows
from benchmarks.docs import replaced, write_docs
from benchmarks.harness import Asked, Case, Effort, Measured, Result, run_case
from benchmarks.registry import Benchmark, Unit
from benchmarks.report import WIDTH, cells, document, line, read_results, write_json
from benchmarks.report import table as shown

TWICE = Effort(repeats=2, at_most=2, enough=0.0, budget=10.0)


def table(*rows: tuple[int, float]) -> pa.Table:
    return pa.table({"k": [k for k, _ in rows], "x": [x for _, x in rows]})


def taking(*seconds: float, answer: Any = 1) -> Callable[[Any], Measured]:
    """A system that says what each of its runs took."""
    left = list(seconds)
    return lambda _: Measured(answer, left.pop(0))


def agree(_: Any) -> None:
    pass


def fake(slow: float = 0.01, answer: pa.Table | None = None) -> Case:
    def peer(rows: pa.Table) -> pa.Table:
        time.sleep(slow)
        return rows if answer is None else answer

    systems = {"tidemill": lambda rows: rows, "peer": peer}
    return Case("fake/sum", {"rows": 2}, systems, same_rows("k"), lambda: table((1, 0.5), (2, 1.5)))


def test_every_system_gets_the_same_data_made_once() -> None:
    made, given = [], []

    def data() -> object:
        made.append(object())
        return made[-1]

    systems = {name: lambda d: given.append(d) for name in ("tidemill", "peer")}
    run_case(Case("c", {}, systems, agree, data), TWICE)
    assert len(made) == 1 and {id(d) for d in given} == {id(made[0])}


def test_answers_are_compared_before_anything_is_timed() -> None:
    log = []
    systems = {name: lambda _, name=name: log.append(name) for name in ("tidemill", "peer")}
    run_case(Case("c", {}, systems, lambda answers: log.append("check")), TWICE)
    assert log == ["tidemill", "peer", "check", "peer", "tidemill", "tidemill", "peer"]


def test_a_mismatch_stops_the_case_and_shows_the_difference() -> None:
    with pytest.raises(Mismatch) as caught:
        run_case(fake(answer=table((1, 0.5), (2, 1.75))), TWICE)
    assert "tidemill and peer differ in x" in str(caught.value)
    assert "1.75" in str(caught.value)


def test_the_rehearsal_comes_first() -> None:
    def rehearse(data: Any) -> None:
        raise Mismatch("on less data")

    with pytest.raises(Mismatch, match="on less data"):
        run_case(Case("c", {}, {"tidemill": pytest.fail}, agree, rehearse=rehearse), TWICE)


@pytest.mark.soak
def test_the_best_run_counts_and_the_first_does_not() -> None:
    systems = {"tidemill": taking(0.1, 3.0, 2.0), "peer": taking(9.0, 8.0, 8.5)}
    result = run_case(Case("c", {}, systems, agree), TWICE)
    assert result.seconds == {"tidemill": 2.0, "peer": 8.0}


def test_the_first_run_counts_in_a_fresh_process() -> None:
    result = run_case(Case("c", {}, {"tidemill": taking(1.0, 2.0)}, agree, fresh=True), TWICE)
    assert result.seconds == {"tidemill": 1.0}


def test_no_system_is_always_first_or_always_after_the_same_one() -> None:
    ran: list[str] = []
    systems = {name: lambda _, name=name: ran.append(name) for name in ("tidemill", "a", "b")}
    run_case(Case("c", {}, systems, agree, repeats=3), TWICE)
    rounds = ["".join(name[0] for name in ran[i : i + 3]) for i in range(3, len(ran), 3)]  # without answers
    assert rounds == ["tba", "bta", "bat"]


def test_fast_systems_run_more_often() -> None:
    effort = Effort(repeats=2, at_most=4, enough=1.0, budget=10.0)
    systems = {"tidemill": taking(0.1, 0.1, 0.1, 0.1, 0.05), "peer": taking(0.9, 0.9, 0.8)}
    result = run_case(Case("c", {}, systems, agree), effort)
    assert result.seconds == {"tidemill": 0.05, "peer": 0.8}


def test_a_slow_peer_runs_once_and_the_result_says_so() -> None:
    systems = {"tidemill": taking(30.0, 1.0, 2.0), "peer": taking(11.0)}
    result = run_case(Case("c", {}, systems, agree), TWICE)
    assert result.seconds == {"tidemill": 1.0, "peer": 11.0}
    assert result.to_json()["measured"] == {"runs": {"peer": 1}}


@pytest.mark.soak
def test_a_peer_stops_repeating_when_its_budget_is_used() -> None:
    systems = {"tidemill": taking(1.0, 1.0, 1.0), "peer": taking(6.0, 5.0)}
    result = run_case(Case("c", {}, systems, agree), TWICE)
    assert result.seconds["peer"] == 5.0


def test_ratio_is_how_many_times_as_long_the_peer_took() -> None:
    result = Result("c", {}, {"tidemill": 2.0, "duckdb": 10.0, "polars": 1.0})
    assert result.ratio == {"duckdb": 5.0, "polars": 0.5}
    assert line(result).startswith("c: 5× duckdb, 0.5× polars")


def measuring(*runs: tuple[float, float]) -> Callable[[Any], Measured]:
    """A system that says what each of its runs took, and the rate of it."""
    left = list(runs)

    def system(_: Any) -> Measured:
        seconds, rate = left.pop(0)
        return Measured(None, seconds, {"rate": rate})

    return system


def test_what_else_is_measured_comes_from_the_run_that_is_shown() -> None:
    """Neither the warm-up nor the greatest of all runs: a rate beside 2 s is the rate of those 2 s."""
    systems = {"tidemill": measuring((0.5, 900.0), (2.0, 300.0), (3.0, 800.0))}
    result = run_case(Case("c", {}, systems, agree), TWICE)
    assert result.seconds == {"tidemill": 2.0} and result.measured == {"rate": {"tidemill": 300.0}}


@pytest.mark.soak
def test_a_first_run_that_is_shown_brings_what_else_it_measured() -> None:
    fresh = {"tidemill": measuring((1.0, 10.0), (2.0, 20.0))}
    assert run_case(Case("c", {}, fresh, agree, fresh=True), TWICE).measured == {"rate": {"tidemill": 10.0}}
    slow = {"tidemill": taking(1.0, 1.0, 1.0), "peer": measuring((11.0, 7.0))}
    assert run_case(Case("c", {}, slow, agree), TWICE).measured["rate"] == {"peer": 7.0}


@pytest.mark.soak
def test_what_follows_from_the_best_times_is_shown_beside_them() -> None:
    systems = {"tidemill": taking(1.0, 3.0, 2.0), "one thread": taking(1.0, 4.0, 5.0)}
    gain = lambda seconds: {"gain": {"tidemill": seconds["one thread"] / seconds["tidemill"]}}
    result = run_case(Case("c", {}, systems, agree, derive=gain), TWICE)
    assert result.measured == {"gain": {"tidemill": 2.0}}


def test_queries_travel_with_the_result(tmp_path: Any) -> None:
    systems = {"tidemill": taking(1.0, 1.0, 1.0), "peer": Asked("SELECT 1", taking(1.0, 1.0, 1.0))}
    result = run_case(Case("c", {}, systems, agree), TWICE)
    assert result.queries == {"peer": "SELECT 1"}
    write_json(tmp_path / "out.json", document("fake", [result]))
    assert read_results(tmp_path / "out.json") == [result]


def test_json_has_the_shape_of_the_design() -> None:
    content = document("fake", [run_case(fake(), TWICE)])
    assert set(content) == {"benchmark", "cases", "machine", "versions"}
    assert content["benchmark"] == "fake"
    [case] = content["cases"]
    assert set(case) == {"case", "params", "seconds", "ratio"}
    assert case["case"] == "fake/sum" and case["params"] == {"rows": 2}
    assert set(case["seconds"]) == {"tidemill", "peer"}
    assert case["ratio"]["peer"] == case["seconds"]["peer"] / case["seconds"]["tidemill"]
    assert {"cpu", "cores", "memory_gb"} <= set(content["machine"])
    assert {"python", "tidemill", "duckdb", "polars"} <= set(content["versions"])


class TestAnswers:
    def test_order_of_rows_and_last_bits_do_not_matter(self) -> None:
        one, other = table((1, 0.1 + 0.2), (2, 1.0)), table((2, 1.0), (1, 0.3))
        same_rows("k")({"tidemill": one, "peer": other})
        with pytest.raises(Mismatch):
            same_rows("k")({"tidemill": one, "peer": table((2, 1.0), (1, 0.3001))})

    def test_instants_may_be_with_or_without_a_zone(self) -> None:
        kinds = (pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("ns"))
        tables = {
            str(k): pa.table({"t": pa.array([1_000_000], pa.timestamp("us")).cast(k)})
            for k in kinds
        }
        same_rows("t")(tables)
        later = pa.table({"t": pa.array([1_000_001], pa.timestamp("us"))})
        with pytest.raises(Mismatch):
            same_rows("t")({**tables, "later": later})

    def test_rows_of_one_side_are_shown(self) -> None:
        with pytest.raises(Mismatch) as caught:
            same_rows("k")({"tidemill": table((1, 1.0)), "peer": table((1, 1.0), (7, 1.0))})
        assert "1 and 2 rows" in str(caught.value)
        assert "only in tidemill: 0 rows" in str(caught.value)
        assert "only in peer: 1 rows" in str(caught.value)

    def test_a_row_that_comes_twice_is_a_difference(self) -> None:
        with pytest.raises(Mismatch, match="1 and 2 rows"):
            same_rows("k")({"tidemill": table((1, 1.0)), "peer": table((1, 1.0), (1, 1.0))})

    def test_columns_are_compared(self) -> None:
        with pytest.raises(Mismatch, match="columns"):
            same_rows("k")({"tidemill": table((1, 1.0)), "peer": pa.table({"k": [1]})})

    def test_null_is_not_zero(self) -> None:
        null = pa.table({"k": [1], "x": pa.array([None], pa.float64())})
        with pytest.raises(Mismatch, match="in x"):
            same_rows("k")({"tidemill": table((1, 0.0)), "peer": null})

    def test_numbers(self) -> None:
        same_numbers()({"tidemill": {"rows": 3, "sum": 0.3}, "peer": {"rows": 3, "sum": 0.1 + 0.2}})
        with pytest.raises(Mismatch, match="differ in rows: 10000000000 and 10000000001"):
            same_numbers()({"tidemill": {"rows": 10**10}, "peer": {"rows": 10**10 + 1}})


class TestCommand:
    @pytest.fixture
    def cases(self, monkeypatch: pytest.MonkeyPatch) -> list[Case]:
        listed = [fake(slow=0.0)]
        bench = Benchmark("fake", lambda quick: listed, {"fake": "A fake"})
        monkeypatch.setitem(registry.MODULES, "fake", "nowhere")
        monkeypatch.setattr(registry, "benchmark", lambda name: bench)
        return listed

    def test_writes_json(self, cases: list[Case], tmp_path: Any, capsys: Any) -> None:
        path = tmp_path / "out.json"
        assert command.main(["fake", "--quick", "--json", str(path)]) == 0
        assert [c["case"] for c in json.loads(path.read_text())["cases"]] == ["fake/sum"]
        assert "A fake" in capsys.readouterr().out

    def test_fails_where_systems_differ_but_measures_the_rest(
        self, cases: list[Case], tmp_path: Any, capsys: Any
    ) -> None:
        cases.insert(
            0,
            Case(
                "fake/bad", {}, fake(answer=table((1, 9.0))).systems, same_rows("k"), cases[0].data
            ),
        )
        path = tmp_path / "out.json"
        assert command.main(["fake", "--json", str(path)]) == 1
        assert [c["case"] for c in json.loads(path.read_text())["cases"]] == ["fake/sum"]
        assert "answers differ" in capsys.readouterr().out

    def test_case_chooses_by_name(self, cases: list[Case], capsys: Any) -> None:
        assert command.main(["fake", "--case", "no such"]) == 2
        assert command.main(["fake", "--case", "sum"]) == 0

    def test_docs_want_all_cases(self, cases: list[Case]) -> None:
        with pytest.raises(SystemExit):
            command.main(["fake", "--docs", "--case", "sum"])
        with pytest.raises(SystemExit):
            command.main(["fake", "--docs", "--ask", "sum"])

    def test_ask_makes_a_case(self, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        def asked(text: str, quick: bool) -> Case:
            if text != "sum":
                raise ValueError(f"{text!r} is none of sum")
            return dataclasses.replace(fake(slow=0.0), name=f"asked/{text}")

        bench = Benchmark("fake", lambda quick: [fake(slow=0.0)], asked=asked)
        monkeypatch.setitem(registry.MODULES, "fake", "nowhere")
        monkeypatch.setattr(registry, "benchmark", lambda name: bench)
        assert command.main(["fake", "--quick", "--ask", "sum"]) == 0
        shown = capsys.readouterr().out
        assert "asked/sum" in shown and "fake/sum" not in shown
        assert command.main(["fake", "--ask", "max"]) == 2
        assert "'max' is none of sum" in capsys.readouterr().out


def test_the_page_is_rewritten_between_its_markers_only(tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    page = tmp_path / "benchmarks.md"
    page.write_text("# Benchmarks\n\nwords\n")
    draw = lambda axes, results: bool(axes.plot([1, 2], [1, 2]))
    bench = Benchmark("fake", lambda quick: [], {"fake": "A fake"}, {"line": draw})
    slow = Result("fake/sum", {"rows": 2}, {"tidemill": 1.0, "peer": 4.0}, {"runs": {"peer": 1}})
    for seconds in (1.0, 2.0):
        result = Result("fake/max", {"rows": 2}, {"tidemill": seconds, "peer": 4.0})
        content = document("fake", [result])
        _, plot = write_docs(bench, [result, slow], content, quick=False, page=page)
    text = page.read_text()
    assert text.startswith("# Benchmarks\n\nwords\n")
    assert text.count("### A fake") == 1
    assert "| max | rows 2 | 2× | 2 | 4 |" in text
    assert "| sum | rows 2 | 4× | 1 | 4¹ |" in text and "¹ ran once" in text
    assert content["machine"]["cpu"] in text and plot.exists()
    assert "(benchmarks/fake-line.png)" in text


def test_the_page_says_where_a_peer_is_faster_and_what_it_was_asked(tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    bench = Benchmark("fake", lambda quick: [], {"fake": "A fake"}, peers=("duckdb",))
    asked = {"tidemill": "events.where(col.x > 1)", "duckdb": "SELECT *\nFROM events"}
    results = [
        Result(f"fake/{name}", {}, {"tidemill": 2.0, "duckdb": peer, "one thread": 1.0}, {}, asked)
        for name, peer in (("slow", 1.0), ("fast", 8.0))
    ]
    [page] = write_docs(bench, results, document("fake", results), quick=True, page=tmp_path / "page.md")
    text = page.read_text()
    assert "### Where Tidemill is behind\n\n- fake/slow: duckdb 0.5×\n\n###" in text
    assert "| slow |  | 0.5× ▼ | 0.5× |" in text and "| fast |  | 4× | 0.5× |" in text  # a peer, or itself
    assert text.count("**slow; fast**") == text.count("SELECT *\nFROM events") == 1  # each query once
    assert "events.where(col.x > 1)" in text


def test_a_page_without_a_faster_peer_does_not_speak_of_one(tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    bench = Benchmark("fake", lambda quick: [])
    results = [Result("fake/sum", {}, {"tidemill": 1.0, "duckdb": 4.0})]
    [page] = write_docs(bench, results, document("fake", results), quick=True, page=tmp_path / "page.md")
    assert "behind" not in page.read_text() and "<details>" not in page.read_text()


def many_systems() -> Result:
    names = ["tidemill", *(f"system number {i}" for i in range(8))]
    rates = {"rows_a_second": dict.fromkeys(names, 1000000.0)}
    return Result("fake/wide", {"rows": 2}, {n: i + 1.0 for i, n in enumerate(names)}, rates)


def test_a_table_that_would_be_wide_has_a_row_for_each_system() -> None:
    header, rows = cells([many_systems()], Unit("ms", 1000))
    assert header == ["case", "system", "ratio", "ms", "rows a second"]
    assert rows[0] == ["wide", "tidemill", "", "1,000", "1,000,000"]
    assert rows[8] == ["", "system number 7", "9×", "9,000", "1,000,000"]
    console = Console(record=True, width=WIDTH)
    console.print(shown("title", [many_systems()]))
    assert "system number 7 " in console.export_text()


def test_a_benchmark_has_its_own_page_where_it_says_so(tmp_path: Any, monkeypatch: Any) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("benchmarks.docs.FOLDER", tmp_path)
    bench = Benchmark("fake", lambda quick: [], page="other.md")
    result = many_systems()
    [page] = write_docs(bench, [result], document("fake", [result]), quick=True)
    text = page.read_text()
    assert page == tmp_path / "other.md"
    assert "| case | parameters | system | ratio | s | rows a second |" in text
    assert "| --- | --- | --- | ---: | ---: | ---: |" in text
    assert "| wide | rows 2 | tidemill |  | 1 | 1,000,000 |" in text
    assert "|  |  | system number 0 | 2× | 2 | 1,000,000 |" in text


def test_pages_hold_several_benchmarks() -> None:
    page = replaced(replaced("# Page\n", "a", "one"), "b", "two")
    assert replaced(page, "a", "new \\1") == page.replace("one", "new \\1")


def test_a_run_that_must_end_in_time_says_what_it_leaves_out() -> None:
    console = Console(record=True, width=100)
    none = dataclasses.replace(TWICE, last_start=-1.0)
    assert command.run([fake()], none, console) == ([], {}, ["fake/sum"])
    assert "left out, to end in time: fake/sum" in console.export_text()
