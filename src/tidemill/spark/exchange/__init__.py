"""Exchanges that send only what must travel (paper 002): reduce, group and join on plain DataFrames."""

from tidemill.spark.exchange.group import colocate, group_by_key
from tidemill.spark.exchange.join import join
from tidemill.spark.exchange.reduce import reduce_by_key

__all__ = ["colocate", "group_by_key", "join", "reduce_by_key"]
