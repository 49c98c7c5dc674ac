"""Turn the error bits of a kernel into a `UserError`."""

from __future__ import annotations

from tidemill.core.errors import UserError
from tidemill.kernels.functions import BAD_CAST, NULL_STATE, OVERFLOW

_MESSAGES = {
    OVERFLOW: ("integer overflow: a result outside int64", "cast to float64 first"),
    BAD_CAST: (
        "a value does not fit the type it is cast to",
        "use cast(..., strict=False) to get null instead",
    ),
    NULL_STATE: (
        "a function of the aggregate returned null for its partial",
        "division by zero is null; guard it with tm.when(...)",
    ),
}  # fmt: skip


def raise_for(err: int, step: str, cause: UserError | None = None) -> None:
    """Raise the `UserError` for the error bits of a kernel, if any is set.

    `cause` is the error of a column that was computed before the loop; it is raised if the loop read the
    row that failed.
    """
    if err & BAD_CAST and cause is not None:
        raise cause
    for bit, (message, hint) in _MESSAGES.items():
        if err & bit:
            raise UserError(step, message, hint=hint)
