"""Runs commands in alternating slices of a second, so that machine drift affects all alike.

Processes that run one after the other differ by 20 % on a noisy machine, whatever they measure. Here all are started
together and all but one are stopped (SIGSTOP, the children too), turn by turn, until each has come to its end. A call
that a stop falls into is an outlier: take medians of calls much shorter than a slice.
"""

from __future__ import annotations

import itertools
import math
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import IO

import psutil

SLICE_S = 0.5


def outputs_in_turns(commands: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What each command prints, by name. Ends the program with a command's errors when it fails."""
    with ExitStack() as stack:
        said = {name: stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for name in commands}
        errors = {name: stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for name in commands}
        running = {
            name: psutil.Popen(list(command), stdout=said[name], stderr=errors[name])
            for name, command in commands.items()
        }
        try:
            _take_turns(list(running.values()))
        finally:
            for process in running.values():
                _kill(process)
        for name, process in running.items():
            if process.returncode != 0:
                raise SystemExit(f"{name} failed:\n{_text(said[name])[-500:]}{_text(errors[name])[-500:]}")
        return {name: _text(file) for name, file in said.items()}


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _kill(process: psutil.Popen) -> None:
    if process.poll() is None:
        for one in (*process.children(recursive=True), process):
            one.kill()


def _take_turns(processes: Sequence[psutil.Popen]) -> None:
    for process in processes:
        _signal(process, runs=False)
    for turn in itertools.count():
        left = [process for process in processes if process.poll() is None]
        if not left:
            return
        process = left[turn % len(left)]
        _signal(process, runs=True)
        time.sleep(SLICE_S)
        _signal(process, runs=False)


def _signal(process: psutil.Popen, *, runs: bool) -> None:
    """Stop the process and all below it, or let them go on; the parent first, which could else start another."""
    if process.poll() is not None:
        return
    process.resume() if runs else process.suspend()
    for child in process.children(recursive=True):
        try:
            child.resume() if runs else child.suspend()
        except psutil.NoSuchProcess:
            continue


def agreement(ratios: Sequence[float]) -> str:
    """The median ratio, and the interval that holds the rounds' mean with 95 % (Student's t on logarithms)."""
    from scipy.stats import t

    logs = [math.log(ratio) for ratio in ratios]
    reach = float(t.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = (math.exp(statistics.fmean(logs) + sign * reach) for sign in (-1, 1))
    return f"median {statistics.median(ratios):.4f}, 95 % of the mean {low:.4f} to {high:.4f}, {len(ratios)} rounds"
