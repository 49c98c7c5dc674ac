"""Compile plans to DataFrames."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import DataFrame

from tidemill.expr.nodes import Column
from tidemill.plan.nodes import (
    Filter,
    Plan,
    Project,
    Source,
    Union,
    WheelWindows,
    WindowAggregate,
    require_known,
)  # fmt: skip
from tidemill.plan.stages import stage_of
from tidemill.plan.temporal import Temporal
from tidemill.spark.batch.looks import Looks
from tidemill.spark.batch.slice_choice import DEFAULT, SliceTuning
from tidemill.spark.batch.temporal import temporal
from tidemill.spark.batch.windows import window_aggregate
from tidemill.spark.caching import holding
from tidemill.spark.expr.compile import SparkExpressions
from tidemill.spark.expr.schemas import user_type
from tidemill.spark.expr.values import output
from tidemill.spark.names import apart

NODES = (Source, Filter, Project, Union, WindowAggregate, WheelWindows, Temporal)
Leaf = Callable[[Source | WheelWindows], DataFrame]


def frame_of(
    plan: Plan, leaf: Leaf, detect: str = "off", tuning: SliceTuning = DEFAULT
) -> DataFrame:
    """Compile a plan to a DataFrame with columns of user types.

    `leaf` returns the frames of streams and wheels. No job runs, unless `detect` samples keys. A sub-plan
    that is used several times is one frame, whose shuffles Spark reuses.
    """
    require_known(plan, NODES, "spark", "spark/batch/run.py, or run it on the local engine")
    return _Frames(leaf, detect, tuning).of(plan)


@dataclass(frozen=True)
class _Frames:
    """Compiles the parts of a plan, each once."""

    leaf: Leaf
    detect: str
    tuning: SliceTuning
    _bases: dict[int, DataFrame] = field(default_factory=dict)

    @functools.cached_property
    def _looks(self) -> Looks | None:
        return Looks(self.of, self.tuning) if self.detect == "auto" else None

    def of(self, plan: Plan) -> DataFrame:
        stage = stage_of(plan)
        base = self._base(stage.base)
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

    def _base(self, plan: Plan) -> DataFrame:
        if id(plan) not in self._bases:
            self._bases[id(plan)] = self._made(plan)
        return self._bases[id(plan)]

    def _made(self, plan: Plan) -> DataFrame:
        if isinstance(plan, Union):
            frames = [self.of(one) for one in plan.inputs]
            return holding(reduce(DataFrame.union, frames), frames)
        if isinstance(plan, WindowAggregate):
            below = self._base(stage_of(plan.input).base)
            return window_aggregate(plan, below, self.detect)
        if isinstance(plan, Temporal):
            frames = [self.of(one) for one in plan.children()]
            return holding(temporal(plan, frames, self.detect, self._looks), frames)
        assert isinstance(plan, (Source, WheelWindows))
        return self.leaf(plan)
