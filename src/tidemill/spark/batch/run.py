"""Plans → DataFrames."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from tidemill.core.errors import UnsupportedError
from tidemill.expr.nodes import Column
from tidemill.plan.nodes import Plan, Source, WheelWindows, WindowAggregate
from tidemill.plan.stages import stage_of
from tidemill.spark.batch.windows import window_aggregate
from tidemill.spark.caching import holding
from tidemill.spark.expr.compile import SparkExpressions
from tidemill.spark.expr.schemas import user_type
from tidemill.spark.expr.values import output
from tidemill.spark.names import apart


def frame_of(plan: Plan, inputs: Mapping[str, DataFrame], detect: str = "off") -> DataFrame:
    """The DataFrame of a plan, with columns in the types users expect.

    Nothing runs yet, unless `detect` has a look at what must travel.
    """
    stage = stage_of(plan)
    base = _base(stage.base, inputs, detect)
    raw = {f.name: f.dataType for f in base.schema}
    df, names = apart(base)
    expressions = SparkExpressions(stage.base.schema, raw, names)
    for predicate in stage.predicates:
        df = df.filter(expressions.column(predicate))
    same = stage.outputs == tuple((n, Column(n)) for n in df.columns)
    if same and all(raw[n] == user_type(kind) for n, kind in plan.schema):
        return df if df is base else holding(df, base)
    columns = []
    for name, node in stage.outputs:
        kind = plan.schema[name]
        if isinstance(node, Column) and raw[node.name] == user_type(kind):
            columns.append(expressions.reference(node.name).alias(name))
        else:
            columns.append(output(expressions.column(node), kind).alias(name))
    return holding(df.select(*columns), base)


def _base(plan: Plan, inputs: Mapping[str, DataFrame], detect: str) -> DataFrame:
    if isinstance(plan, Source):
        return inputs[plan.name]
    if isinstance(plan, WheelWindows):
        return inputs[plan.stream]
    if isinstance(plan, WindowAggregate):
        below = stage_of(plan.input).base
        return window_aggregate(plan, _base(below, inputs, detect), detect)
    raise UnsupportedError("spark", str(plan), instead="run it on the local engine")
