"""The remote side of a connection: how benchhouse is started there, and its check before it becomes a worker.

`--setup` selects the environment: `venv:DIR` is a virtual environment, created over SSH if missing; `conda:NAME` an
existing environment; `docker:IMAGE` a container. By default it is `python3` of the remote machine, or in Slurm jobs,
whose nodes share this machine's folders, the Python that runs this command.
"""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Literal

from benchmarking import __version__
from benchmarking.core.errors import EXIT_OK, UsageError
from benchmarking.core.lazy_dataclass import dataclass

WORKER = "benchmarking.cluster.worker"
MODULE = "benchmarking.cluster.remote_setup"
DEFAULT_VENV = f".cache/benchhouse/venv-{__version__}"
"""Relative to the home folder on the remote side."""
PACKAGE = f"benchhouse[cluster,measure]=={__version__}"
SETUPS = {"venv": r"[^\x00-\x1f-][^\x00-\x1f]*", "conda": r"[\w.][\w./-]*", "docker": r"\w[\w./:@-]*"}
"""Kind of setup -> what its value names."""
PORTS = 2
LOCKS = "/tmp/benchhouse-locks"  # noqa: S108 - the folder of device locks, shared with the container
MAKE_VENV = """\
set -e
if ! [ -x "$1/bin/python" ]; then python3 -m venv "$1"; fi
same='import sys, benchmarking; sys.exit(benchmarking.__version__ != sys.argv[1])'
"$1/bin/python" -P -c "$same" "$2" 2>/dev/null || "$1/bin/python" -m pip install --quiet -- "$3"
"""
"""A constant script; folder, version and package are its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How benchhouse is started on another machine."""

    kind: Literal["python", "venv", "conda", "docker"] = "python"
    what: str = "python3"
    """The Python, folder, environment or image."""


def read_setup(text: str) -> Setup:
    """The value of --setup. Raises UsageError."""
    kind, _, what = text.partition(":")
    if kind == "venv":
        what = what or DEFAULT_VENV
    if kind not in SETUPS or not re.fullmatch(SETUPS[kind], what):
        raise UsageError(f"--setup {text}: expected venv, venv:DIR, conda:NAME, or docker:IMAGE")
    return Setup(kind=kind, what=what)  # type: ignore[arg-type]


def remote_command(
    setup: Setup, module: str, *arguments: str, devices: Sequence[str] | None = None, volumes: Sequence[str] = ()
) -> tuple[str, ...]:
    """The command line that runs a module of benchhouse there. A container gets access to `devices` (None: to none in
    particular) and to the folders `volumes`."""
    run = ("-P", "-m", module, *arguments)
    if setup.kind == "conda":
        return ("conda", "run", "--no-capture-output", "--name", setup.what, "python", *run)
    if setup.kind == "docker":
        from benchmarking.core.plugins import kinds

        named = {name.partition(":")[0] for name in devices or ()}
        shared = [word for folder in (LOCKS, *volumes) for word in ("--volume", f"{folder}:{folder}")]
        shared += [word for kind in kinds() if named & {kind.name, *kind.aliases} for word in kind.container_flags]
        return ("docker", "run", "--rm", "--interactive", "--network", "host", *shared, setup.what, "python", *run)
    return (f"{setup.what}/bin/python" if setup.kind == "venv" else setup.what, *run)


def preparation(setup: Setup, package: str = PACKAGE) -> tuple[str, ...] | None:
    """The command line that prepares the remote side; None if there is nothing to do."""
    if setup.kind != "venv":
        return None
    return ("sh", "-c", MAKE_VENV, "sh", setup.what, __version__, package)


def main(argv: Sequence[str] | None = None) -> int:
    """On the remote side: print the version of benchhouse and free ports as JSON."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(PORTS)]
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        print(json.dumps({"benchhouse": __version__, "ports": [free.getsockname()[1] for free in sockets]}))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
