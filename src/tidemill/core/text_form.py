"""How the fields of text files are written: what stands for null, what separates them, the decimal sign."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema

NULLS = ("NA", "N/A", "n/a", "#N/A", "NULL", "Null", "null", "None", "nil", "NaT", "?", "-", ".", "\\N")
"""Spellings of null that are found in numbers and times; text may mean them, and NaN is a number."""
UTF8 = "utf-8"
DELIMITERS = (",", ";", "\t", "|")
"""What may separate the fields of a CSV file, if nothing is said: the one that splits its first lines."""


@dataclass(frozen=True)
class TextForm:
    """The form of a stream's text files. An empty field without quotes is null in any column."""

    nulls: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Other spellings of null, by column; quoted or not, with or without spaces around them."""
    delimiter: str | None = None
    """None if it is to be found."""
    decimal: str = "."
    columns: tuple[str, ...] | None = None
    """The columns of CSV files without a header; None if their first line names them."""
    encoding: str = UTF8
    """The encoding of CSV files, by its name in `codecs`."""
    skip: int = 0
    """The lines of CSV files before the header, or before the first row if there is none."""

    @property
    def first_row(self) -> int:
        """The number of the first row of a CSV file in errors: lines are counted from 1."""
        return self.skip + (2 if self.columns is None else 1)

    def nulls_of(self, column: str) -> tuple[str, ...]:
        """Return the spellings of null in a column."""
        return next((spelled for name, spelled in self.nulls if name == column), ())


PLAIN_TEXT = TextForm()


def text_form(
    schema: Schema, nulls: Any, delimiter: Any, decimal: Any, columns: Any = None, encoding: Any = None,
    skip: Any = 0, *, step: str,
) -> TextForm:  # fmt: skip
    """Read the options of a stream. `nulls` are spellings for all columns, or a dict of some columns'.

    >>> from tidemill.core.schema import schema
    >>> text_form(schema({"t": "int64"}), "NA", ";", ",", step="stream").nulls_of("t")
    ('NA',)
    """
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1):
        raise UserError(step, expected="delimiter= one character", got=repr(delimiter))
    if decimal not in (".", ","):
        raise UserError(step, expected="decimal= '.' or ','", got=repr(decimal))
    if isinstance(skip, bool) or not isinstance(skip, int) or skip < 0:
        raise UserError(step, expected="skip= a number of lines before the header", got=repr(skip))
    try:
        code = codecs.lookup(encoding or UTF8).name
    except (LookupError, TypeError) as unknown:
        wanted = "encoding= such as 'latin-1' or 'utf-16'"
        raise UserError(step, expected=wanted, got=repr(encoding)) from unknown
    names = None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    if names is not None and (not all(isinstance(n, str) for n in names) or len(set(names)) < len(names)):
        raise UserError(step, expected="columns= the names of the columns, each once", got=f"{columns!r:.80}")
    if names is not None and (missing := [n for n in schema.names if n not in names]):
        raise UserError(
            step, expected=f"columns= with all columns of the stream, also {missing}", got=f"{list(names)}"
        )
    given = nulls if isinstance(nulls, Mapping) else dict.fromkeys(schema.names, nulls)
    found = []
    for column, spelled in given.items():
        schema.type_of(column, step=f"{step} nulls=")
        several = (
            (spelled,) if isinstance(spelled, str) else () if spelled is None else tuple(spelled)
        )
        if not all(isinstance(one, str) for one in several):
            raise UserError(
                step, expected="nulls= texts that stand for null", got=f"{spelled!r:.80}"
            )
        kept = tuple(dict.fromkeys(one.strip() for one in several if one.strip()))
        if kept:
            found.append((column, kept))
    return TextForm(tuple(found), delimiter, decimal, names, code, skip)
