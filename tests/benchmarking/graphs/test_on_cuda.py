"""Exported graphs in ONNX Runtime's real CUDA provider, over stand-ins for NVIDIA's libraries whose kernels compute
nothing: which provider takes which node, what crosses to the host, and what is captured and replayed."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest

from benchmarking.core.child_process import OWN_PYTHON, environment, run_program
from benchmarking.core.records import to_json
from benchmarking.graphs.ort_graphs import write_next_token
from benchmarking.runtimes.support.onnxruntime import ort_runtime
from tests.helpers.nvidia_stubs import RUNNING, build_stubs

CUDA_PROVIDER = ort_runtime.provider_library("cuda")
pytestmark = pytest.mark.skipif(
    CUDA_PROVIDER is None or sys.platform != "linux", reason="onnxruntime-gpu for Linux is not installed"
)
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"

RUN = """
import ctypes, json, sys
from collections import Counter
from pathlib import Path
import numpy as np
from benchmarking.core.records import Point, Workload, from_json
from benchmarking.devices import cuda
from benchmarking.graphs.bundle import read_bundle
from benchmarking.graphs.operations import operation_of
from benchmarking.runtimes.support.onnxruntime.ort_runtime import SessionSettings, session_facts
from benchmarking.runtimes.support.onnxruntime.ort_session import GraphSource, load_graphs, runner_of
request = json.loads(sys.argv[1])
bundle = read_bundle(Path(request["folder"]))
settings = SessionSettings(
    provider=cuda.ORT_PROVIDER, precision="float32", num_threads=1,
    is_replayed=request["is_replayed"], dimensions=request["dimensions"],
)
next_token = Path(request["next_token"]) if request["next_token"] else None
source = GraphSource(folder=Path(request["folder"]), bundle=bundle, settings=settings, next_token=next_token)
loaded = load_graphs(source)
workload, point = from_json(Workload, request["workload"], "w"), from_json(Point, request["point"], "p")
arrays = {"input_ids": np.ones((point.batch_size, point.sequence_length), dtype=np.int64)}
replay = lambda other: operation_of(bundle, other, workload, point, arrays).run(lambda name: None)
operation = operation_of(bundle, runner_of(loaded, "device", replay), workload, point, arrays)
library = ctypes.CDLL("libcudart.so.13")
calls = []
for _ in range(4):
    before, at_tokens = library.bytes_to_host(), []
    output = operation.run(lambda name: at_tokens.append(library.bytes_to_host() - before))
    calls.append({
        "bytes_to_host": library.bytes_to_host() - before, "at_tokens": at_tokens,
        "captured": library.graphs_captured(), "launched": library.graphs_launched(),
        "addresses": sorted(value.data_ptr() for value in output.values()) if isinstance(output, dict) else [],
    })
nodes = {
    name: dict(Counter(part.ep_name for part in session.get_provider_graph_assignment_info() for _ in part.get_nodes()))
    for name, session in loaded.sessions.items()
}
options = {name: session_facts(session, settings)["provider_options"] for name, session in loaded.sessions.items()}
print(json.dumps({"calls": calls, "nodes": nodes, "options": options, "verified": dict(operation.verified())}))
"""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("running")
    assert CUDA_PROVIDER is not None
    build_stubs(folder, (CUDA_PROVIDER,), RUNNING)
    return folder


def run(stubs, found, point, *, next_token=None, is_replayed=False, dimensions=None):
    request = {
        "folder": str(found.folder),
        "workload": to_json(found.cell.workload),
        "point": to_json(point),
        "next_token": None if next_token is None else str(next_token),
        "is_replayed": is_replayed,
        "dimensions": dimensions or {},
    }
    only = environment({"LD_LIBRARY_PATH": str(stubs)})
    return run_program((*OWN_PYTHON, "-c", RUN, json.dumps(request)), env=only, limit_s=120)


def answer(done):
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_next_token_graph_has_cuda_kernels_for_all_nodes(stubs, tmp_path, dtype):
    write_next_token(tmp_path / "graph.onnx", dtype, 50_257)
    code = (
        "import sys, onnxruntime\n"
        "options = onnxruntime.SessionOptions()\n"
        "options.add_session_config_entry('session.record_ep_graph_assignment_info', '1')\n"
        f"session = onnxruntime.InferenceSession(sys.argv[1], options, providers=['{CUDA}', '{CPU}'])\n"
        "print([part.ep_name for part in session.get_provider_graph_assignment_info() for _ in part.get_nodes()])\n"
    )
    only = environment({"LD_LIBRARY_PATH": str(stubs)})
    done = run_program((*OWN_PYTHON, "-c", code, str(tmp_path / "graph.onnx")), env=only, limit_s=120)
    assert done.stdout.strip() == str([CUDA] * 5), done.stderr


def test_generation_on_cuda_copies_only_tokens_to_the_host(stubs, exported, tmp_path):
    found = exported("tiny-gpt2")
    write_next_token(tmp_path / "graph.onnx", "float32", 1024)
    point = to_point(found, batch_size=2, new_tokens=5)
    on_device = answer(run(stubs, found, point, next_token=tmp_path / "graph.onnx"))
    assert [call["at_tokens"] for call in on_device["calls"]] == [[16, 32, 48, 64, 80]] * 4
    assert on_device["nodes"]["next_token"] == {CUDA: 5}
    on_host = answer(run(stubs, found, point))
    assert on_host["calls"][0]["bytes_to_host"] >= 5 * 2 * 1024 * 4  # the logits, as it was


def test_a_forward_pass_is_captured_once_and_replayed_at_the_same_addresses(stubs, exported):
    found = exported("tiny-bert")
    point = to_point(found, batch_size=2)
    report = answer(run(stubs, found, point, is_replayed=True, dimensions={"batch": 2, "sequence": 8}))
    calls = report["calls"]
    assert [call["captured"] for call in calls] == [1, 1, 1, 1]
    launched = [call["launched"] for call in calls]
    assert [later - earlier for earlier, later in itertools.pairwise(launched)] == [1, 1, 1]
    assert len({tuple(call["addresses"]) for call in calls}) == 1
    assert set(report["nodes"]["model"]) == {CUDA}
    assert report["options"]["model"]["enable_cuda_graph"] == "1"
    assert set(report["verified"]["nodes_by_provider"]) == {CUDA}


def test_graphs_are_not_captured_without_the_option(stubs, exported):
    report = answer(run(stubs, exported("tiny-bert"), to_point(exported("tiny-bert"), batch_size=2)))
    assert [call["captured"] for call in report["calls"]] == [0, 0, 0, 0]
    assert report["options"]["model"]["enable_cuda_graph"] == "0"


def test_free_sizes_leave_nodes_on_the_cpu(stubs, exported):
    found = exported("tiny-bert")
    assert CPU in answer(run(stubs, found, to_point(found, batch_size=2)))["nodes"]["model"]


def test_the_provider_refuses_to_capture_a_decoder(stubs, exported):
    """Therefore the runtime refuses it in the plan."""
    found = exported("tiny-gpt2")
    done = run(stubs, found, to_point(found, batch_size=2), is_replayed=True)
    assert done.exit_code != 0
    assert "cannot use the graph capture feature" in done.stderr


def to_point(found, **changes):
    from dataclasses import replace

    return replace(found.point, **changes)
