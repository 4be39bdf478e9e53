"""Hostile and slow viewers of the dashboard: python -m tests.attack.viewers --connections 64

Prints the median time of a page while nothing happens, during endless SQL, with half-open connections and with readers
that never read; and whether the server still answers after all of them have gone.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

from db.warehouse import Warehouse
from tests.helpers.records import make_run

ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"
HOST = "127.0.0.1"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--pages", type=int, default=15, help="pages whose time is taken in each state")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "viewers.duckdb"
        with Warehouse.open(database) as warehouse:
            for number in range(10):
                warehouse.ingest(make_run(started_at=f"2026-01-{number + 1:02}T00:00:00Z"))
        command = [sys.executable, "-m", "visualize.pages.dashboard", "--db-path", str(database), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
            try:
                return _try(server, given.connections, given.pages)
            finally:
                server.terminate()


def _try(server: subprocess.Popen[str], count: int, pages: int) -> int:
    os.set_blocking(server.stdout.fileno(), True)
    port = int(re.search(r":(\d+)", server.stdout.readline())[1])
    median_s(port, 3)
    idle_s = median_s(port, pages)
    print(f"idle: {1000 * idle_s:.0f} ms a page", flush=True)
    slowest = 0.0
    sql = f"GET /console?sql={quote(ENDLESS)} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode()
    page = f"GET /results HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode()
    kinds = {
        "endless SQL of 12 viewers": (12, sql),
        f"{count} half-open connections without a request": (count, b""),
        f"{count} connections with half a header": (count, b"GET / HTTP/1.1\r\nHost: x"),
        f"{count} requests whose answer nobody reads": (count, page),
    }
    for name, (number, sent) in kinds.items():
        with ExitStack() as stack:
            for _ in range(number):
                opened = stack.enter_context(socket.create_connection((HOST, port), timeout=10))
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
                opened.sendall(sent)
            time.sleep(2.0 if sent != page else 15.0)  # until the answers are computed
            taken_s = median_s(port, pages)
        slowest = max(slowest, taken_s / idle_s)
        print(f"{name}: {1000 * taken_s:.0f} ms a page, {taken_s / idle_s:.2f} times idle", flush=True)
        time.sleep(1.0)
    after_s = median_s(port, pages)
    state = "runs" if server.poll() is None else "ended"
    print(f"after all of them: {1000 * after_s:.0f} ms a page; the server {state}")
    return 0 if slowest < 2 else 1


def median_s(port: int, pages: int) -> float:
    taken = []
    for _ in range(pages):
        began_s = time.perf_counter()
        connection = http.client.HTTPConnection(HOST, port, timeout=60)
        connection.request("GET", "/results")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        connection.close()
        taken.append(time.perf_counter() - began_s)
    return statistics.median(taken)


if __name__ == "__main__":
    sys.exit(main())
