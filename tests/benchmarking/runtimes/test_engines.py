"""Inference engines on tiny models of the same weights as eager: tokens, clocks, caches, proposals, quantized types.

Every test runs the real engine, in this process; what is not installed is skipped with the command that installs it.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.core import plugins
from benchmarking.core.contracts import Operation
from benchmarking.core.errors import BenchhouseError, FormatError, UnsupportedError, UsageError
from benchmarking.core.records import Workload, canonical_hash, run_from_json
from benchmarking.run_hardware_benchmark import main
from benchmarking.runtimes import llamacpp
from benchmarking.runtimes.support.engines.computed import window_of
from benchmarking.runtimes.support.engines.engine_session import Arrivals, EngineSettings
from benchmarking.runtimes.support.engines.llama_cpp_python import ON_CPU, LlamaModel, check_parameters
from benchmarking.runtimes.support.engines.weight_files import gguf_build, write_gguf
from benchmarking.workloads.support.gguf_file import precision_of, read_gguf
from benchmarking.workloads.support.resolve import resolve
from tests.helpers.engines import CPU, POINT, called, installed, opened, prompts_at, tokens_of

pytestmark = [pytest.mark.forked_children, pytest.mark.usefixtures("engine_cache")]

ENGINES = ("llamacpp", "ctranslate2", "mlx", "onnxruntime-genai")
PAIR = replace(POINT, batch_size=2)
DEPTH = 40
LONG = 480
FIRST_RATIO = 3
"""Minimum ratio of the time to first token of a long prompt to the time per later token."""


def needs_xllamacpp(name: str) -> None:
    """Skip if llama.cpp is only installed as llama-cpp-python, which has neither batches nor drafts."""
    if name == "llamacpp":
        pytest.importorskip("xllamacpp")


def metrics_of(operation: Operation) -> Mapping[str, float]:
    return {one.name: one.value for one in operation.metrics()}


@pytest.mark.parametrize("name", ENGINES)
def test_batch_generates_eagers_tokens_and_marks_each_step(
    name: str, llama: Workload, eager: Callable[..., Any]
) -> None:
    needs_xllamacpp(name)
    marks: list[str] = []
    with opened(name, llama, PAIR) as (session, operation):
        found = called(operation, marks)
        again = called(operation)
        own = operation.runtime_times_ns()
        assert operation.arrays(found)["tokens"].tolist() == found
    assert found == again == eager(prompts_at(llama, PAIR), POINT.new_tokens)
    assert marks == ["token"] * 12
    assert session.verified["bits_per_weight"] == 32.0
    assert session.parameter_count == llama.parameter_count or name == "ctranslate2"
    assert session.verified["engine_system"]
    assert (0 < own["engine_time_to_first_token"] < own["latency_request"]) if name == "llamacpp" else own == {}


@pytest.mark.parametrize("name", ENGINES)
def test_call_at_a_context_depth_generates_eagers_tokens(name: str, llama: Workload, eager: Callable[..., Any]) -> None:
    context = prompts_at(llama, replace(POINT, sequence_length=DEPTH), llama.seed + 1)
    expected = eager(np.concatenate([context, prompts_at(llama, POINT)], axis=1), POINT.new_tokens)
    with opened(name, llama, context_depth=str(DEPTH)) as (_, operation):
        assert [called(operation) for _ in range(3)] == [expected] * 3
        assert operation.arrays([expected]) == {}  # the reference has no context
        reused = operation.verified().get("reused_prompt_tokens", DEPTH)
    assert reused == DEPTH


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "onnxruntime-genai"])
def test_a_prefix_cache_keeps_the_tokens_and_reports_its_hits(
    name: str, llama: Workload, eager: Callable[..., Any]
) -> None:
    with opened(name, llama, prefix_cache="on") as (_, operation):
        for _ in range(3):  # the first fills the cache
            assert called(operation) == eager(prompts_at(llama, POINT), POINT.new_tokens)
        assert metrics_of(operation)["prefix_cache_hit_share"] == pytest.approx(23 / 24)


@pytest.mark.parametrize("name", ["llamacpp", "mlx"])
def test_model_drafting_for_itself_is_always_accepted(name: str, llama: Workload, eager: Callable[..., Any]) -> None:
    needs_xllamacpp(name)
    with opened(name, llama, draft_model="tiny-llama", draft_tokens="3") as (_, operation):
        assert called(operation) == eager(prompts_at(llama, POINT), POINT.new_tokens)
        found = metrics_of(operation)
    assert found["draft_acceptance_rate"] == 1.0
    assert 3.0 < found["mean_accepted_length"] <= 4.0


@pytest.mark.parametrize(
    ("step", "options"), [("generate_step", {}), ("speculative_generate_step", {"draft_model": "tiny-llama"})]
)
def test_mlx_lm_computes_on_the_cells_device_and_a_reset_awaits_it(
    step: str, options: Mapping[str, str], llama: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("mlx")
    import mlx.core
    import mlx_lm.generate  # noqa: F401

    steps: Any = sys.modules["mlx_lm.generate"]  # the package has a function of this name
    of_steps, awaited = [], []
    make, wait = getattr(steps, step), mlx.core.synchronize

    def made(*arguments: Any, stream: Any = None, **named: Any) -> Any:
        of_steps.append(stream)
        return make(*arguments, **named, **({} if stream is None else {"stream": stream}))

    monkeypatch.setattr(steps, step, made)
    monkeypatch.setattr(mlx.core, "synchronize", lambda stream=None: (awaited.append(stream), wait(stream)))
    with opened("mlx", llama, **options) as (session, operation):
        called(operation)
        operation.reset()
    # mlx-lm's default stream is on the GPU of a Mac, whatever the cell's device.
    assert [stream.device for stream in of_steps] == [mlx.core.Device(mlx.core.cpu)]
    assert awaited == [of_steps[0]] * 2
    assert session.verified["engine_system"]["device"] == "Device(cpu, 0)"


def test_pipeline_generates_eagers_tokens_and_stores_its_own_times(llama: Workload, eager: Callable[..., Any]) -> None:
    marks: list[str] = []
    with opened("openvino-genai", llama, precision="float16") as (session, operation):
        found = called(operation, marks)
        own = operation.runtime_times_ns()
    assert found == eager(prompts_at(llama, POINT), POINT.new_tokens)
    assert marks == ["token"] * 12
    assert 16.0 <= session.verified["bits_per_weight"] < 16.1
    assert 0 < own["engine_time_to_first_token"] < own["latency_request"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {"context_depth": str(DEPTH)}) for name in ENGINES),
        *((name, {"prefix_cache": "on"}) for name in ENGINES if name != "onnxruntime-genai"),
    ],
)
def test_a_texts_quality_does_not_depend_on_what_the_calls_keep_in_the_cache(
    name: str, options: Mapping[str, str], llama: Workload, eager: Callable[..., Any]
) -> None:
    needs_xllamacpp(name)
    prompt = prompts_at(llama, POINT)
    (tokens,) = eager(prompt, POINT.new_tokens)
    text = np.concatenate([prompt[0], tokens])
    with opened(name, llama, **options) as (_, operation):
        before = called(operation)
        assert operation.next_token_logits(text).argmax(axis=1).tolist() == tokens
        assert called(operation) == before


def test_a_closed_server_may_be_closed_again(llama: Workload) -> None:
    """As by a worker whose second session, for the quality, cannot be opened."""
    needs_xllamacpp("llamacpp")
    with opened("llamacpp", llama) as (session, _):
        session.close()


@pytest.mark.parametrize("name", ["llamacpp", "openvino-genai"])
def test_a_call_of_one_token_has_no_time_per_later_token(name: str, llama: Workload) -> None:
    precision = "float16" if name == "openvino-genai" else "float32"
    with opened(name, llama, replace(POINT, new_tokens=1), precision=precision) as (_, operation):
        called(operation)
        assert operation.runtime_times_ns().keys() == {"engine_time_to_first_token", "latency_request"}
        assert metrics_of(operation).keys() == {"engine_time_to_first_token_ms"}


def test_a_number_beyond_llama_cpps_own_is_refused(llama: Workload) -> None:
    needs_xllamacpp("llamacpp")
    for option in ("context_depth", "ngram_lookup", "batch_threads"):
        with (
            pytest.raises(UnsupportedError, match="takes no number as large as one of the options"),
            opened("llamacpp", llama, **{option: str(10**12)}),
        ):
            pass
    with pytest.raises(UsageError, match="--gpu-layers takes a whole number: got '²'"):
        installed("llamacpp").mode(CPU, llama, {"gpu_layers": "²"})


@pytest.mark.parametrize("name", [*ENGINES, "openvino-genai"])
def test_every_call_computes_its_prompt_again(name: str, llama: Workload) -> None:
    """With a prefix cache that is on by default, the first token would be as fast as any other."""
    point = replace(POINT, sequence_length=LONG)
    precision = "float16" if name == "openvino-genai" else "float32"
    first, other = [], []
    with opened(name, llama, point, precision=precision) as (_, operation):
        for _ in range(6):
            times = [time.perf_counter()]
            operation.reset()
            operation.run(lambda _, times=times: times.append(time.perf_counter()))
            operation.runtime_times_ns()
            steps = np.diff(times)
            first.append(steps[0])
            other.append(min(steps[1:]))
    assert min(first[1:]) > FIRST_RATIO * min(other)


def test_ngram_drafts_are_counted_and_keep_the_tokens(llama: Workload, eager: Callable[..., Any]) -> None:
    point = replace(POINT, new_tokens=96)  # enough for a model without training to repeat itself
    with opened("onnxruntime-genai", llama, point, ngram_lookup="2", draft_tokens="3") as (_, operation):
        assert called(operation) == called(operation) == eager(prompts_at(llama, point), 96)
        found = metrics_of(operation)
    assert 0.0 <= found["draft_acceptance_rate"] <= 1.0
    assert 1.0 <= found["mean_accepted_length"] <= 4.0


@pytest.mark.parametrize(
    ("name", "precision", "kind", "bits"),
    [
        ("llamacpp", "int4", "Q4_K_M", (4.5, 8.6)),
        ("llamacpp", "int8", "Q8_0", (8.5, 8.7)),
        ("ctranslate2", "int8", "int8_float32", (8.0, 9.0)),
        ("mlx", "int4", "4bit", (4.5, 5.5)),
        ("onnxruntime-genai", "int4", "int4", (4.5, 16.0)),
        ("openvino-genai", "int8", "Q8_0", (8.5, 8.7)),
    ],
)
def test_a_quantized_type_is_stored_by_its_name_with_its_true_bits(
    name: str, precision: str, kind: str, bits: tuple[float, float], llama: Workload
) -> None:
    with opened(name, llama, precision=precision) as (session, operation):
        called(operation)
        settings = installed(name).mode_at(precision, {})
    assert settings["quantization"] == kind
    counted = session.verified.get("parameters_by_dtype")  # no packed words and no scales, but all values
    assert (counted is None) == (name == "openvino-genai")
    assert counted is None or sum(counted.values()) == session.parameter_count
    assert bits[0] < session.verified["bits_per_weight"] < bits[1]


BASE = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.12,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256, "vocab_size": 256, "initializer_range": 0.12}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("gemma", {"head_dim": 32, "tie_word_embeddings": True}),
        ("gpt2", None),
        ("llama", {"rope_parameters": LLAMA3}),
        ("mistral", {}),
        ("phi", {"num_key_value_heads": 4}),
        ("phi3", {}),
        ("qwen2", {}),
        ("qwen3", {"head_dim": 32}),
    ],
)
def test_a_gguf_file_of_each_kind_computes_what_its_model_does(
    kind: str, own: dict[str, Any] | None, tmp_path: Path
) -> None:
    """Norms and biases are random too, since ones and zeros would hide a wrong place."""
    xllamacpp = pytest.importorskip("xllamacpp")
    pytest.importorskip("gguf")
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[kind](**(GPT2 if own is None else BASE | own))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name or "ln_" in name or name.endswith("bias"):
            parameter.data += 0.1 * torch.randn_like(parameter)
    write_gguf(workload_of(kind, config), model, "F32", tmp_path / "model.gguf")
    prompts = np.random.default_rng(0).integers(2, 256, size=(1, 40))
    assert server_tokens(xllamacpp, tmp_path / "model.gguf", prompts[0].tolist(), 8) == tokens_of(model, prompts, 8)[0]


ROPE = {"rope_type": "default", "rope_theta": 500.0}
"""A base that differs from the engines' default."""
GEMMA = {"head_dim": 32, "tie_word_embeddings": True}
TRAINED = {"rope_theta": 500.0, "original_max_position_embeddings": 8192}
CONVERTING = ENGINES[1:]
"""Engines that build a model from transformers' weights."""
MOST_KINDS = CONVERTING if os.environ.get("BENCHHOUSE_TEST_ALL") else CONVERTING[:2]
"""onnxruntime-genai's builder takes four seconds of a processor for each model."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "own", "names"),
    [
        ("gemma", GEMMA, CONVERTING),
        ("gemma2", GEMMA | {"query_pre_attn_scalar": 32}, ("mlx",)),
        ("gpt2", None, ("ctranslate2",)),
        ("llama", {}, MOST_KINDS),
        ("llama", {"rope_parameters": LLAMA3 | TRAINED}, CONVERTING),
        ("mistral", {}, MOST_KINDS),
        ("mistral", {"head_dim": 32}, CONVERTING[:2]),
        ("phi", {"rope_parameters": ROPE | {"partial_rotary_factor": 0.25}}, ("mlx",)),
        ("phi3", {}, ("mlx",)),
        ("qwen2", {}, MOST_KINDS),
        ("qwen3", {"head_dim": 32}, MOST_KINDS),
    ],
)
def test_each_model_kind_gives_eagers_tokens_with_its_own_positions(
    kind: str, own: dict[str, Any] | None, names: tuple[str, ...]
) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from benchmarking.runtimes.support.torch.model_loading import load_model

    settings = GPT2 if own is None else {**BASE, "rope_parameters": dict(ROPE), **own}
    workload = workload_of(kind, CONFIG_MAPPING[kind](**settings))
    expected = tokens_of(load_model(workload, "float32", None)[0], prompts_at(workload, POINT), POINT.new_tokens)
    found: dict[str, list[list[int]]] = {}
    for name in names:
        if plugins.load("benchmarking.runtimes", name).missing() is None:
            with opened(name, workload) as (_, operation):
                found[name] = called(operation)
    if not found:
        pytest.skip(f"none of {', '.join(names)} is installed")
    assert found == dict.fromkeys(found, expected)


def test_positions_of_llama_3_that_ctranslate2_would_scale_wrongly_are_refused() -> None:
    from transformers import LlamaConfig

    installed("ctranslate2")
    workload = workload_of("llama", LlamaConfig(**BASE, rope_parameters=LLAMA3))
    with (
        pytest.raises(UnsupportedError, match="from 8192 tokens only, but llama scales from 32"),
        opened("ctranslate2", workload),
    ):
        pass


LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
YARN = {**LINEAR, "rope_type": "yarn", "original_max_position_embeddings": 64}
WINDOW_OF_8 = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}


@pytest.mark.parametrize(
    ("names", "kind", "own", "why"),
    [
        ("llamacpp", "gpt2", {"activation_function": "relu"}, "computes gelu_new in gpt2, not relu, which m has"),
        ("llamacpp ctranslate2 mlx", "llama", {"hidden_act": "gelu"}, "computes silu in llama, not gelu, which m has"),
        ("llamacpp ctranslate2", "gpt2", {"scale_attn_weights": False}, "does not compute scale_attn_weights=False"),
        ("llamacpp ctranslate2", "gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx="),
        ("llamacpp onnxruntime-genai", "llama", {"rope_parameters": LINEAR}, "does not compute position scaling 'lin"),
        (
            "llamacpp",
            "llama",
            {"rope_scaling": {"type": "linear", "factor": 4.0}},
            "position scaling 'linear' in llama",
        ),
        ("llamacpp ctranslate2 onnxruntime-genai", "llama", {"rope_parameters": YARN}, "position scaling 'yarn'"),
        ("mlx ctranslate2", "gemma", {"rope_parameters": LINEAR}, "position scaling 'linear' in gemma"),
        ("mlx", "phi3", {"rope_parameters": {"rope_type": "longrope"}}, "position scaling 'longrope' in phi3"),
        ("ctranslate2", "llama", {"head_dim": 32}, "needs heads of 64 / 4 values in llama, and m's have 32"),
        ("ctranslate2", "gemma2", {}, "is built for gemma, gpt2, "),
        ("mlx", "gemma2", {"final_logit_softcapping": None}, "without final_logit_softcapping, which m lacks"),
        ("onnxruntime-genai", "smollm3", {}, "not for smollm3"),
    ],
)
def test_what_an_engine_would_leave_out_of_a_configuration_is_refused(
    names: str, kind: str, own: dict[str, Any], why: str
) -> None:
    for name in names.split():
        reason = plugins.load("benchmarking.runtimes", name).supports(CPU, configured(kind, **own), "int8")
        assert why in str(reason), name


def test_openvino_genai_refuses_the_positions_that_its_reader_drops(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, LlamaConfig

    pytest.importorskip("gguf")
    runtime, config = (
        plugins.load("benchmarking.runtimes", "openvino-genai"),
        LlamaConfig(**BASE, rope_parameters=LLAMA3),
    )
    scaled = workload_of("llama", config)
    assert "position scaling 'llama3' in llama" in runtime.supports(CPU, scaled, "float16")
    write_gguf(scaled, AutoModelForCausalLM.from_config(config), "F16", tmp_path / "model.gguf", "gpt2")
    cpu = replace(CPU, precisions=("float16",))
    assert "has scaled positions" in runtime.supports(cpu, resolve(str(tmp_path / "model.gguf")), "float16")


def test_a_configuration_that_an_engine_computes_is_taken() -> None:
    for name, kind, own in (
        ("llamacpp", "llama", {"rope_parameters": LLAMA3}),
        ("mlx", "llama", {"rope_parameters": YARN, "hidden_act": "swish"}),
        ("ctranslate2", "gpt2", {"activation_function": "relu"}),
        ("ctranslate2", "mistral", {"head_dim": 32, "rope_parameters": LINEAR}),
        ("ctranslate2", "llama", {"head_dim": 16}),
        ("onnxruntime-genai", "llama", {"hidden_act": "gelu"}),
    ):
        assert plugins.load("benchmarking.runtimes", name).supports(CPU, configured(kind, **own), "int8") is None


@pytest.mark.parametrize(
    ("kind", "own", "window"),
    [
        ("mistral", {}, 4096),
        ("mistral", {"sliding_window": None}, None),
        ("phi3", {}, None),
        ("phi3", {"sliding_window": 2047}, 2047),
        ("gemma2", {"layer_types": ["full_attention"] * 2}, None),
        ("qwen2", {**WINDOW_OF_8, "use_sliding_window": False}, None),
        ("qwen2", WINDOW_OF_8, 8),
        ("qwen3", {**WINDOW_OF_8, "max_window_layers": 2}, None),
        ("llama", {"sliding_window": 8}, None),
    ],
)
def test_the_window_of_a_model_is_that_of_transformers(kind: str, own: dict[str, Any], window: int | None) -> None:
    assert window_of(configured(kind, **own).config) == window


def test_texts_longer_than_a_sliding_window_are_refused_and_shorter_ones_are_measured() -> None:
    from transformers import MistralConfig

    installed("mlx")
    workload = workload_of("mistral", MistralConfig(**BASE, sliding_window=16))
    fitting, longer = replace(POINT, sequence_length=10, new_tokens=7), replace(POINT, sequence_length=11, new_tokens=7)
    why = "does not compute sliding windows: mistral attends to 16 tokens, and 17 are needed"
    with opened("mlx", workload, fitting) as (session, operation):
        called(operation)
        with pytest.raises(UnsupportedError, match=why):
            session.operation(longer)
    with pytest.raises(UnsupportedError, match=why), opened("mlx", workload, longer):
        pass
    with (
        pytest.raises(UnsupportedError, match="and 18 are needed"),
        opened("mlx", workload, fitting, context_depth="2"),
    ):
        pass


def test_llama_cpp_at_float32_has_neither_a_cache_nor_an_attention_in_half_precision(llama: Workload) -> None:
    runtime = plugins.load("benchmarking.runtimes", "llamacpp")
    whole = {"flash_attention": "off", "kv_cache_type": "f32"}
    assert runtime.mode_at("float32", {}) == whole
    assert runtime.mode_at("float32", {"flash_attention": "on"}) == {**whole, "flash_attention": "on"}
    assert runtime.mode_at("float32", {"kv_cache_type": "q8_0"}) == {"kv_cache_type": "q8_0"}
    assert runtime.mode_at("float16", {}) == {}


def configured(kind: str, **own: Any) -> Workload:
    """A model whose configuration file has these keys, and no others that matter."""
    config = {**BASE, "model_type": kind, **own}
    return Workload(
        model_id="m",
        family="decoder-only",
        task="text-generation",
        source="catalog",
        config=config,
        config_hash=canonical_hash(config),
        weights="random",
        vocab_size=256,
    )


def workload_of(kind: str, config: Any) -> Workload:
    stored = config.to_diff_dict()
    return Workload(
        model_id=kind,
        family="decoder-only",
        task="text-generation",
        source="catalog",
        config=stored,
        config_hash=canonical_hash(stored),
        weights="random",
        vocab_size=256,
    )


def server_tokens(xllamacpp: Any, file: Path, prompt: list[int], count: int) -> list[int]:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(file)
    parameters.n_ctx, parameters.n_parallel, parameters.warmup, parameters.verbosity = 256, 1, False, -1
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    texts: list[str] = []
    request = {"prompt": prompt, "n_predict": count, "temperature": 0, "top_k": 1, "ignore_eos": True, "stream": True}

    def take(chunk: Any) -> bool:
        if chunk:
            texts.append(chunk["choices"][0]["text"])
        return False

    xllamacpp.Server(parameters).handle_completions(request, take)
    return [int(text[1:]) for text in texts if text]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory, llama: Workload) -> Path:
    """A user's GGUF file: a copy of the build under another name."""
    with opened("llamacpp", llama):
        pass
    built = next(file for file in BuildStore().root.glob("gguf/*/model.gguf") if read_gguf(file).quantization == "F32")
    path = tmp_path_factory.mktemp("given") / "mine.gguf"
    path.write_bytes(built.read_bytes())
    return path


