"""Who may reach a cluster: TLS as Dask has it, and without TLS loopback only unless the user says otherwise.

Dask's messages are pickles, so whoever can connect to a scheduler or worker can run code there. TLS with a certificate
authority of one's own lets in only those who have a certificate of it.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from benchmarking.core.command_line import Parser
from benchmarking.core.errors import UsageError

ROLES = ("client", "worker", "scheduler")
IN_MEMORY = "\n"
"""What tells Dask the text of a certificate from the path of one."""
MOST_CERTIFICATES = 100_000
TLS_FLAGS = ("tls_ca_file", "tls_cert", "tls_key")


def add_tls(parser: Parser) -> None:
    """The flags of the connection."""
    group = parser.add_argument_group("connection to the cluster")
    group.add_argument(
        "--tls-ca-file", metavar="FILE", help="certificate authority of the cluster, PEM (default: no TLS)"
    )
    group.add_argument("--tls-cert", metavar="FILE", help="own certificate, PEM (default: no TLS)")
    group.add_argument("--tls-key", metavar="FILE", help="key of the own certificate, PEM (default: no TLS)")
    group.add_argument(
        "--insecure",
        action="store_true",
        help="connect to other machines without TLS: everybody on that network can then run code on them "
        "(default: without TLS on this machine only)",
    )


def check_exposure(address: str, arguments: argparse.Namespace) -> None:
    """Raise UsageError for an address that is not one, TLS files that are incomplete or absent, and another machine
    without TLS."""
    scheme, host = _parts(address)
    given = {flag: getattr(arguments, flag) for flag in TLS_FLAGS}
    if scheme == "tls":
        absent = [f"--{flag.replace('_', '-')}" for flag, path in given.items() if path is None]
        if absent:
            raise UsageError(f"{address}: TLS needs {', '.join(absent)}")
        for path in given.values():
            if IN_MEMORY not in path and not Path(path).is_file():
                raise UsageError(f"{address}: there is no file {path}")
        return
    if any(given.values()):
        raise UsageError(f"{address} is without TLS: write tls:// for the certificates to be used")
    if not is_loopback(address) and not arguments.insecure:
        raise UsageError(
            f"{address}: {host} is another machine, and without TLS everybody on the network between could run code on "
            "both: use tls:// with certificates, an SSH tunnel, or --insecure on a network that you trust"
        )


def read_certificates(stream: IO[str], arguments: argparse.Namespace) -> None:
    """Set the files of TLS to texts that a line of JSON has, as Dask takes them, too. Raises UsageError."""
    try:
        found = json.loads(stream.readline(MOST_CERTIFICATES))
        texts = {f"tls_{part}": found[part] for part in ("ca_file", "cert", "key")}
    except (ValueError, LookupError, TypeError) as error:
        raise UsageError("--tls-stdin: expected one JSON object with ca_file, cert and key on stdin") from error
    for key, text in texts.items():
        if not isinstance(text, str) or IN_MEMORY not in text:
            raise UsageError(f"--tls-stdin: {key.removeprefix('tls_')} is no text in PEM")
        setattr(arguments, key, text)


def security(arguments: argparse.Namespace) -> Any:
    """Dask's security settings; None without TLS."""
    if getattr(arguments, "tls_ca_file", None) is None:
        return None
    from distributed.security import Security

    files = {f"tls_{role}_{part}": getattr(arguments, f"tls_{part}") for role in ROLES for part in ("cert", "key")}
    return Security(tls_ca_file=arguments.tls_ca_file, require_encryption=True, **files)


def is_loopback(address: str) -> bool:
    """Whether an address is of this machine alone."""
    _, host = _parts(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parts(address: str) -> tuple[str, str]:
    try:
        parts = urlsplit(address)
        if parts.scheme in ("tcp", "tls") and parts.hostname and parts.port:
            return parts.scheme, parts.hostname
    except ValueError:
        pass
    raise UsageError(f"{address!r} is no address of a scheduler: write tcp://HOST:PORT or tls://HOST:PORT")
