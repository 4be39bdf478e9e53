"""Plugins, found by listing a folder (one module, one `PLUGIN`, nothing to register), and the packages they need."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import FormatError, NotInstalledError

if TYPE_CHECKING:
    from benchmarking.core.contracts import Runtime
    from benchmarking.core.device_contracts import DeviceKind

DEVICES, RUNTIMES, FAMILIES = "benchmarking.devices", "benchmarking.runtimes", "benchmarking.workloads"
"""The packages whose plugins are named in records."""


HYPHENATED = frozenset({RUNTIMES})
"""Packages whose plugins have a hyphen in their names where their modules have an underscore."""


@cache
def names(package: str) -> tuple[str, ...]:
    """The plugins in `package` (a dotted name), sorted: its modules. Sub-packages hold helpers."""
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    found = sorted(module.name for module in modules if not module.ispkg)
    return tuple(name.replace("_", "-") for name in found) if package in HYPHENATED else tuple(found)


def load(package: str, name: str) -> Any:
    """The `PLUGIN` of `name` in `package`. Raises KeyError for an unknown name."""
    if name not in names(package):
        raise KeyError(name)
    module = name.replace("-", "_") if package in HYPHENATED else name
    return importlib.import_module(f"{package}.{module}").PLUGIN


def device_kind(name: str) -> DeviceKind:
    """The kind of device with this name. Raises KeyError for an unknown one."""
    kind: DeviceKind = load(DEVICES, name)
    return kind


def runtime(name: str) -> Runtime:
    """The runtime with this name. Raises KeyError for an unknown one."""
    found: Runtime = load(RUNTIMES, name)
    return found


def runtimes() -> list[Runtime]:
    """Every runtime, the default one first."""
    return sorted(map(runtime, names(RUNTIMES)), key=lambda one: not one.is_default)


def family_names() -> tuple[str, ...]:
    """Names of the architecture families, in their order in tables and charts."""
    families = [load(FAMILIES, name) for name in names(FAMILIES)]
    return tuple(family.name for family in sorted(families, key=lambda family: (family.rank, family.name)))


def check_family(name: str | None, where: str) -> None:
    """Raise FormatError for a family without a plugin; None means no family."""
    if name is not None and name not in family_names():
        raise FormatError(f"{where}: expected one of {', '.join(family_names())}, found {name!r}")


_ALL_ASSUMED = ContextVar("_ALL_ASSUMED", default=False)


def is_installed(module: str) -> bool:
    """Whether a module can be imported, or is assumed to be (`all_assumed`). Imports nothing."""
    return are_all_assumed() or importlib.util.find_spec(module) is not None


MEASURING = ("torch", "transformers", "huggingface_hub", "safetensors")
"""Modules that every measurement needs. Further modules are checked by the runtimes and models that need them."""
OTHER_EXTRAS = {"kernels": "kernels"}
"""Module -> its extra, if that is not `measure`."""


def how_to_install(*modules: str) -> str:
    """The command that installs the extras of these modules, by default `measure`."""
    extras = sorted({OTHER_EXTRAS.get(module, "measure") for module in modules} or {"measure"}, reverse=True)
    return f'pip install "benchhouse[{",".join(extras)}]"'


def check_measuring(what: str = "measuring a model") -> None:
    """Raise NotInstalledError if a package that every measurement needs is not installed."""
    check_installed(what, MEASURING, how_to_install())


def check_installed(what: str, modules: Sequence[str], how: str) -> None:
    """Raise NotInstalledError, with the install command, if one of the modules is not installed."""
    absent = [name for name in modules if not is_installed(name)]
    if absent:
        are = "is" if len(absent) == 1 else "are"
        raise NotInstalledError(f"{what} needs {', '.join(absent)}, which {are} not installed: {how}")


def version_of(distribution: str) -> str | None:
    """The installed version of a distribution (by its name on the package index); None if not installed."""
    from importlib import metadata  # takes 15 ms, which would slow down --help

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def are_all_assumed() -> bool:
    """Whether every package is assumed to be installed."""
    return _ALL_ASSUMED.get()


@contextmanager
def all_assumed() -> Iterator[None]:
    """Treat every package as installed, in the variant that each device needs, so that support tables do not depend on
    the machine."""
    token = _ALL_ASSUMED.set(True)
    try:
        yield
    finally:
        _ALL_ASSUMED.reset(token)
