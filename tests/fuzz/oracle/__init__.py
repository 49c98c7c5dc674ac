"""What a query means, written a second time from docs/design.md: imports nothing of Tidemill.

Queries are plain data (`tests.fuzz.queries`), rows are dicts of Python values with instants and
durations as ints, and arithmetic is that of Python's ints and fractions.
"""
