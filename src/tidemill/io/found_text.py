"""Find the types of the columns of text files, by their first rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from tidemill.core.text_form import NULLS, PLAIN_TEXT, TextForm
from tidemill.core.time_reading import PLAIN, iso_times
from tidemill.core.types import TIMESTAMP, to_arrow
from tidemill.io.stored_files import StoredFile
from tidemill.io.text import found_json, found_types
from tidemill.io.text_columns import with_nulls
from tidemill.io.text_errors import with_options
from tidemill.io.text_files import delimiter_of, is_blank


@dataclass(frozen=True)
class FoundText:
    """The columns of a text file, and the spellings of null that were seen in numbers and times."""

    schema: pa.Schema
    nulls: dict[str, tuple[str, ...]] = field(default_factory=dict)
    texts: dict[str, pa.Array] = field(default_factory=dict)
    """The first values of columns of text."""


def find_csv(
    path: StoredFile, form: TextForm = PLAIN_TEXT, spelled: tuple[str, ...] = NULLS
) -> FoundText:
    """Find the types of the columns of a CSV file; what is not spelled as another type is text."""
    with with_options(path, form):
        first = None if is_blank(path) else found_types(path, delimiter_of(path, form), form)
    if first is None:
        return FoundText(pa.schema([]))
    fields, nulls, texts = [], {}, {}
    for name, text in zip(first.schema.names, first.columns):
        known = with_nulls(text, spelled)
        kind = type_of_text(known, form)
        fields.append(pa.field(name, kind))
        if pa.types.is_string(kind):
            texts[name] = known
        elif known.null_count > text.null_count:
            seen = text.filter(known.is_null()).drop_null().unique().to_pylist()
            nulls[name] = tuple(sorted({one.strip() for one in seen}))
    return FoundText(pa.schema(fields), nulls, texts)


def find_json(path: StoredFile) -> FoundText:
    """Find the types of the columns of a file of JSON. Times of day, and what had no value, are text."""
    return FoundText(pa.schema([_known(one) for one in found_json(path)]))


def _known(one: pa.Field) -> pa.Field:
    unsure = pa.types.is_null(one.type) or pa.types.is_time(one.type)
    return one.with_type(pa.string()) if unsure else one


def type_of_text(text: pa.Array, form: TextForm = PLAIN_TEXT) -> pa.DataType:
    """Return the type that all texts can be read as: ints, floats, bools, ISO times, or else text."""
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(text.drop_null())
    if not len(text):
        return pa.string()
    points = text
    if form.decimal != ".":  # points would be between thousands, and no number is read then
        pointed = pc.any(pc.match_substring(text, ".")).as_py()
        points = pa.array(["1.234,5"]) if pointed else pc.replace_substring(text, form.decimal, ".")
    tries: tuple[tuple[pa.Array, Callable[[pa.Array], pa.Array]], ...] = (
        (text, lambda a: a.cast(pa.int64())),
        (points, lambda a: a.cast(pa.float64())),
        (text, _bools),
        (text, lambda a: iso_times(a, PLAIN).cast(to_arrow(TIMESTAMP))),
    )
    for given, convert in tries:
        try:
            return convert(given).type
        except pa.ArrowInvalid:
            continue
    return pa.string()


def _bools(text: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    if not pc.all(pc.is_in(pc.ascii_lower(text), value_set=pa.array(["true", "false"]))).as_py():
        raise pa.ArrowInvalid("other words")
    return text.cast(pa.bool_())
