"""Format a plan as text."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.plan.nodes import Plan
from tidemill.plan.sharing import share, used_often


def format_plan(plan: Plan, show: Callable[[Plan], str] = str) -> str:
    """Format a plan as an indented tree, last step first; `show` formats one node.

    A sub-plan that is used several times is written once, with a number.
    """
    plan = share(plan)
    often, numbers, lines = used_often(plan), dict[int, int](), list[str]()

    def add(node: Plan, depth: int) -> None:
        again = id(node) in numbers
        if id(node) in often and node.children():
            number = numbers.setdefault(id(node), len(numbers) + 1)
            lines.append(f"{'  ' * depth}[{number}] {'as above' if again else show(node)}")
        else:
            lines.append("  " * depth + show(node))
        for child in () if again else node.children():
            add(child, depth + 1)

    add(plan, 0)
    return "\n".join(lines)
