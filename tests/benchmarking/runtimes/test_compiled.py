"""The compiled runtime: its modes, what it compiles, and that FLOPs, outputs and readings stay the model's.

Where only the tracing matters, not the code that comes of it, torch.compile's own backend "eager" stands in for
TorchInductor, which takes half a minute for the smallest model; test_compiled_inductor.py runs that once.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Device, Point
from benchmarking.runtimes import compiled
from benchmarking.runtimes.compiled import PLUGIN
from benchmarking.runtimes.eager import PLUGIN as EAGER
from benchmarking.runtimes.support.torch import compiling
from benchmarking.workloads.support.resolve import resolve

POINT = Point(batch_size=1, sequence_length=16)
GENERATE = Point(batch_size=1, sequence_length=16, new_tokens=3)


def device(kind="cpu"):
    return Device(type=kind, selector=kind, found=True)


@pytest.fixture
def traced_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile with its backend "eager": graphs are captured, guarded and counted, but not compiled."""
    compile_module = torch.nn.Module.compile

    def with_backend(self, *, mode, dynamic):
        compile_module(self, backend="eager", dynamic=dynamic)

    monkeypatch.setattr(torch.nn.Module, "compile", with_backend)


def test_mode_is_complete_with_its_defaults():
    assert PLUGIN.mode(device(), resolve("tiny-gpt2"), {}) == {
        "attention": "sdpa",
        "cache": "dynamic",
        "compile_mode": "default",
        "dynamic": "auto",
    }
    options = {"attention": "eager", "compile_mode": "max-autotune", "dynamic": "true"}
    assert PLUGIN.mode(device(), resolve("tiny-bert"), options) == options
    offered = [option.name for option in PLUGIN.options(resolve("tiny-bert"))]
    assert offered == ["attention", "compile_mode", "dynamic", "quantization"]


@pytest.mark.parametrize(
    ("kind", "options", "error", "message"),
    [
        ("cpu", {"compile_mode": "fast"}, UsageError, "compile_mode 'fast': runtime compiled has default, reduce-over"),
        ("cpu", {"dynamic": "yes"}, UsageError, "dynamic 'yes': runtime compiled has auto, true, false"),
        ("cpu", {"compile_mode": "reduce-overhead"}, UnsupportedError, "uses CUDA graphs, which cpu does not have"),
        ("cuda", {"compile_mode": "reduce-overhead"}, UnsupportedError, "use --cache static"),
        ("cuda", {"compile_mode": "max-autotune"}, UnsupportedError, "use --cache static"),
    ],
)
def test_silently_replaced_modes_are_refused(kind, options, error, message):
    with pytest.raises(error, match=message):
        PLUGIN.mode(device(kind), resolve("tiny-gpt2"), options)


def test_cuda_graphs_need_a_static_cache_or_none():
    options = {"compile_mode": "reduce-overhead"}
    assert PLUGIN.mode(device("cuda"), resolve("tiny-gpt2"), {**options, "cache": "static"})["cache"] == "static"
    assert PLUGIN.mode(device("cuda"), resolve("tiny-bert"), options)["compile_mode"] == "reduce-overhead"


def test_every_point_has_its_own_process():
    assert PLUGIN.point_per_process
    assert not EAGER.point_per_process


@pytest.mark.parametrize(
    ("name", "point", "modules"),
    [
        ("tiny-bert", POINT, ("BertModel",)),
        ("tiny-t5", GENERATE, ("encoder", "T5ForConditionalGeneration")),
        ("tiny-unet", Point(batch_size=1, axes={"image_size": 64, "steps": 2}), ("UNet2DConditionModel",)),
        (
            "tiny-rag",
            Point(batch_size=1, sequence_length=8, new_tokens=2, axes={"documents": 20, "top_k": 2}),
            ("rag.question_encoder", "rag.generator.model.encoder", "RagTokenForGeneration"),
        ),
    ],
)
def test_the_modules_that_a_call_calls_are_compiled(open_torch, name, point, modules):
    """Nothing is compiled yet here: torch does that in the first call."""
    session = open_torch(PLUGIN, name)
    operation = session.operation(point)
    assert operation.compiled_modules == modules
    compiled = [module for module in session.model.modules() if module._compiled_call_impl is not None]
    assert len(compiled) == len(modules)
    assert session.compiles() == 0


def test_modules_inside_a_called_module_are_not_listed():
    inner, outer = torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.GELU())
    value = torch.zeros(1, 2)
    assert compiling.called_modules(lambda: outer(inner(inner(value)))) == (inner, outer)
    assert compiling.called_modules(lambda: value + 1) == ()


def test_observation_ends_with_the_call_even_if_it_raises():
    def fail():
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        compiling.called_modules(fail)
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert not torch.nn.modules.module._global_forward_hooks


