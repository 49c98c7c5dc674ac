"""A lazy, ordered, distributed array on Spark."""
