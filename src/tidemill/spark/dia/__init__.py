"""A lazy, ordered, distributed array on Spark: the operations of Thrill (paper 002, section 3.3)."""

from tidemill.spark.dia.dia import DIA, from_frame, generate, read_binary, read_lines
from tidemill.spark.dia.elements import Record
from tidemill.spark.dia.graph import Graph

__all__ = ["DIA", "Graph", "Record", "from_frame", "generate", "read_binary", "read_lines"]
