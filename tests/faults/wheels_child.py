"""A process that opens and asks damaged wheels, one after the other, and says which it is at.

`python -m tests.faults.wheels_child MADE CASES FIRST`: directories of wheels in MADE, a list of cases in
CASES, from the one with number FIRST on. It prints `begin <number>`, then `end <number> <outcome>`. If it
dies or hangs, the last line says where.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from tests import interpreter
from tests.faults.wheels_damage import damage, outside
from tests.faults.wheels_made import answers
from tidemill.core.errors import TidemillError

QUICK = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where files are in memory, so that nobody waits for a disk."""


def outcome(made: Path, case: dict[str, Any], work: Path) -> dict[str, Any]:
    path = work / "wheel"
    shutil.copytree(made / case["kind"], path, symlinks=True)
    outside(work)
    damage(path, case, work)
    kept = outside(work)
    try:
        found: dict[str, Any] = {
            "answer": answers(path, verify=case["verify"], go_on=case.get("go on", False))
        }
    except TidemillError as refused:
        # What goes wrong in a file says in which; what goes wrong later may be any sum that overflows.
        of_files = str(refused).startswith(("open", "save"))
        found = {"refused": str(refused), "path": str(work) in str(refused) or not of_files}
    except Exception as foreign:
        where = "".join(traceback.format_exception(foreign)[-3:])
        found = {"foreign": f"{type(foreign).__name__}: {foreign}\n{where}"}
    if outside(work) != kept:
        found = {"foreign": f"what is outside has changed: {kept} is now {outside(work)}"}
    return found


def main(made: str, cases: str, first: str) -> None:
    listed = json.loads(Path(cases).read_text())
    interpreter.in_child()
    for number in range(int(first), len(listed)):
        print(f"begin {number}", flush=True)
        with tempfile.TemporaryDirectory(dir=QUICK) as work:
            found = outcome(Path(made), listed[number], Path(work))
        print(f"end {number} {json.dumps(found, default=repr)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
