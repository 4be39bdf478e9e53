"""Ends this process's connections to a PostgreSQL server that no longer answers.

The kernel of a server whose processes are stopped still acknowledges what is sent, so neither keepalives nor
tcp_user_timeout end a connection to it, and a call into DuckDB that waits for it cannot be interrupted. So a thread
asks the server beside the calls whether it answers at all, and shuts the connections down when it does not: the calls
then fail as they do after a cut network. So does a single connection that got no answer for long, although the server
answers others, where the kernel tells: a pooler or load balancer in between may have lost it.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

ASK_EVERY_S = 5.0
UNANSWERED_S = 60.0
"""So long no statement on a catalog takes, as none waits for a lock for longer than a moment."""
TCP_INFO_AT, TCP_INFO_BYTES = 44, 12
"""Where Linux's `tcp_info` has the times since data were sent, an acknowledgement was, and data came, in ms."""
SSL_REQUEST = struct.pack("!ii", 8, 80877103)
"""A client's first message, which every server answers with one byte before it knows the client (PostgreSQL's
documentation, "Message Formats"). A connection that ends after it is not logged."""
OWN_FILES = "/dev/fd"
"""The open files of this process, on Linux and macOS. Elsewhere nothing is watched."""
DEFAULT_PORT = "5432"
SOCKET_FILE = ".s.PGSQL."
"""What stands before the port in the name of a server's socket in the file system."""

Peer = tuple[socket.AddressFamily, object]


class ServerWatch:
    """A thread that watches the servers at a connection string's ports, one for each host, until it is closed. A port
    that only a service file names is not watched."""

    def __init__(self, connection_string: str, patience_s: float) -> None:
        """A server that has answered nothing for `patience_s` loses its connections."""
        given = re.search(r"\bport\s*=\s*'?([\d,]+)", connection_string)
        ports = given[1] if given else os.environ.get("PGPORT", "")
        self._ports = frozenset(re.findall(r"\d+", ports) or [DEFAULT_PORT])
        self._patience_s = patience_s
        self._over = threading.Event()
        if os.path.isdir(OWN_FILES):
            threading.Thread(target=self._watch, name="server watch", daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        heard_s: dict[Peer, float] = {}
        while not self._over.wait(ASK_EVERY_S):
            for connection, _ in self._connections():
                if _unanswered_s(connection) >= UNANSWERED_S and not self._over.is_set():
                    with suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
            for peer in {peer for _, peer in self._connections()}:
                heard_s.setdefault(peer, time.monotonic())
                if _answers(peer):
                    heard_s[peer] = time.monotonic()
                elif time.monotonic() - heard_s[peer] >= self._patience_s and not self._over.is_set():
                    for connection, other in self._connections():
                        if other == peer:
                            with suppress(OSError):  # the server was faster
                                connection.shutdown(socket.SHUT_RDWR)

    def _connections(self) -> Iterator[tuple[socket.socket, Peer]]:
        """This process's connections to the watched ports, each with its other end. They are duplicates, since DuckDB
        may close its own at any moment."""
        for number in os.listdir(OWN_FILES):
            with suppress(OSError):  # closed meanwhile, or not connected
                if not stat.S_ISSOCK(os.fstat(int(number)).st_mode):
                    continue
                with socket.socket(fileno=os.dup(int(number))) as duplicate:
                    address = duplicate.getpeername()
                    port = address[1] if isinstance(address, tuple) else os.fsdecode(address).rpartition(SOCKET_FILE)[2]
                    if str(port) in self._ports:
                        yield duplicate, (duplicate.family, address)


def _unanswered_s(connection: socket.socket) -> float:
    """How long what was sent last has had no answer; 0 if it has one, or if that is unknown: where both were within one
    tick of the kernel's clock, of up to 4 ms, nothing tells which was first, and a connection at rest must stay."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_AT + TCP_INFO_BYTES)
        sent_ms, _, received_ms = struct.unpack_from("=3I", info, TCP_INFO_AT)
    except (AttributeError, OSError, struct.error):  # another system, or a socket in the file system
        return 0.0
    return sent_ms / 1e3 if sent_ms < received_ms else 0.0


def _answers(peer: Peer) -> bool:
    """Whether the server answers, even by refusing or closing: only silence does not end the calls by itself."""
    family, address = peer
    with socket.socket(family, socket.SOCK_STREAM) as asking:
        asking.settimeout(ASK_EVERY_S)
        try:
            asking.connect(address)  # type: ignore[arg-type] # as getpeername returned it
            asking.sendall(SSL_REQUEST)
            asking.recv(1)
        except TimeoutError:
            return False
        except OSError:
            return True
    return True
