"""Arguments of benchmarks of all kinds: numbers are axes of the grid, and everything else makes a variant."""

from __future__ import annotations

import math
from collections.abc import Mapping

from benchmarking.core.axes import FURTHER
from db.importers._values import INT32_MAX

Argument = int | float | str


def split_arguments(arguments: Mapping[str, Argument]) -> tuple[dict[str, int | float], str | None]:
    """The numbers among the arguments, and the others as "name=value, ...", None when there are none.

    A number that the axis' own column cannot hold (half a step) is one of the others.
    """
    axes = {name: value for name, value in arguments.items() if not isinstance(value, str) and _fits(name, value)}
    others = [f"{name}={value}" for name, value in arguments.items() if name not in axes]
    return axes, ", ".join(others) or None


def _fits(name: str, value: int | float) -> bool:
    if not math.isfinite(value):
        return False
    return name not in FURTHER or FURTHER[name].kind is float or (float(value).is_integer() and abs(value) <= INT32_MAX)
