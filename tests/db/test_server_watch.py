"""A server that no longer answers loses this process's connections; one that answers keeps them."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from db import server_watch
from db.server_watch import SSL_REQUEST, ServerWatch

PATIENCE_S = 0.3


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(server_watch, "ASK_EVERY_S", 0.05)


@pytest.fixture
def silent():
    """A server whose kernel accepts connections that nobody reads."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def answering():
    """A server that answers the first message of each connection."""

    def serve(connection):
        with connection:
            while connection.recv(len(SSL_REQUEST)):
                connection.sendall(b"N")

    def accept():
        try:
            while True:
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
        except OSError:  # closed
            pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server
        server.shutdown(socket.SHUT_RDWR)


def watched(server, patience_s=PATIENCE_S):
    """A connection to a server, and a watch over its port."""
    port = server.getsockname()[1]
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    return connection, ServerWatch(f"host=127.0.0.1 port={port} dbname=lake", patience_s)


def test_a_call_that_waits_for_a_silent_server_ends(quick, silent):
    connection, watch = watched(silent)
    with connection:
        began_s = time.monotonic()
        assert connection.recv(1) == b""
        assert time.monotonic() - began_s >= PATIENCE_S
    watch.close()


def test_connections_to_a_server_that_answers_stay(monkeypatch, answering):
    monkeypatch.setattr(server_watch, "ASK_EVERY_S", 0.5)
    connection, watch = watched(answering, 2.0)
    with connection:
        time.sleep(4.0)  # by then a watch that hears no answer, after questions of 0.5 s each, has ended it
        connection.sendall(SSL_REQUEST)
        assert connection.recv(1) == b"N"
    watch.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the system does not tell")
def test_a_call_on_a_connection_that_alone_is_lost_ends(monkeypatch, quick, silent):
    """As through a load balancer after a failover. The server itself has patience left."""
    monkeypatch.setattr(server_watch, "UNANSWERED_S", PATIENCE_S)
    answered = socket.create_connection(silent.getsockname(), timeout=10)
    with silent.accept()[0] as peer, answered:
        answered.sendall(b"a question")
        peer.sendall(b"its answer")
        lost, watch = watched(silent, 60.0)
        with lost:
            time.sleep(0.05)  # some ticks of the kernel's clock
            lost.sendall(b"a question")
            assert lost.recv(1) == b""
        assert answered.recv(99) == b"its answer"
        peer.sendall(b"more")
        assert answered.recv(99) == b"more", "one that waits for nothing stays"
        watch.close()


def test_other_ports_are_left_alone(quick, silent):
    port = silent.getsockname()[1]
    watch = ServerWatch("host=127.0.0.1 dbname=lake", PATIENCE_S)
    connection = socket.create_connection(("127.0.0.1", port), timeout=4 * PATIENCE_S)
    with connection, pytest.raises(TimeoutError):
        connection.recv(1)
    watch.close()


def test_a_closed_watch_ends_nothing(quick, silent):
    connection, watch = watched(silent)
    watch.close()
    connection.settimeout(4 * PATIENCE_S)
    with connection, pytest.raises(TimeoutError):
        connection.recv(1)


def test_the_port_of_the_environment_is_watched(quick, silent, monkeypatch):
    port = silent.getsockname()[1]
    monkeypatch.setenv("PGPORT", f"1,{port}")  # of two hosts
    watch = ServerWatch("dbname=lake", PATIENCE_S)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        assert connection.recv(1) == b""
    watch.close()
