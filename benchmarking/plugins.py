"""Finds plugins by listing a package's folder: one file, one `PLUGIN`, nothing to register."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any


@cache
def names(package: str) -> tuple[str, ...]:
    """Names of the plugin modules in `package` (a dotted name), sorted; modules that start with "_" are helpers."""
    paths = importlib.import_module(package).__path__
    return tuple(sorted(module.name for module in pkgutil.iter_modules(paths) if not module.name.startswith("_")))


def load(package: str, name: str) -> Any:
    """The `PLUGIN` of module `name` in `package`. Raises KeyError when there is no such module."""
    if name not in names(package):
        raise KeyError(name)
    return importlib.import_module(f"{package}.{name}").PLUGIN
