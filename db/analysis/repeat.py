"""The command that measures a stored run's points again, from what is stored of it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarking.core.axes import AXES
from benchmarking.errors import UnsupportedError
from benchmarking.records import Point

COMMAND = "run_hardware_benchmark"
COLUMNS = (
    *("run_id", "model_id", "model_source", "task", "weights", "device", "runtime", "runtime_mode", "precision"),
    *("num_threads", "cpu_list", "settings", "tags", "description", "origin_format", "requested_device"),
)
"""Of benchmark_runs: what a repetition is made from."""
CONFIRMS = "confirms"
"""The tag of a run that was made to confirm another: its value is that run's id."""
SETTINGS = {
    "profile": "--profile",
    "launches": "--launches",
    "fixed_iterations": "--iterations",
    "fixed_warmup_iterations": "--warmup-iterations",
}
NOT_BY_COMMAND = {
    "module": "a torch module was handed over in Python: call benchmark_model again",
    "bench": "it is a benchmark of one's own: run its file again",
    "import": "another tool measured it: run that tool again",
}
"""Source of the model -> why no command of ours measures it again."""


def why_not_repeat(run: Mapping[str, Any]) -> str | None:
    """Why the run (a row of benchmark_runs) cannot be measured again by a command, None where it can."""
    if run["origin_format"] is not None:
        return NOT_BY_COMMAND["import"]
    return NOT_BY_COMMAND.get(run["model_source"])


def repeat_command(run: Mapping[str, Any], points: Sequence[Point]) -> tuple[str, ...]:
    """The arguments that measure the points again, on the grid that spans them: the command's name first, and without
    what says where results go.

    `run` has the COLUMNS of benchmark_runs. What ran is asked for, not what was asked for then: a device that "auto"
    picked, the weights that "auto" found. Raises UnsupportedError for a run that no command measures.
    """
    if (why_not := why_not_repeat(run)) is not None:
        raise UnsupportedError(f"run {run['run_id']} cannot be measured again by a command: {why_not}")
    settings = json.loads(run["settings"])
    return (
        *(COMMAND, "--model-id", run["model_id"], "--device", run["device"], "--runtime", run["runtime"]),
        *("--precision", run["precision"], "--task", run["task"], "--weights", run["weights"]),
        *_given("--num-threads", run["num_threads"]),
        *_given("--cpu-list", run["cpu_list"]),
        *_mode(json.loads(run["runtime_mode"])),
        *_grid(points),
        *(word for name, flag in SETTINGS.items() for word in _given(flag, settings.get(name))),
    )


def confirming(run: Mapping[str, Any]) -> tuple[str, ...]:
    """The arguments that mark a repetition of the run: its own tags, and which run it is to confirm."""
    tags = {**run["tags"], CONFIRMS: run["run_id"]}
    return tuple(word for name, value in tags.items() for word in ("--tag", f"{name}={value}"))


def _given(flag: str, value: object) -> tuple[str, ...]:
    return () if value is None else (flag, str(value))


def _mode(mode: Mapping[str, object]) -> tuple[str, ...]:
    """The runtime's settings: each is an option with a flag of its name."""
    return tuple(word for name, value in mode.items() for word in (f"--{name.replace('_', '-')}", str(value)))


def _grid(points: Sequence[Point]) -> tuple[str, ...]:
    words: list[str] = []
    for name, axis in AXES.items():
        values = sorted({value for point in points if (value := point.value(name)) is not None})
        # The implied value is what is measured without the flag, which most runtimes refuse.
        if values and values != [axis.implied]:
            words += [axis.flag, ",".join(map("{:.15g}".format, values))]
    return tuple(words)
