"""Make equal sub-plans one object. Later rules keep them shared, and engines compute them once."""

from __future__ import annotations

from tidemill.optimize.rule import rule
from tidemill.plan.nodes import Filter, Plan, Project, Source, Union, WheelWindows, WindowAggregate
from tidemill.plan.sharing import share
from tidemill.plan.temporal import Temporal


@rule(Source, Filter, Project, Union, WindowAggregate, WheelWindows, Temporal)
def share_subplans(plan: Plan) -> Plan:
    return share(plan)
