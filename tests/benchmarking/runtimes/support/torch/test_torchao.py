"""float8, int8 and int4 by torchao: what is quantized, what that weighs, and what is refused."""

from __future__ import annotations

import pytest
import torch

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import PRECISIONS, Device, Point
from benchmarking.measure.quality_measures import TOLERANCES, about_difference, compare
from benchmarking.run_hardware_benchmark import main
from benchmarking.runtimes.compiled import PLUGIN as COMPILED
from benchmarking.runtimes.eager import PLUGIN
from benchmarking.runtimes.support.torch import model_loading, torch_settings
from benchmarking.workloads.support.resolve import resolve

POINT = Point(batch_size=2, sequence_length=16)
GENERATE = Point(batch_size=2, sequence_length=16, new_tokens=3)


def device(kind, precisions=PRECISIONS):
    return Device(type=kind, selector=kind, found=True, name="Test GPU", precisions=precisions)


def without(*absent):
    return lambda name: name not in absent


@pytest.mark.parametrize(
    ("kind", "precision", "absent", "reason"),
    [
        ("cpu", "int8", (), None),
        ("cpu", "int8", ("torchao",), "int8 needs torchao: pip install torchao"),
        ("cuda", "int4", ("torchao",), "int4 needs torchao: pip install torchao"),
        ("cpu", "int4", ("mslk",), "needs mslk"),
        ("cpu", "int4", (), None),
        ("cuda", "int4", ("mslk",), None),
        ("mps", "int8", (), "not on mps"),
        ("rocm", "float8_e4m3", (), None),
        ("cuda", "float8_e4m3", ("torchao",), "float8_e4m3 needs torchao: pip install torchao"),
        ("cpu", "float8_e4m3", (), "float8_e4m3 by torchao runs on cuda, rocm, not on cpu"),
        ("cpu", "float32", ("torchao", "mslk"), None),
    ],
)
@pytest.mark.parametrize("plugin", [PLUGIN, COMPILED], ids=lambda plugin: plugin.name)
def test_a_missing_package_of_a_precision_is_named(monkeypatch, plugin, kind, precision, absent, reason):
    monkeypatch.setattr(model_loading, "is_installed", without(*absent))
    found = plugin.supports(device(kind), resolve("tiny-bert"), precision)
    assert found is None if reason is None else reason in found


@pytest.mark.parametrize("kind", ["cuda", "rocm"])
def test_int8_on_gpus_is_for_the_runtime_that_compiles(kind):
    bert = resolve("tiny-bert")
    assert COMPILED.supports(device(kind), bert, "int8") is None
    why = PLUGIN.supports(device(kind), bert, "int8")
    assert why.startswith("uncompiled, torchao's int8 product on a GPU synchronizes at every call")
    assert why.endswith("use --runtime compiled for int8")


def test_quantization_on_a_gpu_needs_its_bfloat16():
    turing = device("cuda", ("float32", "float16", "int8", "int4"))
    for precision in ("int8", "int4"):
        why = COMPILED.supports(turing, resolve("tiny-bert"), precision)
        assert why == f"{precision} by torchao needs bfloat16, which Test GPU does not support"


def test_torchaos_int8_product_still_synchronizes_on_a_gpu():
    """Else int8 without compilation could be measured on GPUs."""
    import inspect

    from torchao.kernel import intmm

    printed = []

    class Watched(torch.Tensor):
        def __repr__(self):
            printed.append(self.shape)
            return "Watched"

    left = torch.randint(-9, 9, (3, 8), dtype=torch.int8).as_subclass(Watched)
    intmm.safe_int_mm(left, torch.randint(-9, 9, (8, 5), dtype=torch.int8))
    assert printed == [(3, 8)]
    source = inspect.getsource(intmm.safe_int_mm)
    assert "bad_dimensions_for_cublas" in source
    assert "input.cpu().to(torch.int32)" in source


GPU_METHODS = [("int8", "dynamic"), ("int8", "weight-only"), ("float8_e4m3", "per-row"), ("float8_e4m3", "per-tensor")]


@pytest.fixture
def any_hardware(monkeypatch):
    """torchao requires a GPU to quantize to float8, although its code also runs without one."""
    from torchao.quantization import quant_api

    monkeypatch.setattr(quant_api, "_check_hardware_support", lambda granularity: None)


