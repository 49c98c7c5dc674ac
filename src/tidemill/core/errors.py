"""The three errors that Tidemill raises. Each message says what to do."""

from __future__ import annotations


class TidemillError(Exception):
    """The base class of all errors that Tidemill raises."""


class UserError(TidemillError):
    """The query or the data is wrong.

    The message names the step, what was expected, what was given, and what to do.

    >>> raise UserError("window", expected="a positive range", got="0s", hint="write tumbling('1s')")
    Traceback (most recent call last):
    ...
    tidemill.core.errors.UserError: window: expected a positive range, got 0s — write tumbling('1s')
    """

    def __init__(
        self, step: str, message: str = "", *, expected: str = "", got: str = "", hint: str = ""
    ) -> None:
        self.step, self.expected, self.got, self.hint = step, expected, got, hint
        text = message
        if expected:
            text = f"{text}; " if text else ""
            text += f"expected {expected}" + (f", got {got}" if got else "")
        elif got:
            text += f", got {got}"
        super().__init__(f"{step}: {text}" + (f" — {hint}" if hint else ""))


class UnsupportedError(TidemillError):
    """An engine cannot run a plan; the message says which engine can, or what to do.

    Anything other than an engine is named with its article: `"the rule push_filters"`.
    """

    def __init__(self, engine: str, what: str, *, instead: str) -> None:
        self.engine, self.what, self.instead = engine, what, instead
        who = engine if engine.startswith("the ") else f"the {engine} engine"
        super().__init__(f"{who} cannot run {what} — {instead}")


class InternalError(TidemillError):
    """A bug in Tidemill. Please report it with the plan in the message."""

    def __init__(self, message: str, *, plan: object = None) -> None:
        self.plan = plan
        shown = f"\nplan:\n{plan}" if plan is not None else ""
        super().__init__(f"{message} (this is a fault of Tidemill: please report it){shown}")
