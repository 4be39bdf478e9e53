"""Prints what the live status of a sweep costs, and what watching it costs: `python -m tests.perf.live`.

- CPU time of a rewrite of the status (the supervisor's, between two calls), and its size
- with `--calls`: the median and p95 of calls on all processors while nobody and while `benchhouse top` watches, in
  turns. Run it on an idle machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarking import TimingResult
from benchmarking.core.live_status import FOLDER_VARIABLE
from benchmarking.core.provenance import uuid7
from benchmarking.measure.context import Live, settings
from benchmarking.sweep.plan.request import Request, plan_cell
from benchmarking.sweep.run.supervisor import Track
from benchmarking.sweep.show import progress
from benchmarking.sweep.show.progress import LiveStatus, Progress

REWRITES = 300
ROUNDS, ROUND_S = 5, 10.0


def rewrites(folder: Path) -> str:
    """CPU time of a rewrite while a point is measured."""
    request = Request(
        model_id="bert-base-uncased",
        device="cpu",
        weights="random",
        batch_sizes=(1, 2, 4, 8),
        sequence_lengths=(128, 512),
        settings=settings("standard"),
    )
    track = Track(plan_cell(request, uuid7()), folder)
    observer = Progress([track], quiet=True)
    observer.status = LiveStatus(observer)
    progress.REWRITE_S = 0.0
    news = Live(phase="measure", calls=40, elapsed_s=1.0, median_ms=12.3, low_ms=12.1, high_ms=12.5)
    spent = []
    for _ in range(REWRITES):
        begin = time.process_time()
        observer.live(track, 0, track.plan.points[0], news)
        spent.append(time.process_time() - begin)
    (file,) = Path(os.environ[FOLDER_VARIABLE]).glob("*.json")
    return f"a rewrite: {median(spent) * 1e3:.2f} ms of CPU, {file.stat().st_size / 1e3:.1f} kB, at most one a second"


def calls(seconds: float) -> TimingResult:
    """A product of matrices on all processors, again and again."""
    import torch

    a, times = torch.randn(768, 768), []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - begin)
    return TimingResult(times)


def disturbances() -> list[str]:
    """Calls with and without a watcher, alternating."""
    watchers = {"nobody": None, "benchhouse top": [sys.executable, "-m", "benchmarking", "top"]}
    found: dict[str, list[TimingResult]] = {name: [] for name in watchers}
    calls(2.0)
    for _ in range(ROUNDS):
        for name, command in watchers.items():
            process = command and subprocess.Popen(command, stdout=subprocess.DEVNULL)
            time.sleep(2.0)
            found[name].append(calls(ROUND_S))
            if process:
                process.terminate()
                process.wait()
    return [
        f"{name}: median {median(one.median_s for one in rounds) * 1e3:.3f} ms, "
        f"p95 {median(one.percentile_s(95) or 0.0 for one in rounds) * 1e3:.3f} ms"
        for name, rounds in found.items()
    ]


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER_VARIABLE] = f"{folder}/live"
        print(rewrites(Path(folder)))
        if "--calls" in sys.argv:
            print("\n".join(disturbances()))


if __name__ == "__main__":
    main()
