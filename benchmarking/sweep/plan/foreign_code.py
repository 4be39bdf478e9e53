"""Restricts plans read from files to code that the command itself names.

Unfinished runs and batches, and stored runs, may come from anyone. Some of their settings name code (the file of a
benchmark, a folder of kernels); each runtime declares which (`Runtime.foreign_code`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarking.core import plugins
from benchmarking.core.contracts import ForeignCode, Runtime
from benchmarking.core.errors import FormatError, UsageError
from benchmarking.core.records import Scalar
from benchmarking.sweep.plan.plan import CellPlan

SCRIPT = "scripts"
"""The argument that names scripts, which only cluster workers have."""
DEVICES, RUNTIMES = "benchmarking.devices", "benchmarking.runtimes"


def check_loaded_plan(plan: CellPlan, arguments: Mapping[str, object], where: str) -> None:
    """Check a plan that was read from the file `where`, before it runs.

    `arguments` are those of the command by key. Raises FormatError for an unknown runtime or device, UsageError for
    code or a script that none of the arguments names.
    """
    cell = plan.cell
    for package, name in ((RUNTIMES, cell.runtime), (DEVICES, cell.device.type)):
        if name not in plugins.names(package):
            raise FormatError(f"{where}: {name!r} is none of {', '.join(plugins.names(package))}")
    if cell.workload.source == "module" and not _is_named(SCRIPT, cell.workload.path, arguments):
        raise UsageError(
            f"{where} would run the script {cell.workload.path!r}, so it was not started: if you trust the script, "
            "measure it again with benchhouse script"
        )
    code = foreign_code(cell.runtime, cell.runtime_mode, cell.workload.path)
    if code is not None and not _is_named(code.key, code.path, arguments):
        raise UsageError(
            f"{where} would run the code in {code.path!r}, so it was not started: if you trust the code, add "
            f"{code.flag} with its folder"
        )


def foreign_code(runtime: str, mode: Mapping[str, Scalar], model_path: str | None = None) -> ForeignCode | None:
    """The code outside the installed packages that a cell executes; None for none."""
    plugin: Runtime = plugins.load(RUNTIMES, runtime)
    return plugin.foreign_code(mode, model_path)


def _is_named(key: str, code: str | None, arguments: Mapping[str, object]) -> bool:
    """Whether an argument is the code's file or folder, or a folder above it."""
    folder = arguments.get(key)
    if not isinstance(folder, str) or not code:
        return False
    path = Path(code)
    # The file itself may be a link made by the owner of the folder; ".." and linked folders above it are resolved.
    return (path.parent.resolve() / path.name).is_relative_to(Path(folder).expanduser().resolve())