def test_llama_cpp_offloads_nothing_to_a_gpu_that_its_build_may_have(given: Path) -> None:
    """Its own defaults are all layers, the cache and large products."""
    xllamacpp = pytest.importorskip("xllamacpp")
    defaults = xllamacpp.CommonParams()
    assert (defaults.n_gpu_layers, defaults.no_op_offload, defaults.no_kv_offload) == (-1, False, False)
    server = llamacpp.InProcessServer.__new__(llamacpp.InProcessServer)
    LlamaModel.__init__(server, given, EngineSettings(), [POINT])
    server.placed = ON_CPU
    parameters = server._parameters(given, None)
    assert (parameters.n_gpu_layers, parameters.no_op_offload, parameters.no_kv_offload) == (0, True, True)
    with pytest.raises(BenchhouseError, match=r"requested the CPU, but llama.cpp offloads operators, -1 layers"):
        check_parameters(-1, ON_CPU, op_offload=True, kv_offload=False)


def test_a_server_whose_model_is_elsewhere_is_ended_before_the_error(
    monkeypatch: pytest.MonkeyPatch, llama: Workload
) -> None:
    """Without a request before it, its end may wait forever."""
    needs_xllamacpp("llamacpp")
    ended: list[Any] = []
    close = llamacpp.InProcessServer.close
    monkeypatch.setattr(llamacpp.InProcessServer, "close", lambda server: ended.append(server) or close(server))

    def refuse(*_: Any) -> None:
        raise BenchhouseError("loading took 0 MB of its memory")

    monkeypatch.setattr(llamacpp.llama_cpp_python, "check_memory", refuse)
    with pytest.raises(BenchhouseError, match="loading took 0 MB"), opened("llamacpp", llama):
        pass
    assert [server.server for server in ended] == [None]


