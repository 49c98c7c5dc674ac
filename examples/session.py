"""A Spark session for the examples, whose files go away with it; and the programs that examples need."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def needed(program: str, hint: str) -> str:
    """Return the path of a program, or end at once and say how to get it: before any work is done."""
    homes = [Path(sys.executable).parent, Path(os.environ.get("JAVA_HOME", "/nonexistent"), "bin")]
    path = os.pathsep.join([*map(str, homes), os.environ.get("PATH", "")])
    found = shutil.which(program, path=path)
    if found is None:
        raise SystemExit(f"this example needs {program}: {hint}")
    return found


@contextmanager
def session() -> Iterator[Any]:
    from tidemill.demo import start_spark

    needed("java", "install Java 17 or newer (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME")
    with tempfile.TemporaryDirectory(prefix="tidemill-") as scratch:
        spark = start_spark(Path(scratch))
        try:
            yield spark
        finally:
            spark.stop()
