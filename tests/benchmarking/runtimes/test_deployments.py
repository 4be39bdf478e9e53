"""The lines that deploy a configuration run, without benchhouse, and give what they say."""

from __future__ import annotations

import ast
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.core import plugins
from benchmarking.core.records import Cell, Device, Point
from benchmarking.devices.support.handles import combine_devices
from benchmarking.graphs.bundle import Bundle, Graph
from benchmarking.measure.context import settings
from benchmarking.sweep.plan.request import Request, plan_cell
from benchmarking.workloads.support.resolve import resolve

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
POINT = Point(batch_size=2, sequence_length=8)
WORDS = ["[UNK]", "[PAD]", "<s>", "</s>", "An", "example", "of", "your", "text", "."]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """An encoder and a decoder in folders, with a tokenizer of a few words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]", bos_token="<s>", eos_token="</s>"
    )
    torch.manual_seed(0)
    made = {
        "encoder": BertModel(BertConfig(vocab_size=64, max_position_embeddings=64, **SIZES)),
        "decoder": LlamaForCausalLM(LlamaConfig(vocab_size=64, max_position_embeddings=64, eos_token_id=63, **SIZES)),
    }
    folders = {}
    for name, model in made.items():
        folders[name] = tmp_path_factory.mktemp("models") / name
        model.save_pretrained(folders[name])
        tokenizer.save_pretrained(folders[name])
    return folders


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def lines_of(folder, runtime, precision="float32", *, new_tokens=None, unchecked=None, **more):
    """The lines for a batch of two, after the build is made. `unchecked` are settings whose files do not exist."""
    request = Request(
        model_id=str(folder),
        device="cpu",
        runtime=runtime,
        precision=precision,
        batch_sizes=(2,),
        sequence_lengths=(8,),
        new_tokens=new_tokens,
        settings=settings("quick"),
        **more,
    )
    plan = plan_cell(request, "session")
    plugin = plugins.runtime(runtime)
    if plugin.has_build(plan.cell):
        plugin.prepare(plan.cell, plan.points, BuildStore(), "if_needed")
    cell = replace(plan.cell, runtime_mode={**plan.cell.runtime_mode, **(unchecked or {})})
    return plugin.deployment(cell, plan.points[0])


def run(lines):
    """The names that the lines define."""
    imported = {
        alias.name for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.Import) for alias in node.names
    }
    assert not any(name.startswith("benchmarking") for name in imported)
    names = {}
    exec(compile(lines, "deployment.py", "exec"), names)
    return names


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_eager_lines_give_the_hidden_states(models, precision):
    import torch

    names = run(lines_of(models["encoder"], "eager", precision, num_threads=1))
    assert names["output"].last_hidden_state.shape == (2, 6, 32)
    assert names["output"].last_hidden_state.dtype == (torch.bfloat16 if precision == "bfloat16" else torch.float32)


def test_eager_lines_generate_tokens(models):
    for cache in ("dynamic", "static"):
        names = run(lines_of(models["decoder"], "eager", new_tokens=(4,), options={"cache": cache}))
        assert names["tokens"].shape[0] == 2
        assert 6 < names["tokens"].shape[1] <= 10


def test_eager_lines_allow_only_the_requested_attention_kernel(models, monkeypatch):
    import torch

    allowed = []
    attend = torch.nn.functional.scaled_dot_product_attention
    switches = torch.backends.cuda
    monkeypatch.setattr(
        "torch.nn.functional.scaled_dot_product_attention",
        lambda *inputs, **more: (
            allowed.append((switches.math_sdp_enabled(), switches.flash_sdp_enabled())) or attend(*inputs, **more)
        ),
    )
    names = run(lines_of(models["encoder"], "eager", options={"attention": "sdpa:math"}))
    assert names["output"].last_hidden_state.shape == (2, 6, 32)
    assert set(allowed) == {(True, False)}


def on_gpus(count, precision):
    """A planned cell as if it were for GPUs."""
    gpus = [Device(type="cuda", selector=f"cuda:{number}", found=True, name="GPU") for number in range(count)]
    mode = {"quantization": "dynamic"} if precision == "int8" else {}
    workload = replace(resolve("tiny-bert"), source="hub")
    device = gpus[0] if count == 1 else combine_devices(gpus)
    return Cell(
        workload=workload,
        device=device,
        requested_device="cuda",
        runtime="eager",
        runtime_mode=mode,
        precision=precision,
    )


@pytest.mark.parametrize(
    ("precision", "dtype", "uses_tf32"),
    [("float32", "float32", False), ("tf32", "float32", True), ("int8", "bfloat16", False)],
)
def test_lines_for_a_gpu_have_the_arithmetic_that_was_measured(precision, dtype, uses_tf32):
    lines = plugins.runtime("eager").deployment(on_gpus(1, precision), POINT)
    assert f"dtype=torch.{dtype})" in lines
    assert ("torch.set_float32_matmul_precision('high')" in lines) is uses_tf32
    assert "to('cuda:0')" in lines


def test_several_devices_and_replaced_layers_have_no_few_lines():
    assert plugins.runtime("eager").deployment(on_gpus(2, "float32"), POINT) is None
    assert plugins.runtime("kernelized").deployment(on_gpus(1, "float32"), POINT) is None


def test_compiled_lines_compile_the_model(models, monkeypatch):
    compiled = []
    monkeypatch.setattr(  # the compiler takes a minute, and what it makes is torch's
        "torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **more: compiled.append(graph) or graph.forward
    )
    names = run(lines_of(models["encoder"], "compiled"))
    assert compiled
    assert names["output"].last_hidden_state.shape == (2, 6, 32)


@pytest.mark.parametrize(
    ("runtime", "precision"), [("onnxruntime", "float32"), ("onnxruntime", "int8"), ("openvino", "int8")]
)
def test_graph_lines_run_the_graph_at_the_point(models, runtime, precision):
    pytest.importorskip(runtime)
    lines = lines_of(models["encoder"], runtime, precision, num_threads=1)
    names = run(lines)
    assert {value.shape for value in names["inputs"].values()} == {(2, 8)}
    assert ("without padding: the graph takes no attention_mask" in lines) is ("attention_mask" not in names["inputs"])
    outputs = names["outputs"]
    first = outputs[0]
    assert first.shape == (2, 8, 32)


def test_openvino_lines_have_the_settings_of_the_configuration(models):
    pytest.importorskip("openvino")
    for options, concurrency in (({"dynamic": "false"}, None), ({"hint": "throughput"}, (2,))):
        names = run(lines_of(models["encoder"], "openvino", options=options, concurrency=concurrency))
        compiled = names["compiled"]
        assert compiled.input(0).partial_shape.is_static == ("dynamic" in options)
        assert str(compiled.get_property("PERFORMANCE_HINT")).endswith("THROUGHPUT" if concurrency else "LATENCY")


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_ctranslate2_lines_continue_the_text_as_the_model_does(models, precision):
    pytest.importorskip("ctranslate2")
    import torch
    from transformers import LlamaForCausalLM

    names = run(lines_of(models["decoder"], "ctranslate2", precision, new_tokens=(4,)))
    prompt = torch.tensor([names["tokenizer"].encode("An example of your text.")])
    model = LlamaForCausalLM.from_pretrained(models["decoder"])
    expected = model.generate(prompt, max_new_tokens=4, do_sample=False)[0, prompt.shape[1] :].tolist()
    found = [result.sequences_ids[0] for result in names["results"]]
    assert [len(tokens) for tokens in found] == [4, 4]
    assert found == [expected] * 2 or precision == "int8"
    assert len(names["texts"]) == 2
    assert names["generator"].compute_type.startswith(precision)


def test_the_server_of_llamacpp_gets_the_file_and_the_settings(models):
    pytest.importorskip("xllamacpp")
    found = lines_of(
        models["decoder"],
        "llamacpp",
        "int8",
        new_tokens=(4,),
        num_threads=2,
        options={"kv_cache_type": "f32", "flash_attention": "on"},
        unchecked={"lora": "/adapters/one.gguf"},
    )
    *comments, command = found.splitlines()
    assert all(comment.startswith("# ") for comment in comments)
    assert "to serve text, convert the model" in found
    words = shlex.split(command.removeprefix("$ "))
    values = dict(zip(words[1::2], words[2::2], strict=True))
    assert words[0] == "llama-server"
    assert Path(values.pop("--model")).is_file()
    assert values == {
        "--parallel": "2",
        "--ctx-size": "24",
        "--threads": "2",
        "--threads-batch": "2",
        "--cache-type-k": "f32",
        "--cache-type-v": "f32",
        "--flash-attn": "on",
        "--lora": "/adapters/one.gguf",
    }


def test_no_server_of_llamacpp_is_named_that_would_not_draft(models):
    pytest.importorskip("xllamacpp")
    for drafting in ({"draft_model": "/models/draft.gguf"}, {"ngram_lookup": 2}):
        assert lines_of(models["decoder"], "llamacpp", new_tokens=(4,), unchecked=drafting) is None


def test_a_binding_comes_before_the_imports(models):
    lines = lines_of(models["encoder"], "eager", cpu_list="0")
    assert lines.splitlines()[:3] == ["import os", "", "os.sched_setaffinity(0, {0})"]


def test_a_loop_of_passes_has_no_few_lines():
    decoder = Bundle(kind="decoder", graphs={"decode": Graph(file="decode.onnx", inputs=(), outputs=())}, exporter="x")
    assert decoder.forward_graph is None


def test_names_are_literals_whatever_they_contain(models, tmp_path):
    hostile = tmp_path / "'); import os; os.abort() #"
    hostile.symlink_to(models["encoder"])
    assert run(lines_of(hostile, "eager"))["output"].last_hidden_state.shape == (2, 6, 32)