def test_a_users_gguf_file_is_measured_by_the_command_and_its_facts_are_stored(given: Path, tmp_path: Path) -> None:
    words = [
        "--model-id",
        given,
        "--device",
        "cpu",
        "--runtime",
        "llamacpp",
        "--batch-sizes",
        1,
        "--quiet",
        "--launches",
    ]
    words += [1, "--sequence-lengths", 16, "--new-tokens", 4, "--iterations", 3, "--warmup-iterations", 1]
    assert (
        main([str(word) for word in (*words, "--save", "--db-path", tmp_path / "b.duckdb", "--output-dir", tmp_path)])
        == 0
    )
    (file,) = tmp_path.glob("*_llamacpp_*.json")
    run = run_from_json(json.loads(file.read_text()), str(file))
    (result,) = run.results
    assert (result.status, result.error, run.cell.workload.source) == ("ok", None, "file")
    assert result.metrics["time_to_first_token_ms"] > 0
    assert result.metrics["engine_time_to_first_token_ms"] > 0
    (load,) = run.loads
    assert load.verified["quantized_type"] == "F32"
    assert "CPU" in str(load.verified["engine_system"])


def test_a_users_folder_of_packed_weights_gives_the_same_tokens_as_the_build(llama: Workload, tmp_path: Path) -> None:
    with opened("mlx", llama, precision="int4") as (_, operation):
        built = called(operation)
    (folder,) = (path.parent for path in BuildStore().root.glob("mlx-quantized/*/config.json"))
    given = shutil.copytree(folder, tmp_path / "mine")
    workload = resolve(str(given))
    assert (workload.source, workload.parameter_count) == ("file", llama.parameter_count)
    assert {name: workload.config[name] for name in ("quantization", "precision")} == {
        "quantization": "4bit",
        "precision": "int4",
    }
    with opened("mlx", workload, precision="int4") as (session, operation):
        assert called(operation) == built
        assert 4.5 < session.verified["bits_per_weight"] < 5.5
    assert "holds 4bit: use --precision int4" in installed("mlx").supports(CPU, workload, "float32")
    assert "does not read packed-safetensors, only gguf" in installed("llamacpp").supports(CPU, workload, "int4")
    eager_says = installed("eager").supports(CPU, workload, "float32")
    assert (
        eager_says == f"{workload.model_id} is in an engine's own format (packed-safetensors), which has no torch "
        "model: choose the --runtime that reads it"
    )
    config = json.loads((given / "config.json").read_text())
    for wrong, why in (
        ({"model_file": "code.py"}, "never run"),
        ({"quantization": {"bits": True}}, "expected bits, found"),
    ):
        (given / "config.json").write_text(json.dumps({**config, **wrong}))
        with pytest.raises(UsageError, match=why):
            resolve(str(given))


