"""Plugins, found by listing a folder and looked up by name or trait; and the packages they need.

A module of a plugin folder has one `PLUGIN`, or `PLUGINS` where several are of one kind; there is nothing to register.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import FormatError, NotInstalledError

if TYPE_CHECKING:
    from benchmarking.core.contracts import Runtime
    from benchmarking.core.device_contracts import DeviceKind

DEVICES, RUNTIMES, FAMILIES = "benchmarking.devices", "benchmarking.runtimes", "benchmarking.workloads"
"""The packages whose plugins are named in records."""


LAST = (1000, "")
"""Rank of the kinds of device that `auto` never tries."""
HYPHENATED = frozenset({RUNTIMES})
"""Packages whose plugins have a hyphen in their names where their modules have an underscore."""
ALL_ASSUMED = ContextVar("ALL_ASSUMED", default=False)
"""Whether every package counts as installed, in the variant that each device needs, so that support tables do not
depend on the machine."""


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


@cache
def by_name(package: str) -> Mapping[str, Any]:
    """Every plugin in `package` by its own name, sorted: the `PLUGIN` of each module, or its `PLUGINS`."""
    modules = [importlib.import_module(f"{package}.{name}") for name in names(package)]
    found = [one for module in modules for one in getattr(module, "PLUGINS", ()) or (module.PLUGIN,)]
    return {one.name: one for one in sorted(found, key=lambda one: one.name)}


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


def kinds() -> tuple[DeviceKind, ...]:
    """Every kind: the CPU first, then in the order in which `auto` tries them, then the others."""
    all_kinds = map(device_kind, names(DEVICES))
    return tuple(sorted(all_kinds, key=lambda kind: (not kind.is_processor, min(kind.auto_ranks, default=LAST))))


def kind_of(device_type: str) -> DeviceKind | None:
    """The kind with this name; None if this version does not have it."""
    return device_kind(device_type) if device_type in names(DEVICES) else None


def has(device_type: str, trait: Callable[[DeviceKind], bool]) -> bool:
    """Whether a kind has a trait; False for a kind that this version does not have."""
    kind = kind_of(device_type)
    return kind is not None and trait(kind)


def is_processor(device_type: str) -> bool:
    """Whether a kind is the machine's processor; False for a kind that this version does not have."""
    return has(device_type, lambda kind: kind.is_processor)


def names_with(trait: Callable[[DeviceKind], bool]) -> tuple[str, ...]:
    """Names of the kinds that have a trait, in the order of `kinds`."""
    return tuple(kind.name for kind in kinds() if trait(kind))


def why_not_on(runtime: str, device_type: str, trait: Callable[[DeviceKind], bool]) -> str | None:
    """None, or why a runtime does not run on a kind of device: it has not the trait of those that the runtime needs."""
    if has(device_type, trait):
        return None
    return f"runtime {runtime} runs on {', '.join(names_with(trait))}, not on {device_type}"


def device_named(request: str) -> str:
    """A `--device` value with aliases replaced by the kind's name: "cuda:1" for "nvidia:1"."""
    name, colon, part = request.partition(":")
    kind_name = next((kind.name for kind in kinds() if name.lower() in kind.aliases), name)
    return f"{kind_name}{colon}{part}"


GROQ = "groq"
NO_GROQ = "Groq's compiler and chips are not supported"
"""What is said about the device of this name, and settings that begin with it, unless a plugin has them."""


def processor() -> DeviceKind:
    """The CPU's kind, which every machine has."""
    return next(kind for kind in kinds() if kind.is_processor)


def default_runtime() -> str:
    """The name of the runtime used by default, with which others are compared."""
    return next(one.name for one in runtimes() if one.is_default)


def compiling_runtime() -> str:
    """The name of the runtime that compiles a model's code."""
    return next(one.name for one in runtimes() if one.compiles)


def export_runtimes() -> Mapping[str, str]:
    """The usual runtime for each format of exported files."""
    return {one.export_format: one.name for one in runtimes() if one.export_format is not None}


def runtime_of_device_alias(request: str) -> str | None:
    """The runtime that a `--device` value stands for too: ONNX Runtime's for "x86"; None for a name of ours."""
    name = request.partition(":")[0].lower()
    return next((one.name for one in runtimes() if name in one.device_aliases), None)


def family_names() -> tuple[str, ...]:
    """Names of the architecture families, in their order in tables and charts."""
    families = [load(FAMILIES, name) for name in names(FAMILIES)]
    return tuple(family.name for family in sorted(families, key=lambda family: (family.rank, family.name)))


def check_family(name: str | None, where: str) -> None:
    """Raise FormatError for a family without a plugin; None means no family."""
    if name is not None and name not in family_names():
        raise FormatError(f"{where}: expected one of {', '.join(family_names())}, found {name!r}")


def is_installed(module: str) -> bool:
    """Whether a module can be imported, or is assumed to be (`ALL_ASSUMED`). Imports nothing."""
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
        found = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return None
    # "" is of an old egg-info, which is a file itself. Parsing the description too takes four times as long.
    described = next(filter(None, map(found.read_text, ("METADATA", "PKG-INFO", ""))), "")
    header = re.search(r"^Version:(.*)", described, re.MULTILINE)
    return header[1].strip() if header is not None else None


def versions_of(distributions: Iterable[str]) -> dict[str, str]:
    """Name -> version of those that are installed."""
    return {name: version for name in distributions if (version := version_of(name)) is not None}


def distributions_of(module: str) -> tuple[str, ...]:
    """The installed distributions that contain a module, by their names on the package index, sorted:
    "onnxruntime-rocm" for onnxruntime. Only those whose names begin with the module's first letter, since the lists of
    files of all take 0.1 s. Imports nothing."""
    spec = PathFinder.find_spec(module)
    if spec is None or spec.origin is None:
        return ()
    lists = Path(spec.origin).parent.parent.glob(f"{module[0]}*.dist-info/RECORD")
    own = f"\n{module}/__init__.py,".encode()
    names = [path.parent.name.partition("-")[0] for path in lists if own in b"\n" + path.read_bytes()]
    return tuple(sorted(name.replace("_", "-").lower() for name in names))


def are_all_assumed() -> bool:
    """Whether every package is assumed to be installed."""
    return ALL_ASSUMED.get()
