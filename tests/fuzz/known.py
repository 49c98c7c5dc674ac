"""What the fuzzer allows: differences that the documentation states, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Known(NamedTuple):
    """A difference that is allowed on an engine, and where it is written down."""

    engine: str
    reason: str
    applies: Callable[[dict[str, Any], list[dict[str, Any]], str], bool]
    """Of the query, its rows and what came: 'error' or 'rows'."""


def _has_null(query: dict[str, Any], rows: list[dict[str, Any]], got: str) -> bool:
    return got == "rows" and any(v is None for row in rows for v in row.values())


EXCEPTIONS: tuple[Known, ...] = (
    Known(
        "spark",
        "docs/design.md, Limits: on Spark a failure next to a null in the same expression may go "
        "unreported",
        _has_null,
    ),
)


def allowed(engine: str, query: dict[str, Any], rows: list[dict[str, Any]], got: str) -> str | None:
    """The reason why an engine need not fail (or may) where the oracle says otherwise."""
    for known in EXCEPTIONS:
        if known.engine == engine and known.applies(query, rows, got):
            return known.reason
    return None