def header(entries: bytes = b"", count: int = 0, tensors: bytes = b"", number: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, number, count) + entries + tensors


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def tensor(name: str, offset: int, size: int = 8) -> bytes:
    return text(name) + struct.pack("<IQIQ", 1, size, 0, offset)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"PK\x03\x04", "is not a GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9"),
        (header()[:10], "is truncated"),
        (header(number=1 << 40), "tensors, limit 100000"),
        (header(struct.pack("<Q", 1 << 50), count=1), "a text of"),
        (header(text("a") + struct.pack("<IIQ", 9, 8, 1 << 60), count=1), "an array of"),
        (header(text("a") + struct.pack("<IIQ", 9, 4, 1 << 60), count=1), "are left"),
        (header(text("a") + struct.pack("<I", 77), count=1), "unknown type 77"),
        (header(tensors=tensor("w", 0), number=1), "is truncated"),
        (header(tensors=tensor("v", 0) + tensor("w", 16), number=2) + bytes(200), "overlaps"),
        (header(tensors=tensor("w", 0, 0), number=1), "has shape"),
        (
            header(text("a") + (struct.pack("<I", 9) + b"") * 9 + bytes(99), count=1),
            "too deeply nested arrays|an array of",
        ),
    ],
)
def test_a_gguf_file_that_contradicts_its_header_is_refused(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=why):
        read_gguf(path)


