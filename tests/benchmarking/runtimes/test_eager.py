"""The eager runtime: what it supports, what it opens, what it verifies, and how it fails."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace

import pytest
import torch

from benchmarking.core.errors import BenchhouseError, OutOfMemoryError, UnsupportedError, UsageError, memory_errors
from benchmarking.core.records import Device, Point
from benchmarking.runtimes.eager import PLUGIN
from benchmarking.runtimes.support.torch import model_loading, torch_settings
from benchmarking.workloads.support.resolve import resolve

POINT = Point(batch_size=2, sequence_length=16)
GENERATE = Point(batch_size=2, sequence_length=16, new_tokens=5)


def device(kind):
    return Device(type=kind, selector=kind, found=True, precisions=("float32", "tf32", "bfloat16", "float16", "int8"))


def ignore(event):
    return None


@pytest.mark.parametrize(
    ("kind", "precision", "reason"),
    [
        ("cpu", "float32", None),
        ("cpu", "float16", None),
        ("cuda", "tf32", None),
        ("rocm", "bfloat16", None),
        ("mps", "float16", None),
        ("cpu", "tf32", "NVIDIA"),
        ("rocm", "tf32", "NVIDIA"),
        ("cpu", "int8", None),
        ("mps", "int8", "int8 by torchao runs on cpu, cuda, rocm, not on mps"),
        ("openvino", "float32", "not on openvino"),
        ("null", "float32", "not on null"),
    ],
)
def test_unsupported_combinations_have_a_reason(kind, precision, reason):
    found = PLUGIN.supports(device(kind), resolve("tiny-bert"), precision)
    assert found is None if reason is None else reason in found


def test_a_workload_without_a_family_is_not_supported():
    workload = replace(resolve("tiny-bert"), family=None)
    assert PLUGIN.supports(device("cpu"), workload, "float32") == "runtime eager does not support family None"


def test_missing_packages_are_named_with_the_way_to_get_them(monkeypatch):
    assert PLUGIN.missing() is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "transformers" else object())
    assert PLUGIN.missing() == 'not installed: transformers: pip install "benchhouse[measure]"'


def test_mode_is_complete_with_its_defaults():
    assert PLUGIN.mode(device("cpu"), resolve("tiny-bert"), {}) == {"attention": "sdpa"}
    assert PLUGIN.mode(device("cpu"), resolve("tiny-gpt2"), {}) == {"attention": "sdpa", "cache": "dynamic"}
    options = {"attention": "eager", "cache": "static"}
    assert PLUGIN.mode(device("cpu"), resolve("tiny-t5"), options) == options
    features = resolve("tiny-gpt2", task="feature-extraction")
    assert PLUGIN.mode(device("cpu"), features, {}) == {"attention": "sdpa"}


@pytest.mark.parametrize(
    ("kind", "options", "error", "message"),
    [
        ("cpu", {"attention": "magic"}, UsageError, "attention 'magic': runtime eager has sdpa, eager"),
        ("cpu", {"cache": "sliding"}, UsageError, "cache 'sliding': runtime eager has dynamic, static"),
        ("cpu", {"compile": True}, UsageError, "no option 'compile'"),
        ("cpu", {"attention": "flash_attention_2"}, UnsupportedError, "runs on cuda and rocm, not on cpu"),
        ("cuda", {"attention": "flash_attention_2"}, UnsupportedError, "pip install flash-attn"),
    ],
)
def test_unsupported_modes_are_refused(monkeypatch, kind, options, error, message):
    monkeypatch.setattr(torch_settings, "version_of", lambda name: None)
    with pytest.raises(error, match=message):
        PLUGIN.mode(device(kind), resolve("tiny-gpt2"), options)


def test_single_pass_has_no_cache_option():
    with pytest.raises(UsageError, match="no option 'cache' at task feature-extraction"):
        PLUGIN.mode(device("cpu"), resolve("tiny-bert"), {"cache": "static"})


def test_opening_times_its_stages_and_verifies_the_model(open_eager, stages):
    session = open_eager("tiny-bert", num_threads=1)
    assert stages == ["import", "weights_read", "to_device"]
    assert session.parameter_count == 202_688
    assert session.weights_bytes == 202_688 * 4 + 2 * 512 * 8  # and two buffers of 512 int64 positions
    assert session.verified == {
        "model_class": "BertModel",
        "parameter_dtypes": ["float32"],
        "parameters_by_dtype": {"float32": 202_688},
        "parameter_devices": ["cpu"],
        "attention": "sdpa",
        "num_threads": 1,
        "num_interop_threads": torch.get_num_interop_threads(),
        "float32_matmul_precision": "highest",
        "cudnn_allow_tf32": False,
        "cudnn_benchmark": False,
        "cudnn_deterministic": False,
        "deterministic_algorithms": False,
        "allow_fp16_reduced_precision_reduction": True,
        "allow_bf16_reduced_precision_reduction": True,
        "allow_fp16_accumulation": False,
    }


def test_shared_weights_count_once(open_eager):
    session = open_eager("tiny-gpt2")
    assert session.parameter_count == 198_400
    assert session.weights_bytes == 198_400 * 4


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_has_half_the_weight(open_eager, precision):
    session = open_eager("tiny-gpt2", precision=precision)
    assert session.weights_bytes == 198_400 * 2
    assert session.verified["parameter_dtypes"] == [precision]


def test_parameters_that_stay_float32_at_float16_are_in_the_facts(open_eager):
    session = open_eager("tiny-t5", precision="float16")
    assert session.verified["parameters_by_dtype"] == {"float16": 230_400 - 32_768, "float32": 32_768}


@pytest.mark.parametrize(("name", "point"), [("tiny-bert", POINT), ("tiny-gpt2", GENERATE), ("tiny-t5", GENERATE)])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_requested_attention_runs_and_computes_the_same(open_eager, name, point, attention):
    session = open_eager(name, attention=attention)
    assert session.verified["attention"] == attention
    reference = open_eager(name)
    operation, expected = session.operation(point), reference.operation(point)
    arrays, wanted = (o.arrays(o.run(ignore)) for o in (operation, expected))
    assert arrays.keys() == wanted.keys()
    for key in arrays:
        torch.testing.assert_close(torch.from_numpy(arrays[key]), torch.from_numpy(wanted[key]), rtol=1e-3, atol=1e-4)


def test_operation_counts_and_marks(open_eager):
    operation, marks = open_eager("tiny-gpt2", cache="static").operation(GENERATE), []
    output = operation.run(marks.append)
    assert marks == ["token"] * 5
    assert operation.problem(output) is None
    assert (operation.items_per_call, operation.tokens_per_call) == (2, 10)
    assert (operation.prompt_tokens_per_call, operation.new_tokens) == (32, 5)


def test_forward_pass_counts_its_tokens(open_eager):
    operation = open_eager("tiny-bert").operation(POINT)
    assert (operation.items_per_call, operation.tokens_per_call) == (2, 32)
    assert (operation.prompt_tokens_per_call, operation.new_tokens) == (None, None)


@pytest.mark.parametrize("task", ["fill-mask", "text-classification"])
def test_other_tasks_of_encoders_run(open_eager, task):
    operation = open_eager("tiny-bert", task=task).operation(POINT)
    shape = operation.arrays(operation.run(ignore))["logits"].shape
    assert shape == ((2, 16, 1024) if task == "fill-mask" else (2, 2))


def test_calls_run_in_inference_mode_and_do_not_leak_it(open_eager):
    operation = open_eager("tiny-bert").operation(POINT)
    assert operation.run(ignore).last_hidden_state.is_inference()
    assert not torch.is_inference_mode_enabled()


def test_an_impossible_point_is_refused(open_eager):
    with pytest.raises(UsageError, match="takes at most 512"):
        open_eager("tiny-bert").operation(Point(batch_size=1, sequence_length=513))


def test_nan_in_the_output_is_a_problem(open_eager):
    session = open_eager("tiny-bert")
    session.model.encoder.layer[1].output.dense.bias.data[3] = math.nan
    operation = session.operation(POINT)
    assert operation.problem(operation.run(ignore)) == "NaN or Inf in last_hidden_state: 2048 of 2048 values"


def test_nan_in_a_folders_weights_is_refused_with_the_tensors_name(open_eager, tmp_path):
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = BertModel(BertConfig(vocab_size=50, **sizes))
    model.encoder.layer[0].intermediate.dense.weight.data[0, :3] = math.inf
    model.save_pretrained(tmp_path)
    with pytest.raises(
        BenchhouseError, match=r"encoder\.layer\.0\.intermediate\.dense\.weight contains NaN or Inf \(3 of"
    ):
        open_eager(str(tmp_path))


def test_large_finite_weights_are_accepted():
    linear = torch.nn.Linear(4, 4)
    linear.weight.data.fill_(3e38)  # whose sum is infinite
    model_loading.check_finite(linear, "m")


def test_parameters_that_the_weights_lack_are_in_the_facts(open_eager, tmp_path):
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=50, **sizes)).save_pretrained(tmp_path)
    session = open_eager(str(tmp_path), task="text-classification")
    assert session.verified["random_parameters"] == ["classifier.bias", "classifier.weight"]
    operation = session.operation(POINT)
    assert operation.problem(operation.run(ignore)) is None


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total"),
        RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("MPS backend out of memory (MPS allocated: 9.06 GB, other allocations: 1.2 GB"),
    ],
)
def test_failed_allocations_are_out_of_memory_errors(open_eager, monkeypatch, error):
    operation = open_eager("tiny-bert").operation(POINT)

    def fail(mark):
        raise error

    monkeypatch.setattr(operation.inner, "run", fail)
    with pytest.raises(OutOfMemoryError, match="out of memory while running b2 s16: "):
        operation.run(ignore)


def test_other_errors_are_not_translated(open_eager, monkeypatch):
    operation = open_eager("tiny-bert").operation(POINT)

    def fail(mark):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(operation.inner, "run", fail)
    with pytest.raises(RuntimeError, match="mat1 and mat2") as caught:
        operation.run(ignore)
    assert not isinstance(caught.value, BenchhouseError)


def test_a_real_failed_allocation_is_recognised():
    with pytest.raises(OutOfMemoryError, match="out of memory while filling"), memory_errors("filling"):
        torch.empty(1 << 60, dtype=torch.uint8)


def test_failed_load_is_out_of_memory_and_restores_the_flags(open_eager, monkeypatch):
    before = torch.backends.cudnn.allow_tf32

    def fail(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr("benchmarking.workloads.support.transformers_models.TransformersFamily.build", fail)
    with pytest.raises(OutOfMemoryError, match="out of memory while loading tiny-bert"):
        open_eager("tiny-bert")
    assert torch.backends.cudnn.allow_tf32 == before


def test_model_differing_from_the_request_is_refused():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).half())
    with pytest.raises(UnsupportedError, match=r"requested float32, but 1\.weight is float16"):
        model_loading.verify(model, "float32", "cpu", None)
    with pytest.raises(UnsupportedError, match="requested cuda:0, but the model is on cpu"):
        model_loading.verify(model[0], "float32", "cuda:0", None)
    with pytest.raises(UnsupportedError, match="requested attention sdpa, but the model uses None"):
        model_loading.verify(model[0], "float32", "cpu", "sdpa")


def test_threads_are_restored_after_the_session(open_eager):
    before = torch.get_num_threads()
    session = open_eager("tiny-bert", num_threads=before + 1)
    assert torch.get_num_threads() == before + 1
    session.close()
    assert torch.get_num_threads() == before


def test_ineffective_threads_are_an_error(open_eager, monkeypatch):
    monkeypatch.setattr(torch_settings, "set_threads", lambda count: lambda: None)
    wanted = torch.get_num_threads() + 1
    with pytest.raises(BenchhouseError, match=f"requested {wanted} threads, but torch uses"):
        open_eager("tiny-bert", num_threads=wanted)


def test_device_that_torch_cannot_use_is_refused(open_eager):
    with pytest.raises(UnsupportedError, match="torch cannot use cpu"):
        open_eager("tiny-bert", torch_name=None)


@pytest.mark.parametrize(("precision", "matmul", "cudnn"), [("float32", "highest", False), ("tf32", "high", True)])
def test_tf32_is_set_for_the_precision_and_restored(precision, matmul, cudnn):
    before = (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)
    flags = torch_settings.MatmulPrecision(precision)
    found = torch_settings.effective_arithmetic()
    assert (found["float32_matmul_precision"], found["cudnn_allow_tf32"]) == (matmul, cudnn)
    assert torch.backends.cuda.matmul.allow_tf32 is (precision == "tf32")
    flags.restore()
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before


def test_weights_bytes_counts_each_storage_once():
    module = torch.nn.Module()
    storage = torch.zeros(10)
    module.register_buffer("part", storage[:4])
    module.register_buffer("rest", storage[4:])
    module.weight = torch.nn.Parameter(torch.zeros(3, dtype=torch.float16))
    module.tied = module.weight
    assert model_loading.weights_bytes(module) == 10 * 4 + 3 * 2
    assert model_loading.parameter_count(module) == 3
    assert model_loading.weights_bytes(torch.nn.Identity()) == 0


def test_a_second_session_takes_its_flops_from_the_cache(open_eager, tmp_path, monkeypatch):
    """Recognizable by numbers that only the cache has."""
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path))
    counted = open_eager("tiny-bert").operation(POINT).count()
    (record,) = tmp_path.glob("builds/flops/*/build.json")
    record.write_text(record.read_text().replace(str(counted.values["flops"]), "12345"))
    assert open_eager("tiny-bert").operation(POINT).count().values["flops"] == 12345
    assert open_eager("tiny-bert").operation(replace(POINT, batch_size=1)).count().values["flops"] != 12345
    assert len([*tmp_path.glob("builds/flops/*/build.json")]) == 2
