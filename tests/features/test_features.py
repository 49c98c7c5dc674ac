"""Feature sets: what they are, what they say about themselves, and what they refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tidemill as tm
from tidemill import col
from tidemill.local.explain import describe

Row = dict[str, Any]

ask = tm.stream("ask", time="t", schema={"t": "int64", "user": "int64", "back": "int64"})
buy = tm.stream("buy", time="t", schema={"t": "int64", "user": "int64", "paid": "int64", "kind": "string"})
look = tm.stream("look", time="t", schema={"t": "int64", "user": "int64", "item": "string"})

ASKED: list[Row] = [{"t": 50, "user": 7, "back": 20}, {"t": 60, "user": 8, "back": 5}]
BOUGHT: list[Row] = [
    {"t": 10, "user": 7, "paid": 4, "kind": "tea"},
    {"t": 40, "user": 7, "paid": 9, "kind": "cup"},
    {"t": 55, "user": 7, "paid": 3, "kind": "tea"},
]
LOOKED: list[Row] = [{"t": 45, "user": 7, "item": "jam"}]


def known(**options: Any) -> tm.FeatureSet:
    return tm.features("known", entity=ask, **{"features": members(), **options})


def members() -> list[Any]:
    return [
        tm.feature(
            ask.interval_join(buy, on="user", preceding=30).agg(n=tm.count(), spent=tm.sum("paid")),
            n="orders of half an hour",
        ),
        ask.interval_join(buy, on="user", preceding=tm.FOREVER).agg(kinds=tm.count_by("kind")),
        ask.interval_join(buy, on="user", preceding=col.back).agg(few=tm.count()),
        ask.last_join(look, on="user").select("item"),
        ask.last_join(buy, on="user", lags=[0, 20]).select(more=lambda e: e.paid_0 - e.paid_20),
        ask.interval_join(buy, on="user", following=10).agg(bought=tm.count()),
    ]  # fmt: skip


def test_a_set_has_each_row_once_with_the_features_of_all_members() -> None:
    found = known()
    assert found.features == ("n", "spent", "kinds", "few", "item", "more", "bought")
    first, second = found.run(ask=ASKED, buy=BOUGHT, look=LOOKED).to_pylist()
    tea, cup = {"key": "tea", "value": 1}, {"key": "cup", "value": 1}
    assert first == {
        **ASKED[0], "n": 1, "spent": 9, "kinds": [cup, tea], "few": 1, "item": "jam", "more": 5, "bought": 1,
    }  # fmt: skip
    assert second == {
        **ASKED[1], "n": 0, "spent": None, "kinds": [], "few": 0, "item": None, "more": None, "bought": 0,
    }  # fmt: skip
    assert found.query.where(col.n > 0).run(ask=ASKED, buy=BOUGHT, look=LOOKED).num_rows == 1


def test_columns_on_the_way_may_have_names_of_features_and_labels() -> None:
    found = tm.features("f", entity=ask, features=[
        ask.last_join(buy, on="user", suffix="_last").select("paid"),
        ask.last_join(buy, on="user", lags=[20], suffix="").with_columns(paid=col.paid_20).select(was="paid"),
        ask.last_join(look, on="user").select("item", seen="t_right"),
    ])  # fmt: skip
    assert found.features == ("paid", "was", "item", "seen")
    asked = [{**ASKED[0], "t_right": 1.5}]
    rows = found.with_labels(t_right="float64").run(ask=asked, buy=BOUGHT, look=LOOKED)
    assert rows.to_pylist() == [{**asked[0], "paid": 9, "was": 4, "item": "jam", "seen": 45}]
    server, disorder = found.online(tm.Disorder(slack=0)), tm.Disorder(slack=0)
    server.push(buy=BOUGHT, look=LOOKED, ask=ASKED[:1])
    again = _restored(server, found, disorder)
    assert again.flush().select(found.features).to_pylist() == rows.select(found.features).to_pylist()


def _restored(server: Any, found: tm.FeatureSet, disorder: tm.Disorder, folder: Any = None) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        path = Path(made, "checkpoint")
        server.checkpoint(path)
        server.close()
        return tm.restore(found, path, disorder)


# --- what a set says about itself -------------------------------------------------------------------


def test_describe_has_a_row_for_each_feature() -> None:
    rows = {row["feature"]: row for row in known(version=3).describe().to_pylist()}
    assert rows["spent"] == {
        "feature": "spent", "type": "int64", "aggregate": "sum(col.paid)", "source": "buy", "keys": "user",
        "window": "[t-30, t]", "preceding": "30", "following": "0", "where": None, "leaks": False,
        "waits": "0", "state": "probe rows of the last 30", "doc": None,
    }  # fmt: skip
    assert rows["n"]["doc"] == "orders of half an hour"
    assert rows["kinds"]["state"] == rows["few"]["state"] == "all probe rows"
    assert rows["few"]["preceding"] == "col.back"
    assert rows["item"]["aggregate"] == "last item"
    assert rows["item"]["state"] == "the last probe row of each key"
    assert rows["more"]["window"] == "[t-forever, t] max_rows=1; [t-20-forever, t-20] max_rows=1"
    assert [name for name, row in rows.items() if row["leaks"]] == ["bought"]
    assert rows["bought"]["waits"] == "10"


def test_a_set_shows_itself() -> None:
    found = known(version=3, doc="What is known of a user.")
    said = [" ".join(line.split()) for line in repr(found).splitlines()]
    assert said[0] == f"known version 3: 7 features of ask, {found.fingerprint}"
    assert said[1] == "What is known of a user."
    assert said[2] == "n int64 count() of buy on user in [t-30, t] — orders of half an hour"
    assert said[-1].endswith("count() of buy on user in [t, t+10]; LEAKS the future: 10")
    page = found._repr_html_()
    assert page.count("<tr>") == 8 and "orders of half an hour" in page and "list&lt;struct&lt;" in page


def test_what_leaks_says_so_in_the_feature_the_plan_and_the_training_set(tmp_path: Path) -> None:
    found = known()
    assert found.leaks == ("bought",)
    assert "interval_join on user in [t, t+10] bought=count()" in repr(found.query)
    assert "it knows the future" in describe(found.optimized)
    schema = found.run(ask=ASKED, buy=BOUGHT, look=LOOKED).schema
    assert schema.metadata[b"tidemill.leaks"] == b"bought"
    assert schema.field("bought").metadata[b"tidemill.leaks"] == b"10"
    assert b"tidemill.leaks" not in schema.field("n").metadata
    assert schema.field("n").metadata[b"comment"] == b"orders of half an hour"
    assert schema.metadata[b"tidemill.fingerprint"].decode() == found.fingerprint
    assert found.to_pandas(ask=ASKED, buy=BOUGHT, look=LOOKED).attrs["tidemill.leaks"] == "bought"
    found.to_parquet(tmp_path / "set.parquet", ask=ASKED, buy=BOUGHT, look=LOOKED)
    kept = pq.read_schema(tmp_path / "set.parquet")
    assert kept.metadata[b"tidemill.leaks"] == b"bought" and kept.field("bought").metadata[b"tidemill.leaks"]


HIDDEN: dict[str, Callable[[], tm.Stream]] = {
    "windows": lambda: buy.group_by("user").window(tm.tumbling(60)).agg(n=tm.count()),
    "windows, not shifted enough": lambda: buy.group_by("user").window(tm.hopping(60, every=20)).agg(
        n=tm.count()).shift(59),
    "sessions": lambda: buy.group_by("user").window(tm.session(60)).agg(n=tm.count()).shift(60),
    "rows that come earlier": lambda: buy.shift(-1).select("user", n="paid"),
    "starts that nobody knows": lambda: buy.starting(col.t - col.paid).select("user", n="paid"),
    "the next row": lambda: buy.lead("user", n="paid"),
    "features that leak": lambda: buy.interval_join(buy, on="user", following=5).agg(n=tm.count()),
    "ends of lifetimes": lambda: buy.until_next("user").select("user", n="valid_to"),
}  # fmt: skip


@pytest.mark.parametrize("name", HIDDEN)
def test_probe_rows_that_know_the_future_are_refused(name: str) -> None:
    with pytest.raises(tm.UserError, match=r"known at their time|know nothing after their time"):
        known(features=[ask.last_join(HIDDEN[name](), on="user").select(x="n")])


def test_probe_rows_that_know_the_future_are_taken_when_it_is_over() -> None:
    hours = buy.group_by("user").window(tm.tumbling(60)).agg(n=tm.count())
    shifted = known(features=[ask.last_join(hours.shift(60), on="user").select(x="n")])
    lagged = known(features=[ask.last_join(hours, on="user", lags=[60]).select(x="n_60")])
    assert shifted.leaks == lagged.leaks == ()
    said = known(features=[ask.last_join(hours, on="user", direction="nearest").select(x="n")])
    assert said.leaks == ("x",) and said.describe()["waits"].to_pylist() == ["forever"]
    ahead = known(features=[ask.interval_join(hours, on="user", following=5).agg(x=tm.count())])
    assert ahead.describe()["waits"].to_pylist() == ["65"]


# --- what is refused --------------------------------------------------------------------------------

NO_TIMES = tm.table("d", schema={"k": "int64"})
REFUSED: list[tuple[str, Callable[[], Any]]] = [
    ("several members have 'n'|'n' 2 times", lambda: known(features=[members()[0], members()[0].stream])),
    ("a list of joins", lambda: known(features=[])),
    ("the entity stream itself", lambda: known(features=[ask])),
    ("with the stream that is given as entity", lambda: known(features=[buy.last_join(look, on="user")])),
    ("a filter of them", lambda: known(features=[members()[1].where(col.user > 0)])),
    ("a row for each pair", lambda: known(features=[ask.interval_join(buy, on="user", preceding=5).pairs()])),
    ("give the computed column another", lambda: known(features=[members()[1].select(user=col.user + 1)])),
    (r"ask for aggregates: \.agg", lambda: known(features=[ask.interval_join(buy, on="user", preceding=5)])),
    ("expected a stream", lambda: known(features=["n"])),
    ("expected a stream", lambda: tm.feature(col.n)),  # type: ignore[arg-type]
    ("text about 'm'", lambda: known(features=[tm.feature(members()[1], m="what is this")])),
    ("text about 'kinds'", lambda: known(features=[tm.feature(members()[1], kinds=7)])),  # type: ignore
    ("a name of letters", lambda: tm.features("my features", entity=ask, features=members())),
    ("version= 1, 2", lambda: known(version="2")),
    ("version= 1, 2", lambda: known(version=0)),
    ("doc= text", lambda: known(doc=None)),
    ("entity= a stream", lambda: tm.features("f", entity="ask", features=members())),  # type: ignore
    ("whose rows have none", lambda: tm.features("f", entity=NO_TIMES, features=[ask])),
    ("not taken by", lambda: known().with_labels(n="int64")),
    ("not taken by", lambda: known().with_labels(user="int64")),
    ("inputs named 'ask', 'buy', 'look'", lambda: known().verify(ask=ASKED)),
    ("runs= a number of at least 1", lambda: known().verify(runs=0, ask=ASKED, buy=BOUGHT, look=LOOKED)),
]


@pytest.mark.parametrize(("said", "make"), REFUSED)
def test_mistakes_are_refused(said: str, make: Callable[[], Any]) -> None:
    with pytest.raises(tm.UserError, match=said):
        make()


def test_an_entity_whose_rows_cannot_carry_labels() -> None:
    hours = buy.group_by("user").window(tm.tumbling(60)).agg(n=tm.count())
    found = tm.features("f", entity=hours, features=[hours.last_join(look, on="user").select("item")])
    assert found.run(buy=BOUGHT, look=LOOKED)["item"].to_pylist() == [None]
    with pytest.raises(tm.UserError, match="after where, select and the like"):
        found.with_labels(bought="bool")


def test_labels_pass_through_the_steps_of_an_entity() -> None:
    both = ask.where(col.user == 7).union(ask.where(col.user == 8))
    rows = both.shift(5).select("user", double=col.back * 2)
    again = rows.interval_join(ask, on="user", preceding=10).agg(n=tm.count())
    found = tm.features("f", entity=rows, features=[again]).with_labels(bought="bool")
    asked = [{**row, "bought": row["user"] == 7} for row in ASKED]
    assert found.run(ask=asked).sort_by("t").to_pylist() == [
        {"t": 55, "user": 7, "double": 40, "bought": True, "n": 1},
        {"t": 65, "user": 8, "double": 10, "bought": False, "n": 1},
    ]


# --- bad input: the rule for each, where it is counted, and where it can be read --------------------


def serving(**options: Any) -> Any:
    return known(features=[
        ask.interval_join(buy, on="user", preceding=col.back).agg(n=tm.count()),
        ask.last_join(look, on="user"),
    ]).online(tm.Disorder(slack=0), **options)  # fmt: skip


def test_rows_for_a_source_that_the_set_does_not_read() -> None:
    with pytest.raises(tm.UserError, match=r"push: expected inputs \['ask', 'buy', 'look'\], got 'sell'"):
        serving().push(sell=BOUGHT)
    with pytest.raises(tm.UserError, match="inputs named 'ask', 'buy', 'look'"):
        known().run(ask=ASKED, buy=BOUGHT, sell=BOUGHT)


def test_a_null_key_is_equal_to_nothing() -> None:
    server = serving()
    one = {"ask": ASKED[0], "buy": BOUGHT[0], "look": LOOKED[0]}
    server.push(**{name: {**row, "user": None} for name, row in one.items()})
    [row] = server.flush().to_pylist()
    assert (row["user"], row["n"], row["item"]) == (None, 0, None)
    refused = [table for table in server.refused().values() if table.num_rows]
    assert [table["user"].to_pylist() for table in refused] == [[None]] * 4
    assert all("null key" in str(table["late_reason"]) for table in refused)
    assert sum(server.stats().refused.values()) == 4 and server.stats().late == 0


@pytest.mark.parametrize(("name", "rows"), [("ask", ASKED), ("buy", BOUGHT), ("look", LOOKED)])
def test_a_null_time(name: str, rows: list[Row]) -> None:
    server = serving()
    server.push(**{name: [{**rows[0], "t": None}]})
    assert server.late(name)["late_reason"].to_pylist() == ["null time"]
    assert server.stats().inputs[name].null_time == 1 and server.flush().num_rows == 0
    inputs = {"ask": ASKED, "buy": BOUGHT, "look": LOOKED}
    with pytest.raises(tm.UserError, match="null"):
        known().run(**{**inputs, name: [{**rows[0], "t": None}]})
    checked = known().verify({**inputs, name: [*inputs[name], {**rows[0], "t": None}]}, runs=1)
    assert checked and checked.left_out == {name: 1} and "1 rows without a time" in repr(checked)


@pytest.mark.parametrize("bound", ["preceding", "following"])
def test_a_negative_bound_is_refused(bound: str) -> None:
    with pytest.raises(tm.UserError, match=f"{bound}=: expected a duration of at least 0, got -1"):
        ask.interval_join(buy, on="user", **{bound: -1})


@pytest.mark.parametrize("back", [None, -1])
def test_a_bound_expression_that_is_null_or_negative_has_no_rows(back: int | None) -> None:
    server = serving()
    server.push(ask={**ASKED[0], "back": back}, buy=BOUGHT, look=LOOKED)
    [row] = server.flush().to_pylist()
    assert row["n"] == 0 and row["item"] == "jam"
    [refused] = [table for table in server.refused().values() if table.num_rows]
    assert refused["t"].to_pylist() == [50] and "null or negative" in str(refused.to_pylist())
    assert sum(server.stats().refused.values()) == 1


def test_a_row_of_the_entity_beyond_the_slack_is_late() -> None:
    server = serving()
    server.push(ask=ASKED)
    server.push(ask={"t": 59, "user": 7, "back": 1})
    assert server.late("ask").select(["t", "late_reason"]).to_pylist() == [{"t": 59, "late_reason": "late"}]
    assert server.stats().inputs["ask"].late == 1 and server.flush().num_rows == 2


# --- servers ----------------------------------------------------------------------------------------


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    server = known(version=2).online(tm.Disorder(slack=0))
    assert repr(server).startswith("known version 2, live query")
    server.push(buy=BOUGHT, look=LOOKED, ask=ASKED)
    for path in (tmp_path / "file", tmp_path / "folder/"):
        server.checkpoint(path, keep=2 if path.name == "folder" else None)
        other = r"expected a checkpoint of features known, version 3, .* got one of features known, version 2"
        with pytest.raises(tm.UserError, match=other):
            tm.restore(known(version=3), path, tm.Disorder(slack=0))
        if path.name == "file":
            assert tm.restore(known(version=2), path, tm.Disorder(slack=0)).flush().num_rows == 2


def test_a_fingerprint_is_of_the_definition_and_the_same_in_another_process() -> None:
    one = known()
    assert one.fingerprint == known(version=2, doc="Something else.").fingerprint
    assert one.fingerprint == one.with_labels(paid="bool").fingerprint
    others = [known(features=members()[:5]), known(features=members()[::-1])]
    assert len({one.fingerprint, *(other.fingerprint for other in others)}) == 3
    program = """if True:
        import tidemill as tm
        ask, buy = (tm.stream(n, time="t", schema={"t": "int64", "user": "int64"}) for n in ("ask", "buy"))
        joined = ask.interval_join(buy, on="user", preceding=30, where=lambda a, b: a.t > b.t)
        made = joined.agg(n=tm.count(), most=tm.max("t"))
        one = tm.features("known", entity=ask, features=[made])"""
    here: dict[str, Any] = {}
    exec(program, here)
    command = [sys.executable, "-c", f"{program}\n        print(one.fingerprint)"]
    env = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(tm.__file__).parent.parent)}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stdout.strip() == here["one"].fingerprint, done.stderr
