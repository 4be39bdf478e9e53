"""Clusters that a command starts for itself: a scheduler in this process, and workers that join it; how benchhouse is
started on another machine; and the security of the connections of every cluster. `remote_workers` has the workers on
other machines.

Connections use Dask's TLS; without TLS they are of loopback only, unless the user asks for more. Dask's messages are
pickles, so anyone who can connect to a scheduler or worker can run code there. TLS with a private certificate authority
admits only peers that have one of its certificates.

`main` is the check on another machine before it becomes a worker.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import IO, Any
from urllib.parse import urlsplit

from benchmarking import __version__
from benchmarking.core.argument_types import is_loopback
from benchmarking.core.child_process import module_command, start
from benchmarking.core.command_line import Parser
from benchmarking.core.errors import EXIT_OK, UsageError
from benchmarking.core.help_texts import few_need
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.plugins import check_installed
from benchmarking.core.settings import FILE, SWITCH, Setting, add_flags
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.text import flag_of
from benchmarking.core.untrusted.redaction import from_home, last_line

INSTALL = 'pip install "benchhouse[cluster]"'
"""How Dask, cryptography and dask-jobqueue are installed."""
ROLES = ("client", "worker", "scheduler")
IN_MEMORY = "\n"
"""By which Dask distinguishes the text of a certificate from a path."""
MAX_CERTIFICATE_BYTES = 100_000
TLS_FLAGS = ("tls_ca_file", "tls_cert", "tls_key")


def add_tls(parser: Parser) -> None:
    group = parser.add_argument_group("connection to the cluster")
    few_need(group)
    insecure = "connect to other machines without TLS, so that anyone on that network can run code on them"
    add_flags(
        group,
        Setting("tls_ca_file", FILE, "certificate authority of the cluster, PEM", default_words="no TLS"),
        Setting("tls_cert", FILE, "certificate of this machine, PEM", default_words="no TLS"),
        Setting("tls_key", FILE, "private key of --tls-cert, PEM", default_words="no TLS"),
        Setting("insecure", SWITCH, f"{insecure} (default: without TLS on this machine only)"),
    )


def check_exposure(address: str, arguments: argparse.Namespace) -> None:
    """Raise UsageError for an invalid address, for incomplete or missing TLS files, and for another machine
    without TLS."""
    scheme, host = scheme_and_host(address)
    given = {flag: getattr(arguments, flag) for flag in TLS_FLAGS}
    if scheme == "tls":
        absent = [flag_of(flag) for flag, path in given.items() if path is None]
        if absent:
            raise UsageError(f"{address}: TLS needs {', '.join(absent)}")
        for path in given.values():
            if IN_MEMORY not in path and not Path(path).is_file():
                raise UsageError(f"{address}: no file {path}: check the --tls flags")
        return
    if any(given.values()):
        raise UsageError(f"{address} does not use TLS, so certificates have no effect: write tls://")
    if not is_loopback(host) and not arguments.insecure:
        raise UsageError(
            f"{address}: {host} is another machine, and without TLS anyone on the network in between could run code on "
            "both: use tls:// with certificates, an SSH tunnel, or --insecure on a network that you trust"
        )


def read_certificates(stream: IO[str], arguments: argparse.Namespace) -> None:
    """Replace the TLS files by the texts in a line of JSON, which Dask accepts as well. Raises UsageError."""
    try:
        found = json.loads(stream.readline(MAX_CERTIFICATE_BYTES))
        texts = {f"tls_{part}": found[part] for part in ("ca_file", "cert", "key")}
    except (ValueError, LookupError, TypeError) as error:
        raise UsageError("--tls-stdin: expected one JSON object with ca_file, cert and key on stdin") from error
    for key, text in texts.items():
        if not isinstance(text, str) or IN_MEMORY not in text:
            raise UsageError(f"--tls-stdin: {key.removeprefix('tls_')} is not in PEM format")
        setattr(arguments, key, text)


def security(arguments: argparse.Namespace) -> Any:
    """Dask's security settings; None without TLS. Raises UsageError for certificates that cannot be used."""
    if getattr(arguments, "tls_ca_file", None) is None:
        return None
    from distributed.security import Security

    files = {f"tls_{role}_{part}": getattr(arguments, f"tls_{part}") for role in ROLES for part in ("cert", "key")}
    settings = Security(tls_ca_file=arguments.tls_ca_file, require_encryption=True, **files)
    try:
        settings.get_connection_args("client")
    except (OSError, ValueError) as error:
        raise UsageError(
            "--tls-ca-file, --tls-cert and --tls-key: no certificates in PEM that belong together: "
            f"{getattr(error, 'strerror', None) or error}"
        ) from error
    return settings


def scheme_and_host(address: str) -> tuple[str, str]:
    """The parts of a scheduler's address. Raises UsageError."""
    with suppress(ValueError):
        parts = urlsplit(address)
        if parts.scheme in ("tcp", "tls") and parts.hostname and parts.port:
            return parts.scheme, parts.hostname
    raise UsageError(f"invalid scheduler address {address!r}: expected tcp://HOST:PORT or tls://HOST:PORT")


