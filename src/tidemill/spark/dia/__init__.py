"""A lazy, ordered, distributed array on Spark: the operations of Thrill (paper 002, section 3.3)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.spark.dia.dia import DIA, from_frame, generate, read_binary, read_lines
    from tidemill.spark.dia.elements import Record
    from tidemill.spark.dia.picture import Graph

_LATER = {
    **dict.fromkeys(("DIA", "from_frame", "generate", "read_binary", "read_lines"), "dia"),
    "Record": "elements",
    "Graph": "picture",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: Spark's Python workers need only a few of the modules here."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)


__all__ = ["DIA", "Graph", "Record", "from_frame", "generate", "read_binary", "read_lines"]
