"""Tidemill on Spark: `tm.spark.build_wheel`, `append`, `wheel_query`, `dia`. Queries: by `on_spark`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.spark import dia
    from tidemill.spark.wheels.build import append, build_wheel
    from tidemill.spark.wheels.ranges import wheel_query

_LATER = {
    "append": "tidemill.spark.wheels.build",
    "build_wheel": "tidemill.spark.wheels.build",
    "wheel_query": "tidemill.spark.wheels.ranges",
}
_PACKAGES = ("dia",)


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: explaining a query needs none of them."""
    from importlib import import_module

    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


__all__ = ["append", "build_wheel", "dia", "wheel_query"]
