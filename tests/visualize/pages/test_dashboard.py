"""The dashboard command: errors before it listens."""

from __future__ import annotations

import socket

import pytest

from benchmarking.core.argument_types import is_loopback
from visualize.pages.dashboard import main


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--host", "0.0.0.0"], 2, "lets other machines read everything in the database: add --token"),
        (["--token", "short"], 2, "a token has at least 16 characters"),
        (["--port", "70000"], 2, "takes a whole number from 0 to 65535"),
        (["--host-name", "ev\x1b[31mil"], 2, r"--host-name: takes a host name or an address: got 'ev\x1b[31mil'"),
        (["--host", "127.0.0.1\n"], 2, r"--host: takes a host name or an address: got '127.0.0.1\n'"),
        (["--db-path", "none.duckdb", "--port", "0"], 1, "no database at none.duckdb: create it with"),
        (["--host", "192.0.2.1", "--token"], 1, "cannot listen on 192.0.2.1"),
    ],
)
def test_a_startup_error_is_one_line(arguments, code, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == code
    printed = capsys.readouterr()
    assert expected in printed.err
    assert printed.err.count("\n") == 1


def test_a_port_in_use_is_named(database, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--db-path", str(database), "--port", str(port)]) == 1
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use: choose another --port" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_only_loopback_addresses_are_private_to_this_machine(host, expected):
    assert is_loopback(host) is expected
