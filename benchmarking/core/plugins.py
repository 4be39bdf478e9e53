"""Finds plugins by listing a package's folder: one file, one `PLUGIN`, nothing to register.

Which packages are installed, asked in one place, so that it can also be asked what would be if all of them were.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any


@cache
def names(package: str) -> tuple[str, ...]:
    """Names of the plugins in `package` (a dotted name), sorted: its modules, since a package in it holds helpers."""
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return tuple(sorted(module.name for module in modules if not module.ispkg))


def load(package: str, name: str) -> Any:
    """The `PLUGIN` of module `name` in `package`. Raises KeyError when there is no such module."""
    if name not in names(package):
        raise KeyError(name)
    return importlib.import_module(f"{package}.{name}").PLUGIN


_ALL_ASSUMED = ContextVar("_ALL_ASSUMED", default=False)


def is_installed(module: str) -> bool:
    """Whether a module can be imported, or is assumed to be. Imports nothing."""
    return are_all_assumed() or importlib.util.find_spec(module) is not None


def are_all_assumed() -> bool:
    """Whether the question is what would be with every package installed."""
    return _ALL_ASSUMED.get()


@contextmanager
def all_assumed() -> Iterator[None]:
    """Inside, every package counts as installed, in whatever variant a device needs: for tables of what is supported,
    which must not depend on the machine they are made on."""
    token = _ALL_ASSUMED.set(True)
    try:
        yield
    finally:
        _ALL_ASSUMED.reset(token)
