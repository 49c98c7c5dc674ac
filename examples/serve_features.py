"""Features for a model in service: orders come in, and each request is answered from what is known by then.

    python -m examples.serve_features

One definition gives the training set from history and the features of requests. The server is stopped in the
middle and goes on from its checkpoint, as after a crash.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import tidemill as tm

Row = dict[str, Any]

requests = tm.stream("requests", time="t", schema={"t": "int64", "user": "string"})
orders = tm.stream("orders", time="t", schema={"t": "int64", "user": "string", "paid": "float64"})

known = tm.features("known", entity=requests, doc="What is known of a user; time is in seconds.", features=[
    requests.interval_join(orders, on="user", preceding=[3600, 86_400]).agg(
        n=tm.count(), paid=tm.sum("paid")),
    requests.last_join(orders, on="user").select(last="paid", last_at="t_right"),
])  # fmt: skip
POLICY = tm.Disorder(slack=60, idle="5s")
"""Orders may be a minute out of order. Nobody pushes requests, so they shall hold nothing back: `idle`."""


def history(count: int) -> list[Row]:
    """Orders of a day, of ten users."""
    pick = random.Random(1)
    times = sorted(pick.randrange(86_400) for _ in range(count))
    return [{"t": t, "user": f"u{pick.randrange(10)}", "paid": round(pick.uniform(1, 90), 2)} for t in times]


def main() -> None:
    came = history(1000)
    half, asked = len(came) // 2, {"t": 86_400, "user": "u3"}
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "server")
        server = known.online(POLICY, answers="on arrival")
        server.push(orders=came[:half], position=half)
        print("at noon: ", server.lookup({**asked, "t": came[half]["t"]}))
        server.checkpoint(saved)
        server.close()

        server = known.online(POLICY, answers="on arrival")
        server.load(saved)
        for order in came[server.positions["orders"] :]:
            server.push(orders=order)
    now = server.lookup(asked)
    print("at night:", now)
    [learned] = known.run(requests=[asked], orders=came).to_pylist()
    print("the training set says the same:", same(now, learned))


def same(one: Row, other: Row) -> bool:
    """Whether features are equal, but for the last digits of floats."""
    return {n: round(v, 6) for n, v in one.items() if n != "user"} == {
        n: round(v, 6) for n, v in other.items() if n != "user"
    }


if __name__ == "__main__":
    main()
