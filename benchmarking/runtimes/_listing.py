"""What `--list-runtimes` shows: every runtime, found or why not."""

from __future__ import annotations

from importlib import metadata

from benchmarking import plugins
from benchmarking.columns_text import columns_text
from benchmarking.records import Json
from benchmarking.runtimes import HasPackages, RuntimePlugin

PACKAGE = "benchmarking.runtimes"
NOT_FOR_MODELS = ("bench", "null")
"""Runtimes of people's own benchmarks and of scripts, which are always there."""
HEADINGS = ("RUNTIME", "VERSIONS")


def listing_text() -> str:
    """A table of the runtimes that were found, then the reason for each that was not. No trailing newline."""
    found = {name: versions(plugin) for name, plugin in _runtimes().items() if plugin.missing() is None}
    absent = {name: why for name, plugin in _runtimes().items() if (why := plugin.missing()) is not None}
    rows = [(name, ", ".join(f"{package} {version}" for package, version in of.items())) for name, of in found.items()]
    width = max(map(len, (*found, *absent)))
    lines = columns_text(HEADINGS, rows)
    return "\n".join([*lines, *(["", "NOT FOUND"] if absent else []), *_absent(absent, width)])


def listing_json() -> list[Json]:
    """One object a runtime: name, found, why_not (or null), versions of the packages that it runs on."""
    return [
        {"name": name, "found": (why := plugin.missing()) is None, "why_not": why, "versions": dict(versions(plugin))}
        for name, plugin in _runtimes().items()
    ]


def versions(plugin: RuntimePlugin) -> dict[str, str]:
    """The versions of a runtime's packages, those that are not installed left out; nothing is imported for it."""
    packages = plugin.packages if isinstance(plugin, HasPackages) else ()
    found: dict[str, str] = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _absent(absent: dict[str, str], width: int) -> list[str]:
    return [f"{name.ljust(width)}  {why}" for name, why in absent.items()]


def _runtimes() -> dict[str, RuntimePlugin]:
    names = [name for name in plugins.names(PACKAGE) if name not in NOT_FOR_MODELS]
    return {name: plugins.load(PACKAGE, name) for name in names}
