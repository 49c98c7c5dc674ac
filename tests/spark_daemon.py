"""Spark's Python workers in tests are forked from this process: they interpret generated kernels.

Each worker would compile each kernel by itself, which takes longer than the tests. Workers compile as they do
for users in `make soak` (`TIDEMILL_KERNELS=compiled`), and in the session that `test_workers.py` starts.
"""

from __future__ import annotations

from tests import interpreter

if __name__ == "__main__":
    from pyspark import daemon

    interpreter.in_child()
    daemon.manager()