def test_a_gguf_file_without_a_vocabulary_is_refused_before_it_crashes_the_server(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(header(text("general.architecture") + struct.pack("<I", 8) + text("llama"), count=1))
    with pytest.raises(UsageError, match="no vocabulary"):
        resolve(str(path))


def test_file_changed_after_resolution_is_not_loaded(given: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(given.read_bytes())
    workload = resolve(str(path))
    path.write_bytes(given.read_bytes() + b"more")
    with pytest.raises(BenchhouseError, match="has changed since the start of the run"), opened("llamacpp", workload):
        pass


def test_converted_ctranslate2_folder_is_a_model_and_a_truncated_one_is_refused(
    llama: Workload, tmp_path: Path, eager: Callable[..., Any]
) -> None:
    with opened("ctranslate2", llama):
        pass
    built = max(BuildStore().root.glob("ctranslate2/*/model.bin"), key=lambda file: file.stat().st_size)
    for name in ("model.bin", "vocabulary.json", "config.json"):
        (tmp_path / name).write_bytes((built.parent / name).read_bytes())
    workload = resolve(str(tmp_path))
    assert (workload.source, workload.config["quantization"], workload.vocab_size) == ("file", "float32", 1024)
    with opened("ctranslate2", workload) as (_, operation):
        assert called(operation) == eager(prompts_at(workload, POINT), POINT.new_tokens)
    (tmp_path / "model.bin").write_bytes(built.read_bytes()[:5000])
    with pytest.raises(UsageError, match="truncated"):
        resolve(str(tmp_path))


def test_an_openvino_folder_gives_the_tokens_of_its_original_weights(
    llama: Workload, tmp_path: Path, eager: Callable[..., Any]
) -> None:
    installed("openvino-genai")
    import openvino_genai

    gguf_build(llama, "F16", "gpt2")[1](tmp_path)
    (file,) = tmp_path.glob("*.gguf")
    assert resolve(str(file)).weights == "random"
    with pytest.raises(UsageError, match=r"--weights pretrained: .*model.gguf has random weights: omit --weights"):
        resolve(str(file), weights="pretrained")
    openvino_genai.LLMPipeline(str(file), "CPU", enable_save_ov_model=True)
    file.unlink()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_positions": 64}))
    workload = resolve(str(tmp_path))
    assert workload.max_sequence_length == 64
    described = ("source", "family", "vocab_size", "weights")
    assert [getattr(workload, name) for name in described] == ["file", "decoder-only", 1024, "given"]
    assert [workload.config[name] for name in ("format", "precision")] == ["openvino-ir", "float16"]
    with opened("openvino-genai", workload, precision="float16") as (session, operation):
        assert called(operation) == eager(prompts_at(workload, POINT), POINT.new_tokens)
        assert 16.0 <= session.verified["bits_per_weight"] < 16.1
    small = replace(workload, config={**workload.config, "quantization": "int4", "precision": "int4"})
    runtime = installed("openvino-genai")
    assert runtime.mode_at("int4", runtime.mode(CPU, small, {}))["quantization"] == "int4"
    assert "holds int4: use --precision int4" in runtime.supports(CPU, small, "int8")

    weights = (tmp_path / "openvino_model.bin").read_bytes()
    (tmp_path / "openvino_model.bin").write_bytes(b"torn")
    with pytest.raises(UsageError, match=r"cannot read openvino_model.xml: .*[Ii]ncorrect weights"):
        resolve(str(tmp_path))
    (tmp_path / "openvino_model.bin").write_bytes(weights)
    tokenizer = tmp_path / "openvino_tokenizer.xml"
    tokenizer.write_text('<!DOCTYPE net [<!ENTITY a "aaaa">]><net/>')
    with pytest.raises(UsageError, match=r"openvino_tokenizer.xml defines XML entities"):
        resolve(str(tmp_path))
    tokenizer.unlink()
    with pytest.raises(UsageError, match=r"needs 'openvino_tokenizer.xml' in the same folder"):
        resolve(str(tmp_path))


def test_an_onnxruntime_genai_folder_gives_the_same_tokens_as_the_build(
    llama: Workload, tmp_path: Path, eager: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))  # without other tests' builds
    with opened("onnxruntime-genai", llama):
        pass
    (built,) = (path.parent for path in BuildStore().root.glob("onnxruntime-genai/*/genai_config.json"))
    given = tmp_path / "given"
    given.mkdir()
    for name in ("genai_config.json", "model.onnx", "model.onnx.data"):
        shutil.copyfile(built / name, given / name)
    workload = resolve(str(given))
    assert [workload.config[name] for name in ("format", "precision")] == ["ort-genai", "float32"]
    with opened("onnxruntime-genai", workload, PAIR) as (session, operation):
        assert called(operation) == eager(prompts_at(workload, PAIR), POINT.new_tokens)
        assert session.verified["bits_per_weight"] == 32.0


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("ctranslate2", {"draft_model": "gpt2"}, "--draft-model: CTranslate2 has no speculative decoding"),
        ("ctranslate2", {"lora": "x"}, "--lora: CTranslate2 cannot load adapters"),
        ("mlx", {"ngram_lookup": "2"}, "--ngram-lookup: mlx-lm drafts tokens with a model only"),
        ("mlx", {"flash_attention": "on"}, "--flash-attention: MLX has a single, fused attention kernel"),
        ("llamacpp", {"context_depth": "-1"}, "--context-depth takes a whole number from 0: got -1"),
        ("llamacpp", {"batch_threads": "many"}, "--batch-threads takes a whole number: got 'many'"),
        ("llamacpp", {"draft_model": "gpt2", "ngram_lookup": "2"}, "exclude each other"),
        ("llamacpp", {"draft_tokens": "2"}, "--draft-tokens needs --draft-model or"),
        ("llamacpp", {"lora": "nowhere.gguf"}, "--lora nowhere.gguf: no such file"),
        ("llamacpp", {"kv_cache_type": "q9"}, "f16, f32"),
        ("mlx", {"kv_cache_type": "8bit"}, "its groups hold 64 values, and a head of tiny-llama has 16"),
        ("llamacpp", {"kv_cache_type": "q8_0"}, "its blocks hold 32 values, and a head of tiny-llama has 16"),
        ("llamacpp", {"kv_cache_type": "q8_0", "flash_attention": "off"}, "with flash attention only"),
    ],
)
def test_options_and_models_that_an_engine_lacks_are_refused_with_the_reason(
    name: str, options: dict[str, Any], why: str, llama: Workload
) -> None:
    with pytest.raises(UsageError, match=why):
        plugins.load("benchmarking.runtimes", name).mode(CPU, llama, options)


