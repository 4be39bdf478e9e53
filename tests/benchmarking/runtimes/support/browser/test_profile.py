"""Placement of a page's kernels: profiles among other console lines, and what counts as fallback."""

import json

import pytest

from benchmarking.core.errors import FormatError
from benchmarking.runtimes.support.browser.browser_session import page_placement, read_kernels

WEBGPU, CPU = "WebGpuExecutionProvider", "CPUExecutionProvider"


def line(name, operator, provider, *outputs, inputs=({"float": [1, 2]},), dur=10):
    """An event as ONNX Runtime Web 1.30 writes it: one per line, with a comma after all but the last."""
    args = {"op_name": operator, "provider": provider, "node_index": name, "input_type_shape": list(inputs)}
    args["output_type_shape"] = list(outputs)
    event = {"cat": "Node", "dur": dur, "ts": 1, "ph": "X", "name": f"{name}_kernel_time", "args": args}
    return json.dumps(event).replace('"cat":', '"cat" :') + ","


CONSOLE = [
    "\x1b[0;93m2026-11-21 [W:onnxruntime:, session_state.cc:1397] Some nodes were not assigned\x1b[m",
    "profile of encoder",
    "[",
    '{"cat" : "Session","pid" :42,"dur" :4934,"ts" :55,"ph" : "X","name" :"model_loading_array","args" : {}},',
    line("1", "MatMul", WEBGPU, {"float": [1, 2, 3]}, dur=60),
    line("2", "Shape", CPU, {"int64": [3]}),
    "another line of the console",
    line("3", "GreaterOrEqual", CPU, {"bool": [1, 1, 4, 4]}),
    '{"cat" : "Api","dur" :37,"ts" :7,"ph" : "X","name" :"node_tanh&Tanh&Tanh","args" : {}}',
    "]",
    "profile of decode",
    "[\n" + line("1", "Softmax", CPU, {"float": [1, 2, 3]}, dur=20) + "\n]",
]


def test_kernels_of_every_graph_are_read_and_other_lines_ignored():
    kernels = read_kernels(CONSOLE)
    assert [(kernel.name, kernel.operator, kernel.provider) for kernel in kernels] == [
        ("encoder/1/1", "MatMul", WEBGPU),
        ("encoder/2/2", "Shape", CPU),
        ("encoder/3/3", "GreaterOrEqual", CPU),
        ("decode/1/1", "Softmax", CPU),
    ]


def test_a_console_without_a_profile_is_an_error():
    for console in ([], ["profile of model", "[", "]"], CONSOLE[:1]):
        with pytest.raises(FormatError, match="no profile of ONNX Runtime Web"):
            read_kernels(console)


def test_float_nodes_on_the_cpu_are_fallback_but_masks_and_shapes_are_not():
    facts = page_placement(read_kernels(CONSOLE), WEBGPU)
    assert facts == {
        "nodes": 4,
        "nodes_by_provider": {CPU: 3, WEBGPU: 1},
        "time_share_by_provider": {CPU: 0.4, WEBGPU: 0.6},
        "nodes_on_cpu_unasked": 1,
        "nodes_of_shapes_on_cpu": 1,
        "nodes_of_whole_numbers_on_cpu": 1,
        "operators_on_cpu_unasked": {"Softmax": 1},
        "compute_types": {"float": 1},
    }


def test_on_a_requested_processor_no_node_counts_as_fallback():
    facts = page_placement(read_kernels(CONSOLE), CPU)
    assert (facts["nodes_on_cpu_unasked"], facts["nodes_of_whole_numbers_on_cpu"]) == (0, 0)


def test_integer_matrix_product_on_the_cpu_is_fallback():
    product = line("1", "MatMulInteger", CPU, {"int32": [1, 2, 3]}, inputs=({"uint8": [1, 2]},))
    facts = page_placement(read_kernels(["profile of model", product]), WEBGPU)
    assert facts["operators_on_cpu_unasked"] == {"MatMulInteger": 1}
