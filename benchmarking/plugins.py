"""Finds plugins by listing a package's folder: one file, one `PLUGIN`, nothing to register."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any


@cache
def names(package: str) -> tuple[str, ...]:
    """Names of the plugins in `package` (a dotted name), sorted: its modules, since a package in it holds helpers.

    Modules that start with "_" are private to the folder.
    """
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return tuple(sorted(module.name for module in modules if not module.ispkg and not module.name.startswith("_")))


def load(package: str, name: str) -> Any:
    """The `PLUGIN` of module `name` in `package`. Raises KeyError when there is no such module."""
    if name not in names(package):
        raise KeyError(name)
    return importlib.import_module(f"{package}.{name}").PLUGIN
