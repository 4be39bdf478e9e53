"""Serves the warehouse as web pages on this machine, until Ctrl-C.

Pages read a copy of the database, so measurements never wait for them; new results appear at once. Notes and triage
entered on a page are stored in the database, unless --read-only is given.
Only this machine can open the pages. With --host ADDRESS other machines can too, and need a token.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script: put the repository's root on the path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.argument_types import is_loopback, names
from benchmarking.core.command_line import Parser, command, note
from benchmarking.core.errors import EXIT_OK, StorageError, UsageError
from benchmarking.core.settings import add_settings
from benchmarking.core.shared_settings import SHARED
from benchmarking.core.terminal import unguarded
from db.commands.arguments import command_parser

NAME = "benchhouse dashboard"
TOKEN_NAMED_BY = "BENCHHOUSE_DASHBOARD_TOKEN"  # noqa: S105 - the name of a variable
DEFAULT_PORT = 8050
LOOPBACK = "127.0.0.1"
LEAST_TOKEN = 16
"""Minimum characters of a token."""
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - only compared with the user's --host
EXAMPLES = """examples:
  benchhouse dashboard
  benchhouse dashboard --db-path results.duckdb --port 9000
  benchhouse dashboard --host 0.0.0.0 --token
"""
EXIT_CODES = """exit codes: 1 the database cannot be read, or the port is taken; 2 usage; 130 Ctrl-C"""


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    arguments = _parser().parse_args(argv)
    token = _token(arguments)

    import uvicorn

    from benchmarking.core.live_status import snapshot
    from visualize.pages.server import LOOPBACK_NAMES, Access, application
    from visualize.pages.snapshot import Snapshots

    own = () if is_loopback(arguments.host) else (socket.gethostname(), socket.getfqdn(), arguments.host)
    access = Access(
        names=frozenset(name.lower() for name in (*LOOPBACK_NAMES, *own, *arguments.host_name)),
        any_address=not is_loopback(arguments.host),
        token=token,
        is_read_only=arguments.read_only,
    )

    listening = _listening(arguments.host, arguments.port)
    snapshots = Snapshots(arguments.db_path)
    try:
        port = listening.getsockname()[1]
        # Unguarded: its token is a secret, which the user needs.
        host = arguments.host
        name = socket.gethostname() if host in EVERYWHERE else f"[{host}]" if ":" in host else host
        address = f"http://{name}:{port}/" + ("" if token is None else f"?token={token}")
        print(address, file=unguarded(sys.stdout), flush=True)
        note(f"{NAME}: {arguments.db_path}, until Ctrl-C")
        app: Any = application(snapshots, access, snapshot)
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", server_header=False)
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        snapshots.close()
        listening.close()
    return EXIT_OK


def _parser() -> Parser:
    parser = command_parser(NAME, __doc__, EXAMPLES, EXIT_CODES)
    add_settings(parser, SHARED, "db_path")
    server = parser.add_argument_group("server")
    server.add_argument(
        "--port", type=_port, default=DEFAULT_PORT, metavar="N", help="port, 0 for a free one (default: %(default)s)"
    )
    server.add_argument(
        "--host",
        type=_host_name,
        default=LOOPBACK,
        metavar="ADDRESS",
        help="address to listen on (default: %(default)s, this machine only)",
    )
    server.add_argument(
        "--host-name",
        type=lambda text: tuple(map(_host_name, names(text))),
        default=(),
        metavar="NAME,...",
        help="further host names of this machine that browsers may use (default: its own name)",
    )
    server.add_argument(
        "--token",
        nargs="?",
        const="",
        metavar="TEXT",
        help="secret required of viewers; without TEXT, a new one is generated and printed "
        f"(default: ${TOKEN_NAMED_BY}, or none for this machine)",
    )
    server.add_argument(
        "--read-only", action="store_true", help="disable notes and triage: pages never change the database"
    )
    return parser


def _host_name(text: str) -> str:
    """A host name or address, for argparse."""
    if not re.fullmatch(r"[\w.:%\[\]-]+", text):
        raise argparse.ArgumentTypeError(f"takes a host name or an address: got {text!r}")
    return text


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"takes a whole number from 0 to 65535: got {text!r}")
    return int(text)


def _token(arguments: argparse.Namespace) -> str | None:
    """The token, or None. Raises UsageError if it is required but missing."""
    given: str | None = arguments.token
    if given is None:
        given = os.environ.get(TOKEN_NAMED_BY) or None
    elif not given:
        given = secrets.token_urlsafe(24)
    if given is not None and len(given) < LEAST_TOKEN:
        raise UsageError(f"a token has at least {LEAST_TOKEN} characters: give --token alone for a generated one")
    if given is None and not is_loopback(arguments.host):
        raise UsageError(
            f"--host {arguments.host} lets other machines read everything in the database: add --token, "
            "or leave out --host"
        )
    return given


def _listening(host: str, port: int) -> socket.socket:
    """A listening socket. Raises StorageError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # on Windows the option would share the port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise StorageError(f"cannot listen on {host} port {port}: {error.strerror}: choose another --port") from error
    return listening


if __name__ == "__main__":
    sys.exit(main())
