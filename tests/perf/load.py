"""Limits of the load generator on this machine: `python -m tests.perf.load`, on an idle machine.

It prints requests per second of short streams, a thousand streams at once, and the memory of both. It runs on the first
of its processors, and the servers, which are children of their own, on the others.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from subprocess import Popen

import psutil

from benchmarking.core.child_process import module_command, start
from benchmarking.core.load_doubts import lateness
from benchmarking.core.sample_statistics import quantile
from benchmarking.load.connections import Target
from benchmarking.load.generator import Level, capacity_per_s, run_level
from benchmarking.load.results import Series
from benchmarking.load.traffic import Lengths, Traffic

SHORT = Traffic(arrivals="poisson", lengths_in=Lengths("8"), lengths_out=Lengths("4"))


def memory_mb() -> float:
    """Most resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


async def many_streams(url: str, streams: int) -> None:
    """So many streams of 20 chunks at once."""
    started = time.perf_counter()
    traffic = Traffic(lengths_in=Lengths("8"), lengths_out=Lengths("20"))
    level = Level(concurrency=streams, number=streams)
    found = await run_level(Target(url=url, model="m"), traffic, level, limits={})
    failed = sum(one is not None for one in found.error)
    in_flight = sum(at <= min(one for one in found.end_ms if one is not None) for at in found.intended_ms)
    print(
        f"{streams} streams: {failed} failed, {in_flight} in flight before the first ended, "
        f"{time.perf_counter() - started:.2f} s, {memory_mb():.0f} MB"
    )


async def at_rate(url: str, rate: float) -> None:
    """An open loop for 5 s."""
    level = Level(rate=rate, duration_s=5.0)
    before = time.process_time()
    found = await run_level(Target(url=url, model="m"), SHORT, level, limits={})
    used = (time.process_time() - before) / len(found) * 1e3
    failed = sum(one is not None for one in found.error)
    late, sent = lateness(found), [one for one in found.sent_ms if one is not None]
    print(
        f"{rate:g} requests/s: sent {len(sent) / max(sent) * 1e3:.0f}/s, {failed} failed, "
        f"lateness p95 {quantile(late, 0.95):.2f} ms, latency p50 {quantile(Series.of(found).latency, 0.5):.2f} ms, "
        f"{used:.2f} ms of a processor a request, {memory_mb():.0f} MB"
    )


def served(module: str, cpus: list[int]) -> tuple[str, Popen[str]]:
    """The address of a server in a child process, and the child."""
    child = start(module_command(module), stderr=None)
    if cpus:
        psutil.Process(child.pid).cpu_affinity(cpus)
    assert child.stdout is not None
    return child.stdout.readline().strip(), child


def main() -> None:
    """Print the figures."""
    own, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {own})
    for http2, words in ((False, "HTTP/1.1"), (True, "HTTP/2")):
        found = asyncio.run(capacity_per_s(5.0, SHORT, is_open=False, http2=http2, cpus=others))
        print(f"{words}, closed loop, 32 in flight: {found:.0f} requests/s of 4 chunks")
    url, child = served("benchmarking.load.generator", others)
    for rate in (250, 500, 1000, 2000):
        asyncio.run(at_rate(url, rate))
    child.kill()
    url, child = served("tests.helpers.null_server", others)
    asyncio.run(many_streams(url, 1000))
    child.kill()


if __name__ == "__main__":
    main()
