"""Repeating a stored run: the request and command line from its stored fields."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarking.commands.run import _parser
from benchmarking.core.axes import AXES
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.provenance import MeasuredRun
from benchmarking.core.records import Point
from benchmarking.sweep.plan.flags import command_line, repeated_command, repeated_request
from benchmarking.sweep.plan.request import requests_of

RUN = MeasuredRun(
    run_id="01a1fe5c-2c09-7b07-ba49-9534a20ce7b6",
    model_id="openai-community/gpt2",
    model_source="hub",
    task="text-generation",
    weights="pretrained",
    device="cuda:1",
    runtime="compiled",
    runtime_mode={"attention": "sdpa", "compile_mode": "default", "dynamic": "auto", "cache": "static"},
    precision="bfloat16",
    num_threads=4,
    cpu_list="0-3",
    settings={"profile": "quick", "launches": 5, "fixed_iterations": 20, "fixed_warmup_iterations": None},
    tags={"suite": "nightly"},
    origin_format=None,
    hashed_keys={},
    points=(),
    has_skipped_points=False,
)
POINTS = [
    Point(batch_size=4, sequence_length=128, new_tokens=16),
    Point(batch_size=1, sequence_length=32, new_tokens=16),
]


BY_FLAG = {axis.flag: axis for axis in AXES.values()}


def everywhere(value):
    """A point with a value on every axis."""
    fields = {name: value for name, axis in AXES.items() if axis.is_field}
    return Point(**fields, axes={name: value for name, axis in AXES.items() if not axis.is_field})


def repeat_command(run, points):
    return command_line(repeated_request(run, points))


def parsed(command):
    return _parser().parse_args(command[1:])


def test_the_command_of_a_run_requests_the_same_points_again():
    command = repeat_command(RUN, POINTS)
    arguments = parsed(command)

    assert command[0] == "run_hardware_benchmark"
    assert (arguments.model_id, arguments.device, arguments.runtimes) == (
        "openai-community/gpt2",
        "cuda:1",
        ("compiled",),
    )
    assert (arguments.precisions, arguments.task, arguments.weights) == (("bfloat16",), "text-generation", "pretrained")
    assert (arguments.num_threads, arguments.cpu_list) == ((4,), "0-3")
    assert (arguments.attention, arguments.compile_mode, arguments.dynamic) == ("sdpa", "default", "auto")
    assert arguments.cache == "static"
    assert (arguments.batch_sizes, arguments.sequence_lengths, arguments.new_tokens) == ((1, 4), (32, 128), (16,))
    assert (arguments.profile, arguments.launches, arguments.iterations) == ("quick", 5, 20)
    assert arguments.warmup_iterations is None
    assert arguments.concurrency is None


def test_further_axes_and_requests_in_flight_are_requested():
    points = [Point(batch_size=1, concurrency=c, axes={"documents": 1_000_000, "audio_seconds": 2.5}) for c in (1, 4)]
    arguments = parsed(repeat_command(replace(RUN, runtime_mode={}, num_threads=None, cpu_list=None), points))

    assert arguments.concurrency == (1, 4)
    assert arguments.documents == (1_000_000,)
    assert arguments.audio_seconds == (2.5,)
    assert arguments.sequence_lengths is None
    assert arguments.num_threads is None


def test_every_axis_is_requested_by_its_flag():
    flags = {word for word in repeat_command(RUN, [everywhere(2), everywhere(3)]) if word in BY_FLAG}
    assert flags == BY_FLAG.keys()


def test_concurrency_1_is_a_flag_only_with_other_values():
    assert "--concurrency" not in repeat_command(RUN, [everywhere(1)])
    assert parsed(repeat_command(RUN, [everywhere(1), everywhere(2)])).concurrency == (1, 2)


def test_the_request_and_its_command_line_are_equivalent():
    request = repeated_request(RUN, POINTS, {"suite": "nightly", "confirms": RUN.run_id})
    arguments = parsed(request.command)

    assert request.tags == {"suite": "nightly", "confirms": "01a1fe5c-2c09-7b07-ba49-9534a20ce7b6"}
    (requested,) = requests_of(arguments, request.model_id, request.command)
    # None is False for a command without that flag.
    assert replace(requested, tags=request.tags) == replace(request, runtime=None, skip_unsupported=False)


def test_the_inputs_of_a_graph_file_are_requested_again():
    graph = replace(
        RUN, model_source="file", dims={"frames": 48, "rows": "batch"}, input_values={"sr": 16000, "x": 0.1}
    )
    request = repeated_request(graph, POINTS)
    arguments = parsed(request.command)
    assert (request.dims, request.input_values) == (graph.dims, graph.input_values)
    assert (dict(arguments.dim), dict(arguments.input)) == (graph.dims, graph.input_values)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"model_source": "file", "has_inputs_file": True}, "its inputs were read from a file: give the command with"),
        ({"model_source": "module"}, "it is a torch module of a script or was passed"),
        ({"model_source": "bench"}, "a user-written benchmark"),
        ({"model_source": "import", "origin_format": "llama-bench"}, "another tool measured it"),
    ],
)
def test_imported_runs_cannot_be_repeated(fields, why):
    run = replace(RUN, **fields)
    assert why in run.why_not_repeatable
    with pytest.raises(UnsupportedError, match=why):
        repeated_request(run, POINTS)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"runtime": "kernelized", "runtime_mode": {"kernel_repo": "/theirs"}}, "it runs the code in '/theirs'"),
        (
            {"runtime": "bench", "runtime_mode": {}},
            "it runs the code in '': if you trust it, write the command yourself, with --benches",
        ),
        ({"runtime_mode": {"output_dir": "/home"}}, "runtime compiled has no option 'output_dir'"),
        ({"runtime_mode": {"turn": "/theirs"}}, "runtime compiled has no option 'turn'"),
        ({"runtime": "../evil"}, "unknown runtime '../evil'"),
        ({"settings": {"profile": "quick", "launches": "1 --save"}}, "its launches is not a number"),
        ({"dims": ["--save"]}, "its dims or input_values are not values by name"),
    ],
)
def test_code_named_in_a_stored_run_does_not_run(fields, why):
    """The file of a stored run is untrusted."""
    with pytest.raises(UnsupportedError, match=why):
        repeated_command([replace(RUN, points=tuple(POINTS), **fields)])


def test_kernels_of_the_hub_are_requested_again():
    run = replace(RUN, runtime="kernelized", runtime_mode={"attention": "sdpa", "kernel_repo": "kernels-community/a@1"})
    assert parsed(repeat_command(run, POINTS)).kernel_repo == "kernels-community/a@1"


def test_cold_caches_are_requested_again():
    run = replace(RUN, runtime_mode={**RUN.runtime_mode, "cold_cache": True})
    request = repeated_request(run, POINTS)
    assert request.settings.cold_cache
    assert "cold_cache" not in request.options
    assert parsed(request.command).cold_cache
    assert not parsed(repeat_command(RUN, POINTS)).cold_cache


def test_runs_that_differ_only_in_runtime_are_one_command():
    run = replace(RUN, points=tuple(POINTS), has_skipped_points=True)
    eager = replace(run, runtime="eager", runtime_mode={"attention": "sdpa", "cache": "static"})
    arguments = parsed(repeated_command([run, eager, run]))

    assert arguments.runtimes == ("compiled", "eager")
    assert (arguments.attention, arguments.compile_mode, arguments.cache) == ("sdpa", "default", "static")
    assert (arguments.batch_sizes, arguments.sequence_lengths) == ((1, 4), (32, 128))
    assert arguments.skip_unsupported
    assert dict(arguments.tag) == {"suite": "nightly"}


@pytest.mark.parametrize(
    "fields",
    [
        {"model_id": "tiny-gpt2"},
        {"tags": {}},
        {"points": (Point(batch_size=1),)},
        {"runtime": "eager", "runtime_mode": {"attention": "eager"}},
    ],
)
def test_runs_that_differ_otherwise_are_errors(fields):
    run = replace(RUN, points=tuple(POINTS))
    with pytest.raises(UsageError, match="these runs need 2 different commands: choose one run"):
        repeated_command([run, replace(run, **fields)])
