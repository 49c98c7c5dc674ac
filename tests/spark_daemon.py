"""Spark's Python workers in tests are forked from this process: they interpret generated kernels.

Each worker would compile each kernel by itself, which takes longer than the tests. Workers compile as they do
for users in `make soak` (`TIDEMILL_KERNELS=compiled`), and in the session that `test_workers.py` starts.
"""

from __future__ import annotations

from tests import interpreter

if __name__ == "__main__":
    # Workers are forked from here: what they need is imported once.
    import pandas  # noqa: F401
    import pyarrow.compute  # noqa: F401
    from pyspark import daemon

    import tidemill.local.run
    import tidemill.spark.dia
    import tidemill.wheels.open_wheel  # noqa: F401

    interpreter.in_child()
    daemon.manager()
