"""Security of cluster connections: Dask's TLS, and without TLS loopback only, unless the user asks for more.

Dask's messages are pickles, so anyone who can connect to a scheduler or worker can run code there. TLS with a private
certificate authority admits only peers that have one of its certificates.
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
from benchmarking.core.help_texts import few_need

INSTALL = 'pip install "benchhouse[cluster]"'
"""How Dask, cryptography and dask-jobqueue are installed."""
ROLES = ("client", "worker", "scheduler")
IN_MEMORY = "\n"
"""By which Dask distinguishes the text of a certificate from a path."""
MAX_CERTIFICATE_BYTES = 100_000
TLS_FLAGS = ("tls_ca_file", "tls_cert", "tls_key")


def add_tls(parser: Parser) -> None:
    """Add the flags of the connection."""
    group = parser.add_argument_group("connection to the cluster")
    few_need(group)
    group.add_argument(
        "--tls-ca-file", metavar="FILE", help="certificate authority of the cluster, PEM (default: no TLS)"
    )
    group.add_argument("--tls-cert", metavar="FILE", help="certificate of this machine, PEM (default: no TLS)")
    group.add_argument("--tls-key", metavar="FILE", help="private key of --tls-cert, PEM (default: no TLS)")
    group.add_argument(
        "--insecure",
        action="store_true",
        help="connect to other machines without TLS, so that anyone on that network can run code on them "
        "(default: without TLS on this machine only)",
    )


def check_exposure(address: str, arguments: argparse.Namespace) -> None:
    """Raise UsageError for an invalid address, for incomplete or missing TLS files, and for another machine
    without TLS."""
    scheme, host = _parts(address)
    given = {flag: getattr(arguments, flag) for flag in TLS_FLAGS}
    if scheme == "tls":
        absent = [f"--{flag.replace('_', '-')}" for flag, path in given.items() if path is None]
        if absent:
            raise UsageError(f"{address}: TLS needs {', '.join(absent)}")
        for path in given.values():
            if IN_MEMORY not in path and not Path(path).is_file():
                raise UsageError(f"{address}: no file {path}: check the --tls flags")
        return
    if any(given.values()):
        raise UsageError(f"{address} does not use TLS, so certificates have no effect: write tls://")
    if not is_loopback(address) and not arguments.insecure:
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
    raise UsageError(f"invalid scheduler address {address!r}: expected tcp://HOST:PORT or tls://HOST:PORT")
