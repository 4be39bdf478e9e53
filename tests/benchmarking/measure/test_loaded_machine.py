"""A really busy machine: everything on one core, for the same load everywhere."""

import json
import subprocess
import sys

import pytest

HOG = "while True: pass"

WORKER = """
import json, os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import subprocess, time
from benchmarking.devices.cpu import CpuHandle
from benchmarking.measure.point import measure_point
from benchmarking.measure.context import Settings
from benchmarking.core.records import Point, Readings
from benchmarking.core.contracts import Operation

class Work(Operation):
    items_per_call = 1
    def run(self, mark): return sum(i * i for i in range(100_000))
    def problem(self, output): return None
    def count(self): return Readings()

hogs = [subprocess.Popen([sys.executable, "-c", sys.argv[1]]) for _ in range(int(sys.argv[2]))]
try:
    settings = Settings(fixed_iterations=80, fixed_warmup_iterations=10)
    result = measure_point(Work(), CpuHandle(), Point(batch_size=1), 0, settings)
finally:
    for hog in hogs:
        hog.kill()
print(json.dumps({doubt.kind: dict(doubt.evidence) for doubt in result.doubts}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="run-queue waits are Linux's")
def test_two_busy_programs_raise_a_noise_doubt():
    done = subprocess.run([sys.executable, "-c", WORKER, HOG, "2"], capture_output=True, text=True, check=True)
    doubts = json.loads(done.stdout)
    assert "run_queue_wait" in doubts
    assert doubts["run_queue_wait"]["run_queue_wait_share"] > 0.3  # two of three turns belong to the hogs
    assert doubts["run_queue_wait"]["busy_threads"] == 1
