"""Live queries on few events: answers are compared, and times count from when an event was due."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import resources
from benchmarks.answers import Mismatch
from benchmarks.harness import Effort, run_case
from benchmarks.latency import paced, peers, plots, sweep
from benchmarks.latency.feed import as_polars_has_it, feed

ONCE = Effort(repeats=1, at_most=1, enough=0.0, budget=60.0)
pytestmark = pytest.mark.interpreted


@pytest.fixture(autouse=True)
def scratch() -> Iterator[None]:
    yield
    resources.close()


def test_any_number_of_events_a_push_gives_the_same_sums() -> None:
    results = [run_case(sweep.sweeping(each, 300, 100, 300, {}), ONCE) for each in (1, 70, 1_000)]
    assert [set(r.measured) for r in results] == [{"events/s"}] * 3
    rate, each = results[0].measured["events/s"]["tidemill"], results[0].seconds["tidemill"]
    assert rate * each == pytest.approx(1)


def test_wrong_sums_are_a_mismatch() -> None:
    answer = sweep.pushed(feed(300, 10), 300, 100).answer
    as_polars_has_it({"tidemill": answer})
    with pytest.raises(Mismatch):
        as_polars_has_it({"tidemill": replace(answer, found=answer.found.slice(1))})
    with pytest.raises(Mismatch):
        as_polars_has_it({"tidemill": replace(answer, rows=299)})


def test_events_that_wait_are_charged_from_when_they_were_due() -> None:
    """Every push takes 3 ms, by a clock of the test's own, and an event is due every 1 ms."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1e-5
        return now

    def pass_by(seconds: float) -> None:
        nonlocal now
        now += seconds

    late = paced.latencies(lambda number: pass_by(0.003), 5, 0.001, clock, pass_by)
    assert np.allclose(late, [0.003, 0.005, 0.007, 0.009, 0.011], atol=3e-4)


def test_plots_show_what_there_is() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = [run_case(sweep.sweeping(10, 50, 10, 50, {}), ONCE)]
    results.append(run_case(paced.pacing(10, 10_000, 0.01, {}), ONCE))
    figure, axes = plt.subplots()
    assert plots.events_a_push(axes, results) and plots.percentiles(axes, results)
    assert not plots.events_a_push(axes, []) and not plots.percentiles(axes, [])
    plt.close(figure)


def test_a_peer_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = peers.Peer("bytewax", sys.executable, "0")
    monkeypatch.setitem(peers.PEERS, "bytewax", "no_such_script.py")
    with pytest.raises(RuntimeError, match=r"bytewax 0 failed:[\s\S]*no_such_script"):
        peer.run(feed(10, 1), 10, 5)


@pytest.mark.soak
@pytest.mark.parametrize("name", peers.PEERS)
def test_peers_give_the_same_sums(name: str) -> None:
    found = peers.peers()
    if name not in found:
        pytest.skip(f"{name} is not installed")
    only = {name: found[name]}
    assert set(run_case(sweep.sweeping(100, 3_000, 2_000, 3_000, only), ONCE).seconds) == {"tidemill", name}
    assert set(run_case(paced.pacing(1, 200, 0.5, only), ONCE).seconds) == {"tidemill", name}
