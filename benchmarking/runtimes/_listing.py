"""What `--list-runtimes` shows: every runtime, found or why not."""

from __future__ import annotations

from importlib import metadata

from benchmarking import plugins
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.records import Json
from benchmarking.runtimes import Runtime

PACKAGE = "benchmarking.runtimes"
HEADINGS = ("runtime", "versions")
ABSENT_HEADINGS = ("not found", "why")


def listing_text(page: Page = PLAIN) -> str:
    """A table of the runtimes that were found, then the reason for each that was not. No trailing newline."""
    found = {name: versions(plugin) for name, plugin in _runtimes().items() if plugin.missing() is None}
    absent = {name: why for name, plugin in _runtimes().items() if (why := plugin.missing()) is not None}
    rows = [(name, ", ".join(f"{package} {version}" for package, version in of.items())) for name, of in found.items()]
    tables = [Table(headings=HEADINGS, rows=tuple(rows))]
    tables += [Table(headings=ABSENT_HEADINGS, rows=tuple(absent.items()))] if absent else []
    return "\n\n".join(table_text(table, page) for table in tables)


def listing_json() -> list[Json]:
    """One object a runtime: name, found, why_not (or null), versions of the packages that it runs on."""
    return [
        {"name": name, "found": (why := plugin.missing()) is None, "why_not": why, "versions": dict(versions(plugin))}
        for name, plugin in _runtimes().items()
    ]


def versions(plugin: Runtime) -> dict[str, str]:
    """The versions of a runtime's packages, those that are not installed left out; nothing is imported for it."""
    found: dict[str, str] = {}
    for name in plugin.packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _runtimes() -> dict[str, Runtime]:
    """Those that run models; the others are always there."""
    found: dict[str, Runtime] = {name: plugins.load(PACKAGE, name) for name in plugins.names(PACKAGE)}
    return {name: runtime for name, runtime in found.items() if runtime.runs_models}
