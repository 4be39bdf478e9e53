"""What the tables of settings say is part of a series, its id depends on; and on no other setting."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy
import onnx
import pytest
from onnx import TensorProto, helper
from safetensors.numpy import save_file

from benchmarking.commands import load_server
from benchmarking.core.command_line import parser_of
from benchmarking.core.help_texts import series_flags
from benchmarking.core.load_doubts import LIMIT_WORDS
from benchmarking.core.provenance import provenance, utc_now
from benchmarking.core.shared_settings import SHARED, parse_limits
from benchmarking.load.load_settings import LOAD
from benchmarking.load.served import Own
from benchmarking.load.server_plan import servers
from benchmarking.sweep.plan.measuring_settings import MEASURING
from benchmarking.sweep.plan.request import plan_cell, requests_of
from benchmarking.sweep.run.supervisor import finished_run
from db.rows import series_id, series_keys

pytestmark = [pytest.mark.forked_children, pytest.mark.usefixtures("_own_files")]
GRAPH, SAVED = "graph.onnx", "saved"
RUN_LINES = {
    "task": ("tiny-gpt2", "--task=feature-extraction"),
    "weights": (SAVED, "--weights=random"),
    "device": ("tiny-bert", "--device=cpu"),
    "runtime": ("tiny-bert", "--device=cpu", "--runtime=compiled"),
    "precision": ("tiny-bert", "--precision=bfloat16"),
    "num_threads": ("tiny-bert", "--device=cpu", "--num-threads=1"),
    "cpu_list": ("tiny-bert", "--device=cpu", "--cpu-list=0"),
    "dim": (GRAPH, "--device=cpu", "--runtime=onnxruntime", "--dim=width=48"),
    "input": (GRAPH, "--device=cpu", "--runtime=onnxruntime", "--input=x=2"),
    "inputs": (GRAPH, "--device=cpu", "--runtime=onnxruntime", "--inputs=x.npz"),
    "batch_size": ("tiny-bert", "--batch-size=2"),
    "sequence_length": ("tiny-bert", "--sequence-length=16"),
    "new_tokens": ("tiny-gpt2", "--new-tokens=4"),
    "concurrency": ("tiny-bert", "--device=cpu", "--runtime=onnxruntime", "--concurrency=2"),
    "image_size": ("tiny-vit", "--image-size=64"),
    "audio_seconds": ("tiny-whisper", "--audio-seconds=1.5"),
    "steps": ("tiny-unet", "--steps=3"),
    "documents": ("tiny-rag", "--documents=9"),
    "top_k": ("tiny-rag", "--top-k=2"),
    "profile": ("tiny-bert", "--profile=reference"),
    "iterations": ("tiny-bert", "--iterations=7"),
    "warmup_iterations": ("tiny-bert", "--warmup-iterations=3"),
    "launches": ("tiny-bert", "--launches=2"),
    "cold_cache": ("tiny-bert", "--device=cpu", "--cold-cache"),
    "quality": ("tiny-bert", "--device=cpu", "--quality"),
    "quality_text": ("tiny-gpt2", "--device=cpu", "--quality-text=text.txt"),
    "quality_windows": ("tiny-gpt2", "--device=cpu", "--quality-windows=9"),
    "quality_file": ("tiny-gpt2", "--device=cpu", "--quality-file=prompts.jsonl"),
    "timeout": ("tiny-bert", "--timeout=9"),
    "skip_unsupported": ("tiny-bert", "--skip-unsupported"),
    "cache_dir": ("tiny-bert", "--cache-dir=kept"),
    "rebuild": ("tiny-bert", "--rebuild=always"),
    "lean_cache": ("tiny-bert", "--lean-cache"),
}
"""Setting -> a model, what else the command line has, and the flag."""
SERVER = ("m", "--url=http://127.0.0.1:1/v1")
OPEN = (*SERVER, "--request-rate=2")
LOAD_LINES = {
    "url": ("m", "--url=http://192.0.2.2/v1"),
    "endpoint": (*SERVER, "--endpoint=chat"),
    "engine": (*SERVER, "--engine=vllm"),
    "precision": (*SERVER, "--precision=float16"),
    "hardware": (*SERVER, "--hardware=H100"),
    "http2": (*SERVER, "--http2"),
    "omit_fields": (*SERVER, "--omit-fields=ignore_eos"),
    "timeout": (*SERVER, "--timeout=9"),
    "concurrency": (*SERVER, "--concurrency=4"),
    "request_rate": (*SERVER, "--request-rate=3"),
    "limit": (*SERVER, "--limit=e2e:2s"),
    "share": (*SERVER, "--limit=e2e:2s", "--share=95%"),
    "duration": (*SERVER, "--duration=9"),
    "num_requests": (*SERVER, "--num-requests=9"),
    "repetitions": (*SERVER, "--repetitions=2"),
    "warmup_requests": (*SERVER, "--warmup-requests=9"),
    "arrivals": (*OPEN, "--arrivals=constant"),
    "variation": (*OPEN, "--arrivals=gamma", "--variation=2"),
    "burst": (*OPEN, "--arrivals=burst", "--burst=3"),
    "input_length": (*SERVER, "--input-length=99"),
    "prompt_ids": (*SERVER, "--prompt-ids=99"),
    "output_length": (*SERVER, "--output-length=99"),
    "lengths": (*SERVER, "--lengths=99/99"),
    "shared_prefix": (*SERVER, "--shared-prefix=0.5"),
    "turns": (*SERVER, "--turns=2"),
    "think_time": (*SERVER, "--turns=2", "--think-time=5"),
    "tool_calls": (*SERVER, "--tool-calls=2"),
    "tool_pause": (*SERVER, "--tool-calls=2", "--tool-pause=5"),
    "sharegpt": (*SERVER, "--sharegpt=talks.json"),
    "seed": (*SERVER, "--seed=9"),
    "serve": ("m", "--serve=python m --port {port}"),
    "sweep": ("m", "--serve=python --n {n} --port {port}", "--sweep=n=1,2"),
}
NOT_TRIED = {
    "trace": "it is in the series by the name and content of its file, as sharegpt is",
    **dict.fromkeys(("find_rate", "fail_on"), "what is made of the levels"),
    **dict.fromkeys(("start_timeout", "capacity_seconds", "device_metrics"), "before and beside the levels"),
    **dict.fromkeys(("ca_file", "tokenizer"), "needs a file, and changes no request"),
}
"""Setting of a load on a server without a line above -> why."""


@pytest.fixture
def _own_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("words of a text " * 500)
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "one and one", "answer": "two"}\n')
    talks = [{"conversations": [{"from": "human", "value": "a b"}, {"from": "gpt", "value": "c d"}]}]
    (tmp_path / "talks.json").write_text(json.dumps(talks))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "width"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "width"])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / GRAPH)
    numpy.savez(tmp_path / "x.npz", x=numpy.ones((1, 8), dtype="float32"))
    (saved := tmp_path / SAVED).mkdir()
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = {"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 9, **sizes}
    (saved / "config.json").write_text(json.dumps(config))
    save_file({"w": numpy.ones(1, dtype="float32")}, saved / "model.safetensors")


def _series_of_run(*line):
    arguments = parser_of("run").parse_args([*line, *([] if "--batch-size=2" in line else ["--batch-size=1"])])
    (request, *_) = requests_of(arguments, arguments.model_id, ())
    runtime = arguments.runtimes[0] if arguments.runtimes else None
    plan = plan_cell(replace(request, runtime=runtime), "session")
    run = finished_run(plan, [], [], utc_now())
    return series_id(series_keys(run, run.results[0].point))


@pytest.mark.parametrize("name", RUN_LINES)
def test_a_setting_of_a_run_is_part_of_the_series_if_its_entry_says_so(name):
    line = RUN_LINES[name]
    assert line[-1].split("=")[0] == MEASURING[name].flag
    null = () if any(word.startswith("--device") for word in line) else ("--device=null",)
    differs = _series_of_run(*line[:-1], *null) != _series_of_run(*line, *(null if name != "device" else ()))
    assert differs == MEASURING[name].in_series


def test_every_setting_of_a_run_is_tried():
    """Where results go and what is shown of them are no part of a measurement."""
    assert RUN_LINES.keys() == MEASURING.keys() - SHARED.keys()
    assert not [name for name, setting in SHARED.items() if setting.in_series]


def _series_of_load(*line):
    arguments = load_server._parser().parse_args(line)
    load_server._check_subject(arguments)
    limits = parse_limits(",".join(arguments.limit), LIMIT_WORDS) if arguments.limit else {}
    traffic, level = load_server._traffics(arguments)[0], load_server._levels(arguments)[0]
    target = load_server._target(arguments)
    load = load_server._server_load(arguments, limits, traffic, target, lambda text: None)
    if arguments.serve is not None:
        load.own = Own(combination=servers(arguments.serve, arguments.sweep, arguments.model_id)[0], is_cold=True)
    run = load.run([load.failed(level, "down")], {}, provenance((), {}, None), utc_now(), is_open=level.is_open)
    return series_id(series_keys(run, run.results[0].point))


@pytest.mark.parametrize("name", LOAD_LINES)
def test_a_setting_of_a_load_on_a_server_is_part_of_the_series_if_its_entry_says_so(name):
    *before, last = LOAD_LINES[name]
    assert last.split("=")[0] in (LOAD[name].flag, LOAD[name].list_flag)
    other = {
        "url": "--url=http://192.0.2.1/v1",
        "serve": "--serve=python m --slow --port {port}",
        "sweep": "--sweep=n=2",
    }
    differs = _series_of_load(*before, *([other[name]] if name in other else [])) != _series_of_load(*before, last)
    assert differs == LOAD[name].in_series


def test_every_setting_of_a_server_is_tried():
    """Else one that is wrongly not marked would pass."""
    of_servers = {name for name, one in LOAD.items() if one.applies <= {"server"}}
    assert of_servers - (LOAD_LINES.keys() | RUN_LINES.keys() | SHARED.keys()) == NOT_TRIED.keys()
    assert {name for name in NOT_TRIED if LOAD[name].in_series} == {"trace"}
    assert all(LOAD[name].in_series == one.in_series for name, one in MEASURING.items())


def test_the_full_help_names_the_settings_of_a_series():
    assert "--precisions" in series_flags(parser_of("run"))
    assert "--timeout" not in series_flags(parser_of("run"))
    assert series_flags(parser_of("query")) == ""
