"""Tidemill: questions about events in time, asked once and answered everywhere."""

from typing import TYPE_CHECKING, Any

from tidemill.aggregates.basic import all, any, count, count_if, max, mean, min, product, sum
from tidemill.aggregates.holistic import (
    bottom_k,
    collect,
    count_by,
    distinct_count,
    entropy,
    first_k,
    last_k,
    max_by,
    mean_by,
    median,
    min_by,
    quantile,
    sum_by,
    top_k,
    top_keys,
    top_rows,
)  # fmt: skip
from tidemill.aggregates.laws import check_aggregate
from tidemill.aggregates.moments import correlation, covariance, std, var
from tidemill.aggregates.ordered import arg_max, arg_min, drawdown, ewma, first, last
from tidemill.aggregates.sketches import distinct_sketch, quantile_sketch
from tidemill.aggregates.user import aggregate
from tidemill.core.errors import InternalError, TidemillError, UnsupportedError, UserError
from tidemill.core.time import FOREVER
from tidemill.data_stream import DataStream, read
from tidemill.expr.fluent import (
    Expr,
    coalesce,
    col,
    concat,
    greatest,
    least,
    lit,
    udf,
    when,
)  # fmt: skip
from tidemill.feature_set import FeatureSet, feature, features
from tidemill.plan.disorder import Disorder
from tidemill.plan.emit import Emit, Latency
from tidemill.plan.punctuation import Punctuation
from tidemill.query import Query, reconcile, restore
from tidemill.stream import Stream, stream, table
from tidemill.windows.semantics import bounds, extent, wids, windows
from tidemill.windows.spec import (
    Window,
    calendar,
    hopping,
    landmark,
    per_event,
    rows,
    session,
    tumbling,
)  # fmt: skip

if TYPE_CHECKING:
    from tidemill.io.follow import follow
    from tidemill.io.items import items
    from tidemill.io.line_feeds import lines, socket_lines
    from tidemill.io.replay import replay
    from tidemill.io.stream_files import StreamWriter, read_stream, write_stream
    from tidemill.wheels.open_wheel import open_wheel
    from tidemill.wheels.replicas import Replicas
    from tidemill.wheels.wheel import Wheel

__version__ = "0.1.0"

_LATER = {
    "Replicas": "tidemill.wheels.replicas", "Wheel": "tidemill.wheels.wheel",
    "open_wheel": "tidemill.wheels.open_wheel",
    "follow": "tidemill.io.follow", "items": "tidemill.io.items", "lines": "tidemill.io.line_feeds",
    "socket_lines": "tidemill.io.line_feeds", "replay": "tidemill.io.replay",
    "StreamWriter": "tidemill.io.stream_files", "read_stream": "tidemill.io.stream_files",
    "write_stream": "tidemill.io.stream_files",
}  # fmt: skip
_MODULES = ("datasets", "spark")


def __getattr__(name: str) -> Any:
    """What needs a compiler is imported when it is first used, so that importing Tidemill stays light."""
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"tidemill.{name}")
    if name not in _LATER:
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from tidemill.core.brought_names import MODULE, unknown

        raise AttributeError(unknown("tidemill", name, MODULE, __all__))
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    """The public names; modules are not among them, but for `_MODULES`."""
    return sorted([*__all__, *_MODULES])


__all__ = [
    "FOREVER", "DataStream", "Disorder", "Emit", "Expr", "FeatureSet", "InternalError", "Latency",
    "Punctuation", "Query", "Replicas", "Stream", "StreamWriter", "TidemillError", "UnsupportedError",
    "UserError", "Wheel", "Window", "aggregate", "all", "any", "arg_max", "arg_min", "bottom_k", "bounds",
    "calendar", "check_aggregate", "coalesce", "col", "collect", "concat", "correlation", "count",
    "count_by", "count_if", "covariance", "distinct_count", "distinct_sketch", "drawdown", "entropy",
    "ewma", "extent", "feature", "features", "first", "first_k", "follow", "greatest", "hopping", "items",
    "landmark", "last", "last_k", "least", "lines", "lit", "max", "max_by", "mean", "mean_by", "median",
    "min", "min_by", "open_wheel", "per_event", "product", "quantile", "quantile_sketch", "read",
    "read_stream", "reconcile", "replay", "restore", "rows", "session", "socket_lines", "std", "stream",
    "sum", "sum_by", "table", "top_k", "top_keys", "top_rows", "tumbling", "udf", "var", "when", "wids",
    "windows",
    "write_stream",
]  # fmt: skip