def test_naming_defaults_does_not_start_another_series(llama: Workload) -> None:
    runtime = plugins.load("benchmarking.runtimes", "llamacpp")
    named = {"context_depth": "0", "prefix_cache": "off", "flash_attention": "auto", "ngram_lookup": 0}
    assert runtime.mode(CPU, llama, named) == runtime.mode(CPU, llama, {}) == {}


def test_quantized_type_is_refused_at_another_precision() -> None:
    runtime = plugins.load("benchmarking.runtimes", "llamacpp")
    with pytest.raises(UsageError, match="Q4_K_M is --precision int4"):
        runtime.mode_at("int8", {"quantization": "Q4_K_M"})
    assert [precision_of(name) for name in ("F16", "Q6_K", "Q5_K_M", "Q3_K_M")] == ["float16", "int8", "int8", "int4"]


def test_tokens_arriving_together_are_marked_individually() -> None:
    marks: list[str] = []
    arrived = Arrivals(2, 3, marks.append)
    arrived(0, (5, 6, 7, 8))
    assert marks == []
    arrived(1, (1,))
    assert len(marks) == 1
    arrived(1, (2, 3, 4))
    assert len(marks) == 3  # not a fourth: three were requested


def test_other_runtimes_refuse_an_engine_s_file(given: Path) -> None:
    workload = resolve(str(given))
    for name in ("eager", "onnxruntime", "ctranslate2"):
        why_not = plugins.load("benchmarking.runtimes", name).supports(CPU, workload, "float32")
        assert why_not is not None
        assert "mine.gguf" in why_not


def test_every_common_option_an_engine_lacks_has_a_reason() -> None:
    from benchmarking.runtimes.support.engines.engine_runtime import GenerativeEngine
    from benchmarking.runtimes.support.engines.engine_session import COMMON

    engines = [plugins.load("benchmarking.runtimes", name) for name in plugins.names("benchmarking.runtimes")]
    for engine in (one for one in engines if isinstance(one, GenerativeEngine)):
        declared = {option.name for option in engine.declared_options}
        assert {option.name for option in COMMON} - declared == set(engine.lacks), engine.name