START_S = 120.0
"""Time limit for workers started as processes, since probing a driver may take a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEndpoint:
    """The scheduler of a cluster, and the number of workers to wait for before a batch is planned."""

    address: str
    security: Any = None
    """Dask's security settings; None without TLS."""
    workers: int = 0
    """Number of workers to wait for."""
    limit_s: float = START_S
    accepts_workers: bool = True
    """Whether more workers may join it later."""
    failure: Callable[[], str | None] = lambda: None
    """Returns why not all workers will join; None while they may. Called while waiting for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRequirements:
    """What a command requires of the workers that are started for it."""

    devices: tuple[str, ...] | None = None
    """None for all hardware."""
    scripts: str | None = None
    """The script whose models it measures, or the folder of several scripts."""

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of the worker's command. `~` in the path of a script is the worker's home folder, as in its
        plans."""
        scripts = () if self.scripts is None else ("--scripts", from_home(self.scripts))
        return (*scripts, *(() if self.devices is None else ("--devices", ",".join(self.devices))))


def temporary_security(what: str) -> Any:
    """In-memory certificates for this command only, without which nothing can connect."""
    check_installed(what, ("cryptography",), INSTALL)
    from distributed.security import Security

    return Security.temporary()


@contextmanager
def own_scratch_folder() -> Iterator[None]:
    """Inside, Dask's schedulers have their scratch folder in one that is deleted at the end. In the temporary folder of
    all users it would stay."""
    import dask

    with temporary_folder("benchhouse-dask") as folder, dask.config.set({"temporary-directory": str(folder)}):
        yield


@contextmanager
def started_workers(
    security: Any, commands: Callable[[str, Path], Mapping[str, Sequence[str]]], *, has_logs: bool
) -> Iterator[ClusterEndpoint]:
    """A scheduler in this process that listens on loopback only, and worker processes, which are stopped at the end.

    `commands` are their command lines by name, given the scheduler's address and a temporary folder. They get the
    certificates on stdin, since other users can reach loopback too. With `has_logs` their stderr goes to files, whose
    last line is why one ended; otherwise to this process's.
    """
    from distributed import LocalCluster

    with (
        own_scratch_folder(),
        LocalCluster(
            n_workers=0,
            host="127.0.0.1",
            scheduler_port=0,
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
            security=security,
            protocol="tls://",
        ) as scheduler,
        temporary_folder("benchhouse-workers") as folder,
        ExitStack() as stack,
    ):
        started: dict[str, tuple[Popen[str], Path]] = {}
        for number, (name, command) in enumerate(commands(scheduler.scheduler_address, folder).items()):
            path = folder / f"{number}.log"
            log = stack.enter_context(path.open("wb")) if has_logs else None
            process = stack.enter_context(start(command, stdin=PIPE, stdout=DEVNULL, stderr=log))
            stack.callback(process.terminate)
            started[name] = process, path
            assert process.stdin is not None
            try:
                process.stdin.write(f"{json.dumps(security.get_tls_config_for_role('worker'))}\n")
                process.stdin.close()
            except OSError:
                process.stdin = None  # it has ended: `failure` says why

        def failure() -> str | None:
            for name, (process, log) in started.items():
                if process.poll() is None:
                    continue
                if not has_logs:
                    return f"a worker ended with exit code {process.returncode}: see its message above"
                why = last_line(log) or "no message"
                return f"the worker on {name} ended with exit code {process.returncode}: {why}"
            return None

        yield ClusterEndpoint(
            address=scheduler.scheduler_address,
            security=security,
            workers=len(started),
            accepts_workers=False,
            failure=failure,
        )


def local_workers(count: int, requirements: WorkerRequirements) -> AbstractContextManager[ClusterEndpoint]:
    """Workers on this machine."""

    def commands(address: str, folder: Path) -> dict[str, tuple[str, ...]]:
        further = ("--quiet", "--tls-stdin", *requirements.flags)
        return {
            name: module_command(WORKER, address, "--name", name, "--spool-dir", str(folder / name), *further)
            for name in (f"local-{number}" for number in range(count))
        }

    return started_workers(temporary_security("--cluster local"), commands, has_logs=False)


WORKER = "benchmarking.cluster.worker"
MODULE = "benchmarking.cluster.scheduler"
DEFAULT_VENV = f".cache/benchhouse/venv-{__version__}"
"""Relative to the home folder on the remote side."""
PACKAGE = f"benchhouse[cluster,measure]=={__version__}"
SETUPS = {"venv": r"[^\x00-\x1f~-][^\x00-\x1f]*", "conda": r"[\w.][\w./-]*", "docker": r"\w[\w./:@-]*"}
"""Kind of setup -> what its value names."""
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
    """How benchhouse is started on another machine: as `--setup` says, or with this Python."""

    kind: str = "python"
    what: str = "python3"
    """The Python, folder, environment or image."""


def read_setup(text: str, home: str = "") -> Setup:
    """The value of --setup, in which `home` replaces ~/. Raises UsageError."""
    kind, _, what = text.partition(":")
    if kind == "venv":
        what = re.sub("^~/", home, what) or DEFAULT_VENV
    if kind not in SETUPS or not re.fullmatch(SETUPS[kind], what):
        raise UsageError(f"--setup {text}: expected venv, venv:DIR, conda:NAME, or docker:IMAGE")
    return Setup(kind=kind, what=what)


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
    """On the remote side: print the version of benchhouse and two free ports as JSON."""
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1], other.getsockname()[1]]
    print(json.dumps({"benchhouse": __version__, "ports": ports}))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