@pytest.mark.parametrize(("precision", "method"), GPU_METHODS)
def test_int8_products_on_a_gpu_use_bfloat16(any_hardware, precision, method):
    """torchao's code on tensors without values whose device is a GPU."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    dtype = torch_settings.dtype_of(precision, "cuda:0")
    assert dtype == torch.bfloat16
    with FakeTensorMode(), torch.inference_mode():
        layer = torch.nn.Linear(64, 48, bias=False, device="meta")
        layer.weight = torch.nn.Parameter(torch.empty(48, 64, device="cuda", dtype=dtype), requires_grad=False)
        model = torch.nn.Sequential(layer)
        facts = model_loading.quantize(model, precision, method, "cuda")
        output = model(torch.empty(2, 16, 64, device="cuda", dtype=dtype))
    assert (output.dtype, output.device.type, output.shape) == (torch.bfloat16, "cuda", (2, 16, 48))
    assert (facts["quantization"], facts["quantized_layers"]) == (method, 1)
    assert facts["quantized_by"]["torchao"]


@pytest.mark.parametrize("method", ["per-row", "per-tensor"])
def test_float8_has_the_dtypes_bytes_and_errors_of_float8(any_hardware, open_eager, method):
    """One byte per weight, and a scale of 4 bytes per output row or per matrix."""
    session = open_eager("tiny-bert", precision="float8_e4m3", quantization=method)
    linear = [module for module in session.model.modules() if isinstance(module, torch.nn.Linear)]
    weights = sum(module.in_features * module.out_features for module in linear)
    scales = sum(module.out_features for module in linear) if method == "per-row" else len(linear)
    parameters = {"bfloat16": 202_688 - weights, "float8_e4m3fn": weights}
    assert session.verified["parameters_by_dtype"] == parameters
    assert session.verified["quantized_layers"] == session.verified["linear_layers"] == 13
    assert session.weights_bytes == (202_688 - weights) * 2 + weights + scales * 4 + 2 * 512 * 8
    comparison = compared(session, open_eager("tiny-bert"), POINT)
    assert 0 < comparison.relative_l2 < TOLERANCES["float8_e4m3"].relative_l2
    assert about_difference(comparison, "float8_e4m3") == ()


def test_float8_without_the_hardware_gives_torchaos_reason(open_eager):
    with pytest.raises(
        UnsupportedError, match="cannot quantize to float8_e4m3 per-row: Float8 dynamic quantization re"
    ):
        open_eager("tiny-bert", precision="float8_e4m3")


@pytest.mark.parametrize("name", ["mxfp4", "nvfp4"])
def test_unsupported_precisions_are_refused_with_the_reason(name, capsys):
    assert main(["--model-id", "tiny-bert", "--precision", name, "--dry-run"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"precision {name}: torchao has its kernels as a prototype only" in error
    assert "use one of float32, " in error
    assert torchao_has_only_a_prototype(name)


def torchao_has_only_a_prototype(name):
    import torchao.quantization as ao
    from torchao.prototype import mx_formats

    config = {"mxfp4": "MXDynamicActivationMXWeightConfig", "nvfp4": "NVFP4DynamicActivationNVFP4WeightConfig"}[name]
    return hasattr(mx_formats, config) and not hasattr(ao, config)


@pytest.mark.parametrize(
    ("precision", "options", "method"),
    [
        ("float8_e4m3", {}, "per-row"),
        ("float8_e4m3", {"quantization": "per-tensor"}, "per-tensor"),
        ("int8", {}, "dynamic"),
        ("int8", {"quantization": "weight-only"}, "weight-only"),
        ("int4", {}, "weight-only"),
    ],
)
def test_the_method_is_part_of_the_mode_at_a_quantized_precision(precision, options, method):
    mode = PLUGIN.mode_at(precision, PLUGIN.mode(device("cpu"), resolve("tiny-bert"), options))
    assert mode == {"attention": "sdpa", "quantization": method}


def test_unsupported_quantization_method_is_refused():
    mode = PLUGIN.mode(device("cpu"), resolve("tiny-bert"), {"quantization": "dynamic"})
    with pytest.raises(UsageError, match="quantization dynamic: float32 is not quantized"):
        PLUGIN.mode_at("float32", mode)
    with pytest.raises(UsageError, match="'dynamic': runtime eager supports weight-only at int4"):
        PLUGIN.mode_at("int4", mode)
    with pytest.raises(
        UsageError, match="quantization 'gptq': runtime eager has dynamic, weight-only, per-row, per-tensor"
    ):
        PLUGIN.mode(device("cpu"), resolve("tiny-bert"), {"quantization": "gptq"})
    assert PLUGIN.mode_at("float32", {"attention": "sdpa"}) == {"attention": "sdpa"}


@pytest.mark.parametrize("method", ["dynamic", "weight-only"])
def test_int8_has_the_dtypes_bytes_and_errors_of_int8(open_eager, method, stages):
    """One byte per weight, and per output row a scale (4 bytes) and a zero point (1 byte)."""
    session = open_eager("tiny-bert", precision="int8", quantization=method)
    linear = [module for module in session.model.modules() if isinstance(module, torch.nn.Linear)]
    weights = sum(module.in_features * module.out_features for module in linear)
    rows = sum(module.out_features for module in linear)
    assert stages == ["import", "weights_read", "to_device", "quantize"]
    assert session.parameter_count == 202_688
    assert session.verified["parameters_by_dtype"] == {"float32": 202_688 - weights, "int8": weights}
    assert session.verified["quantized_layers"] == session.verified["linear_layers"] == 13
    assert session.verified["quantized_matrix_share"] == 1.0
    before = 202_688 * 4 + 2 * 512 * 8
    assert session.weights_bytes == before - weights * 4 + weights * 1 + rows * (4 + 1)
    comparison = compared(session, open_eager("tiny-bert"), POINT)
    assert 0 < comparison.relative_l2 < TOLERANCES["int8"].relative_l2
    assert about_difference(comparison, "int8") == ()


def compared(session, reference, point):
    arrays = []
    for each in (session, reference):
        operation = each.operation(point)
        arrays.append(operation.arrays(operation.run(lambda name: None)))
    return compare(*arrays)


def test_gpt2s_conv1d_layers_are_quantized(open_eager):
    """Two blocks with four Conv1D each, and the head, whose weight was the embedding's before."""
    session = open_eager("tiny-gpt2", precision="int8")
    assert session.verified["conv1d_as_linear"] == 8
    assert session.verified["quantized_layers"] == 9
    assert session.parameter_count == 198_400
    assert compared(session, open_eager("tiny-gpt2"), GENERATE).relative_l2 < 0.05


