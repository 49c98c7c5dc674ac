"""A live query that serves features, and says of which set they are."""

from __future__ import annotations

from typing import Any

from tidemill.features.definition import Definition
from tidemill.local.live import Live
from tidemill.plan.disorder import Disorder
from tidemill.plan.nodes import Plan


class FeatureServer(Live):
    """A live query of a feature set; make one with `features.online(...)`.

    Its checkpoints name the set and its version, and those of another one are refused.
    """

    def __init__(
        self, definition: Definition, plan: Plan, disorder: Disorder | None = None, **options: Any
    ) -> None:
        super().__init__(plan, disorder, serves=definition.about, **options)
        self.definition = definition

    def __repr__(self) -> str:
        return f"{self.definition.title}, {super().__repr__()}"
