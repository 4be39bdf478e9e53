"""Python code in separate processes that start quickly, forked from a server with the warehouse imported.

For tests that kill a process, signal it or limit its files many times. What a shell would start, with the imports that
come with it, is for `subprocess`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess as Process
from multiprocessing.util import get_temp_dir
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["duckdb", "pyarrow", "pandas", "db.setup_benchmark_db", "db.commands.merge", "db.warehouse"]
)
"""Packages too, which the modules import only when they need them."""
get_temp_dir()  # that of multiprocessing's sockets: a test may choose another one, whose path is too long for them
TIME_LIMIT_S = 120
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Done:
    """How a process ended; `returncode` is negative for a signal, as subprocess has it."""

    returncode: int | None
    stdout: str
    stderr: str


def started(
    code: str, *arguments: object, folder: str = os.devnull, first: Callable[[], None] | None = None
) -> Process:
    """The process that runs the code with the arguments as its sys.argv[1:], in this folder and environment. `first`, a
    function of a module, is called before it in the new process. What it prints goes to "out" and "err" in `folder`."""
    import pytest  # not in each process that imports this module

    words = [*map(str, arguments)]
    process = CONTEXT.Process(target=_execute, args=(code, words, dict(os.environ), os.getcwd(), folder, first))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)  # whoever started pytest: the new process imports the functions that it is given
        process.start()
    return process


def run_code(code: str, *arguments: object, first: Callable[[], None] | None = None) -> Done:
    """The end of a process as `started` makes it. Raises TimeoutError."""
    with tempfile.TemporaryDirectory() as folder:
        process = started(code, *arguments, folder=folder, first=first)
        process.join(TIME_LIMIT_S)
        if process.is_alive():
            process.kill()
            raise TimeoutError(f"not ended after {TIME_LIMIT_S} s")
        out, err = (Path(folder, name).read_text() for name in ("out", "err"))
    return Done(process.exitcode, out, err)


def _execute(
    code: str,
    arguments: list[str],
    environment: dict[str, str],
    cwd: str,
    folder: str,
    first: Callable[[], None] | None,
) -> None:
    for number, name in ((1, "out"), (2, "err")):
        path = folder if folder == os.devnull else Path(folder, name)
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # as this environment says, not the one of the server
    os.chdir(cwd)
    sys.argv = ["-c", *arguments]
    if first is not None:
        first()
    exec(compile(code, "<code of the test>", "exec"), {"__name__": "__main__"})
