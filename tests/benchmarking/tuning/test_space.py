"""The space of a search comes from the plugins' declarations, and a YAML file restricts or extends it."""

from __future__ import annotations

import pytest

from benchmarking.core import plugins
from benchmarking.core.device_contracts import Placement
from benchmarking.core.errors import UsageError
from benchmarking.devices.support import binding
from benchmarking.measure.context import settings
from benchmarking.sweep.plan.plan import Machine
from benchmarking.sweep.plan.request import Request, workload_of
from benchmarking.tuning.space import MOST_DEPARTURES, Choices, read_choices, space


def space_of(choices, model="tiny-bert", device="cpu", **more):
    request = Request(model_id=model, device=device, weights="random", settings=settings("quick"))
    return space(request, choices, "session", workload_of(request), Machine(), **more)


def names(found):
    return [candidate.name for candidate in found.candidates]


def read(tmp_path, text):
    path = tmp_path / "space.yaml"
    path.write_text(text)
    return read_choices(path)


def test_every_value_that_is_worth_trying_is_one_that_the_option_has():
    tried = [
        (runtime.name, option) for runtime in plugins.runtimes() for option in runtime.declared_options if option.tried
    ]
    assert tried
    for name, option in tried:
        assert set(option.tried) <= set(option.values), (name, option.name)


def test_the_cells_with_default_settings_come_first_and_none_departs_in_more_than_a_few():
    found = space_of(Choices(runtimes=("onnxruntime",)))
    departures = [candidate.departures for candidate in found.candidates]
    assert names(found)[0] == "onnxruntime float32"
    assert departures == sorted(departures)
    assert max(departures) <= MOST_DEPARTURES
    assert "onnxruntime float32, fusion transformers" in names(found)


def test_what_no_precision_accepts_is_left_out_once_with_the_reason():
    found = space_of(Choices(runtimes=("onnxruntime",), precisions=("float32", "int8")))
    assert found.left_out["onnxruntime cuda_graph on"].endswith("CPUExecutionProvider cannot capture CUDA graphs")
    assert not any("fusion" in name for name in found.left_out)  # int8 has none, float32 does
    assert not any("int8" in name and "fusion" in name for name in names(found))


def test_a_runtime_that_cannot_run_here_is_left_out_by_one_reason():
    found = space_of(Choices())
    assert found.left_out["tensorrt"].startswith("runtime tensorrt runs on NVIDIA GPUs")
    assert "browsers" in found.left_out["wasm"]
    assert not any(candidate.plan.cell.runtime == "tensorrt" for candidate in found.candidates)


def test_a_file_restricts_and_extends_and_excludes(tmp_path):
    choices = read(
        tmp_path,
        "runtimes: [onnxruntime]\nprecisions: [float32, int8]\nnum_threads: [1, 2]\nbatch_sizes: [1, 3]\n"
        "fusion: [none, transformers]\nexclude:\n  - {precision: int8, num_threads: 2}\n",
    )
    found = space_of(choices)
    assert set(names(found)) == {
        "onnxruntime float32, 1 thread, fusion none",
        "onnxruntime float32, 1 thread, fusion transformers",
        "onnxruntime float32, 2 threads, fusion none",
        "onnxruntime float32, 2 threads, fusion transformers",
        "onnxruntime int8, 1 thread, fusion none",
    }
    assert {point.batch_size for candidate in found.candidates for point in candidate.plan.runnable} == {1, 3}
    assert found.left_out["onnxruntime int8, 2 threads, fusion none"] == "excluded by --space"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runtime: [eager]\n", ":1: unknown key 'runtime': did you mean runtimes"),
        ("runtimes: [eagre]\n", ":1: unknown runtime 'eagre': did you mean eager"),
        ("precisions: [int9]\n", ":1: precisions unknown precision 'int9'"),
        ("batch_sizes: [0]\n", ":1: batch_sizes takes whole numbers from 1: got 0"),
        ("batch_sizes: []\n", ":1: batch_sizes is an empty list"),
        ("num_threads: [1, 1]\n", ":1: num_threads contains 1 twice"),
        ("exclude: [eager]\n", ":1: exclude takes keys and values"),
        ("exclude:\n  - {runtimes: eager}\n", ":2: unknown key 'runtimes'"),
        ("exclude:\n  - {}\n", ":2: exclude takes mappings such as"),
        ("- eager\n", ":1: a space takes keys and values"),
        ("runtimes: [eager\n", "not YAML"),
        ("", "the file is empty"),
    ],
)
def test_bad_files_are_refused_with_their_line(tmp_path, text, message):
    with pytest.raises(UsageError) as refused:
        read(tmp_path, text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_flags_go_before_the_file():
    assert Choices(runtimes=("eager",)).or_of(Choices(runtimes=("openvino",), batch_sizes=(4,))) == Choices(
        runtimes=("eager",), batch_sizes=(4,)
    )


def test_processors_are_used_in_the_ways_that_are_worth_trying(tmp_path, monkeypatch):
    topology = {0: (0, 0), 1: (0, 1), 2: (0, 2), 3: (0, 3), 4: (0, 0), 5: (0, 1), 6: (0, 2), 7: (0, 3)}
    for cpu, (package, core) in topology.items():
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n")
        (folder / "core_id").write_text(f"{core}\n")
    for node, cpus in ((0, "0-1,4-5"), (1, "2-3,6-7")):
        folder = tmp_path / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")
    monkeypatch.setattr(binding, "allowed_cpus", lambda: list(topology))
    assert binding.placements(tmp_path) == (
        Placement(),
        Placement(num_threads=2),
        Placement(num_threads=8),
        Placement(cpu_list="0-1,4-5"),
    )
    monkeypatch.setattr(binding, "allowed_cpus", lambda: [0])
    assert binding.placements(tmp_path) == (Placement(),)


def test_a_space_without_a_configuration_says_why():
    with pytest.raises(UsageError, match="tensorrt runs on NVIDIA GPUs"):
        space_of(Choices(runtimes=("tensorrt",)))
    assert "tensorrt" in plugins.names(plugins.RUNTIMES)
