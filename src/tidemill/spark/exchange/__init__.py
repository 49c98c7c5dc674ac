"""Reduce, group and join plain DataFrames with shuffles that send only rows that must move (paper 002)."""

from tidemill.spark.exchange.decision import explain
from tidemill.spark.exchange.group import colocate, group_by_key
from tidemill.spark.exchange.join import join
from tidemill.spark.exchange.placement import Placement, place
from tidemill.spark.exchange.reduce import reduce_by_key
from tidemill.spark.exchange.report import Report, report
from tidemill.spark.exchange.traffic import Traffic, traffic

__all__ = [
    "Placement", "Report", "Traffic", "colocate", "explain", "group_by_key", "join", "place",
    "reduce_by_key", "report", "traffic",
]  # fmt: skip
