"""The pages: CPU time to import them over bare Python, and the answers of a server on a warehouse of many results.

    python tests/perf/pages.py --results 10000 1000000
    python tests/perf/pages.py --db-path FILE       a warehouse that is there already, as --results makes one

Prints the median and the 95th percentile of each page in seconds, as a browser waits for it, and what it weighs with
its scripts and styles, compressed; alone and with 20 viewers at once; and the memory of the server. A result has 100
samples, so a million results have 10^8.
"""

from __future__ import annotations

import argparse
import gzip
import html
import http.client
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from warehouse_data import fill

ROUNDS = 9
VIEWERS = 20
IMPORTED = "import visualize.pages.dashboard, visualize.pages.server, visualize.pages.snapshot, uvicorn"
LOADED = re.compile(r'(?:src|href)="(/static/[^"]+)"')
PAGES = {
    "overview": "/",
    "results": "/results",
    "results, a filter": "/results?model=model-0&runtime=eager",
    "results, every run": "/results?all=1&model=model-0",
    "compare a year": "/compare?a=runtime%3Deager,model%3Dmodel-0&b=runtime%3Donnxruntime,model%3Dmodel-0",
    "trends": "/trends",
    "recommend": "/recommend?model=model-0",
    "hardware": "/hardware?model=model-0",
}


def cpu_s(code: str) -> float:
    """CPU time of a new Python that runs the code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def import_cost_s() -> float:
    """Median over rounds in turns."""
    rounds = [(cpu_s(IMPORTED), cpu_s("pass")) for _ in range(ROUNDS)]
    return statistics.median(imported - bare for imported, bare in rounds)


@contextmanager
def server(path: Path) -> Iterator[tuple[str, int]]:
    """A running server's address, and its process id."""
    command = [sys.executable, "-m", "visualize.pages.dashboard", "--db-path", str(path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield urlsplit(process.stdout.readline().strip()).netloc, process.pid
        finally:
            process.terminate()


def answer(place: str, path: str) -> bytes:
    """The body of an answer, compressed."""
    connection = http.client.HTTPConnection(place, timeout=600)
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
    found = connection.getresponse()
    body = found.read()
    connection.close()
    if found.status != 200:
        raise SystemExit(f"{path}: {found.status}")
    return body


def answer_s(place: str, path: str) -> float:
    """Time of one answer, in seconds."""
    start_s = time.perf_counter()
    answer(place, path)
    return time.perf_counter() - start_s


def weight_bytes(place: str, path: str) -> int:
    """Of a page with everything that it loads, compressed."""
    page = answer(place, path)
    files = {html.unescape(name) for name in LOADED.findall(gzip.decompress(page).decode())}
    return len(page) + sum(len(answer(place, name)) for name in files)


def shown(name: str, values: Sequence[float], weight: int | None = None) -> str:
    """A line of the table."""
    ordered = sorted(values)
    high = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    line = f"{name:<24} {statistics.median(values):8.3f} {high:8.3f}"
    return line if weight is None else f"{line} {weight / 1000:8.0f}"


def measure(path: Path) -> None:
    """Print the answers of a server on the warehouse."""
    start_s = time.perf_counter()
    with server(path) as (place, pid):
        print(f"{'start, with the copy':<24} {time.perf_counter() - start_s:8.3f}")
        print(f"{'first view':<24} {answer_s(place, '/'):8.3f}")
        print(f"{'':<24} {'median':>8} {'p95':>8} {'kB':>8}")
        for name, address in PAGES.items():
            waits = [answer_s(place, address) for _ in range(ROUNDS)]
            print(shown(name, waits, weight_bytes(place, address)), flush=True)
        with ThreadPoolExecutor(VIEWERS) as viewers:
            waits = list(viewers.map(lambda number: answer_s(place, [*PAGES.values()][number % 4]), range(3 * VIEWERS)))
        print(shown(f"{VIEWERS} viewers at once", waits))
        print(f"{'memory of the server':<24} {psutil.Process(pid).memory_info().rss / 1e6:8.0f} MB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, nargs="+", default=[10_000])
    parser.add_argument("--db-path", type=Path)
    arguments = parser.parse_args()
    print(f"import, CPU s over bare  {import_cost_s():8.3f}", flush=True)
    if arguments.db_path is not None:
        measure(arguments.db_path)
        return 0
    for results in arguments.results:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pages.duckdb"
            fill(path, results)
            print(f"{results:,} results, {path.stat().st_size / 1e6:.0f} MB", flush=True)
            measure(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