def test_compiled_encoder_decoder_has_eagers_tokens_flops_and_readings(open_torch, traced_only):
    """The encoder is one graph; the decoder is compiled for the prefill and again for the steps."""
    operation, plain = (
        open_torch(PLUGIN, "tiny-t5").operation(GENERATE),
        open_torch(EAGER, "tiny-t5").operation(GENERATE),
    )
    expected = plain.arrays(plain.run(lambda name: None))
    output = operation.run(lambda name: None)
    np.testing.assert_array_equal(operation.arrays(output)["tokens"], expected["tokens"])
    assert operation.count().values == plain.count().values
    assert operation.readings(output).values == plain.readings(None).values
    verified = operation.verified()
    assert verified["compiled_modules"] == ["encoder", "T5ForConditionalGeneration"]
    assert verified["graph_count"] == verified["recompile_count"] + 2
    assert verified["graph_break_count"] == 0
    assert verified["compile_s"] > 0


def test_expert_readings_use_an_uncompiled_call(open_torch, traced_only):
    operation = open_torch(PLUGIN, "tiny-mixtral").operation(GENERATE)
    plain = open_torch(EAGER, "tiny-mixtral").operation(GENERATE)
    before = open_torch(EAGER, "tiny-mixtral").operation(GENERATE)
    values = operation.readings(operation.run(lambda name: None)).values
    assert values == plain.readings(before.run(lambda name: None)).values
    assert values["expert_load_imbalance"] >= 1


@pytest.mark.parametrize("made", [torch.nn.ReLU, lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())])
def test_modules_of_torch_itself_are_compiled_too(made, traced_only):
    """As scripts call them, without an enclosing module."""
    module = made()
    with ExitStack() as cleanup:
        log = compiling.CompileLog.begin(cleanup)
        compiling.compile_in_place(module, mode="default", dynamic=None)
        module(torch.ones(2, 4))
        assert (log.graphs(), log.verified()["graph_break_count"]) == (1, 0)


def test_call_without_compilation_is_refused(open_torch):
    operation = open_torch(PLUGIN, "tiny-bert").operation(POINT)
    with (
        torch.compiler.set_stance("force_eager"),
        pytest.raises(UnsupportedError, match=r"torch\.compile compiled nothing"),
    ):
        operation.readings(operation.run(lambda name: None))


def settings(**fields):
    defaults = {"mode": "reduce-overhead", "dynamic": None, "uses_cuda_graphs": True, "cache": None}
    return compiling.CompileSettings(**{**defaults, **fields})


def operation_with(skips, graphs):
    log = SimpleNamespace(
        graphs=lambda: graphs, cuda_graph_skips=lambda: (skips, ("mutated inputs",) if skips else ()), verified=dict
    )
    inner = SimpleNamespace(
        items_per_call=1,
        tokens_per_call=None,
        prompt_tokens_per_call=None,
        new_tokens=None,
        streams=True,
        keeps_state=False,
        reset=lambda: None,
        run=lambda mark: None,
    )
    return compiling.CompilingOperation(log, settings(), inner, "b1")


def test_each_token_of_a_generation_is_a_step_of_cuda_graphs_with_eagers_tokens(open_torch, traced_only, monkeypatch):
    """A step is what torch counts (`MarkStepBox`): all decode steps are replays of one graph, where a step for the
    whole call would record one for each position."""
    from torch._inductor.cudagraph_trees import MarkStepBox

    monkeypatch.setattr(compiled, "_uses_cuda_graphs", lambda device, mode: True)
    operation = open_torch(PLUGIN, "tiny-gpt2", compile_mode="reduce-overhead", cache="static").operation(GENERATE)
    plain = open_torch(EAGER, "tiny-gpt2").operation(GENERATE)
    expected = plain.arrays(plain.run(lambda name: None))
    before = MarkStepBox.mark_step_counter
    output = operation.run(lambda name: None)
    assert before - MarkStepBox.mark_step_counter == GENERATE.new_tokens  # the prefill gives the first
    np.testing.assert_array_equal(operation.arrays(output)["tokens"], expected["tokens"])
    operation.next_token_logits(np.zeros(16 + 3, dtype=np.int64))
    assert before - MarkStepBox.mark_step_counter == 2 * GENERATE.new_tokens


def test_a_cuda_graph_mode_without_a_graph_is_reported():
    verified = operation_with(2, 2).verified()
    assert verified["not_as_requested"] == "no graph became a CUDA graph: mutated inputs"
    verified = operation_with(1, 2).verified()
    assert (verified["cuda_graph_skips"], verified["cuda_graph_skip_reasons"]) == (1, ["mutated inputs"])
    assert "not_as_requested" not in verified


def test_calls_of_cuda_graphs_are_checked_as_replays():
    """torch does not dispatch its kernels: without a GPU none is seen, and the point is kept."""
    operation = operation_with(0, 2)
    assert (operation.is_compiled, operation.is_replayed) == (True, True)
    operation._attention = "sdpa:flash"
    assert "cannot verify" in operation.verified()["not_verified"]


def test_outputs_of_cuda_graphs_are_copied():
    from transformers.modeling_outputs import BaseModelOutput

    kept = torch.zeros(2)

    def replay(value):
        kept.fill_(value)
        return BaseModelOutput(last_hidden_state=kept)

    copied = compiling.as_own_step(replay)
    first = copied(1.0)
    copied(2.0)
    assert first.last_hidden_state.tolist() == [1.0, 1.0]
    assert replay(3.0).last_hidden_state is kept
