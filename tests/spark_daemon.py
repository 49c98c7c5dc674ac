"""The process that Spark's Python workers are forked from in tests: generated kernels run as plain Python there.

Each worker would compile each kernel by itself, which takes longer than the tests. Workers compile as they do for
users in `make soak` (`TIDEMILL_KERNELS=compiled`), and where a test has a session in a process of its own
(`test_connect.py`, `test_workers.py`).
"""

from __future__ import annotations

from tests import interpreter

if __name__ == "__main__":
    from pyspark import daemon

    interpreter.in_child()
    daemon.manager()