def test_conv1d_as_linear_is_the_same_product():
    from transformers.pytorch_utils import Conv1D

    torch.manual_seed(0)
    model = torch.nn.Sequential(Conv1D(3, 5), torch.nn.Sequential(Conv1D(2, 3)))
    inputs = torch.randn(4, 5)
    expected = model(inputs)
    assert model_loading._replace_conv1d(model) == 2
    assert [type(module).__name__ for module in model.modules()].count("Linear") == 2
    torch.testing.assert_close(model(inputs), expected)


@pytest.mark.parametrize("name", ["tiny-mixtral", "tiny-unet"])
def test_mostly_unquantized_model_is_refused(open_eager, name):
    """torchao quantizes neither experts nor convolutions, so int8 would be a mere label."""
    with pytest.raises(UnsupportedError, match="the rest would run unquantized"):
        open_eager(name, precision="int8")


def test_an_unsupported_quantization_gives_torchaos_reason(open_eager, monkeypatch):
    def refuse(model, config):
        raise ImportError("Requires mslk >= 1.0.0\nmore advice")

    monkeypatch.setattr("torchao.quantization.quantize_", refuse)
    with pytest.raises(UnsupportedError, match=r"cannot quantize to int8 dynamic: Requires mslk >= 1\.0\.0$"):
        open_eager("tiny-bert", precision="int8")


def test_a_model_without_matrices_has_nothing_to_quantize():
    with pytest.raises(UnsupportedError, match="0 of the model's 0 linear layers, 0%"):
        model_loading.quantize(torch.nn.LayerNorm(4), "int8", "dynamic", "cpu")


def test_packed_values_are_named_by_their_bits():
    """A quantized tensor reports float32; its 4 bits per value are read from the tensors that it wraps."""

    class Packed:
        """The readable part of torchao's int4 tensor: two values per byte, and scales."""

        dtype = torch.bfloat16

        def __init__(self):
            self.qdata, self.scale = torch.zeros(8, 16, dtype=torch.uint8), torch.zeros(8, 1)

        def numel(self):
            return 8 * 32

        def __tensor_flatten__(self):
            return ["qdata", "scale"], {}

    packed = Packed()
    quantized = lambda tensor: tensor is packed  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_loading, "is_quantized", quantized)
        assert model_loading._true_dtype(packed) == "int4"
        assert [part.nbytes for part in model_loading._parts(packed)] == [128, 32]
