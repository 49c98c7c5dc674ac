"""A process that saves a wheel again and again, in children that are killed in the middle of it.

`python -m tests.faults.wheels_saver KIND PATH SEED COUNT STEPS`. Each child goes on from the newest save: it
adds a row, advances and saves, over and over. It dies by SIGKILL at a random moment, or, the first STEPS of
them, at one step of a save or another: before a call that changes the directory. After each death this
process opens what is there. It prints `kills <n> differences <m>`, and what differed.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import interpreter
from tests.faults.wheels_made import wheel_of
from tidemill.wheels.files.format import KEPT, manifest_of, saves_in
from tidemill.wheels.open_wheel import open_wheel

CALLS = 110
"""More than one save makes of those below, so that a child can die at each of them."""
CHANGES = [(os, n) for n in ("open", "replace", "unlink", "fsync", "mkdir", "close")] + [(fcntl, "flock")]
"""What a save does to a directory."""


def _die_at(step: int) -> None:
    """Die at one of the calls that change something."""
    left = iter(range(step))

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def or_die(*args: Any, **more: Any) -> Any:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **more)

        return or_die

    for module, name in CHANGES:
        setattr(module, name, dying(getattr(module, name)))


def save_on(path: Path, told: int, step: int | None) -> None:
    """Go on from the newest save, and say how many rows there are in each that is complete."""
    wheel: Any = open_wheel(path)
    if step is not None:
        _die_at(step)
    while True:
        now = wheel.watermark
        wheel.insert([{"t": now, "k": now % 3, "s": "a", "v": 1, "x": 0.5}])
        wheel.advance_to(now + 1)
        wheel.save(path)
        os.write(told, int(wheel.stats()["rows"]).to_bytes(8, "little"))


def killed(path: Path, wait: float, step: int | None) -> int:
    """Kill a child that saves; the rows of its last save that was complete, 0 if there was none."""
    there, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(there)
        try:
            save_on(path, told, step)
        finally:
            os._exit(1)
    os.close(told)
    if step is None:
        time.sleep(wait)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with open(there, "rb") as file:
        said = file.read()
    if not os.WIFSIGNALED(status):
        raise RuntimeError(f"a child that saves ended by itself: {status}")
    return int.from_bytes(said[-8:], "little") if said else 0


def looked_at(path: Path, before: int, said: int) -> str:
    """What is wrong with what a killed child left: nothing, if nothing is."""
    wheel: Any = open_wheel(path)
    rows = wheel.stats()["rows"]
    least = max(before, said)
    if rows not in (least, least + 1):
        return f"{rows} rows where {least} were saved"
    if (total := _total(wheel)) != rows:
        return f"a total of {total} over {rows} rows"
    wheel.save(path)
    used = {f["file"] for n in saves_in(path) for f in manifest_of(path, n)["files"].values()}
    used |= {f"manifest-{n:06}.json" for n in saves_in(path)} | {"manifest.json", "save.lock"}
    left = set(os.listdir(path)) ^ used
    return f"left there: {sorted(left)}" if left or len(saves_in(path)) > KEPT else ""


def _total(wheel: Any) -> int:
    answers = [wheel.landmark(key=k) for k in range(3)] if wheel._view.plan.group_keys else [wheel.landmark()]
    return sum(a or 0 for a in answers)


def main(kind: str, where: str, seed: str, count: str, steps: str) -> None:
    interpreter.in_child()
    path, pick, faults = Path(where), random.Random(int(seed)), []
    wheel_of(kind).save(path)
    for number in range(int(count)):
        before = open_wheel(path).stats()["rows"]
        step = number * CALLS // int(steps) if number < int(steps) else None
        said = killed(path, pick.choice([0.03, 0.1]) * pick.random(), step)
        if fault := looked_at(path, before, said):
            faults.append(f"{kind}, kill {number}: {fault}")
    print(f"kills {count} differences {len(faults)}", *faults[:5], sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
