"""The quality of a small decoder with trained weights, through runtimes and the main command."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.commands.quality import _names, _plans
from benchmarking.commands.quality import main as quality
from benchmarking.core import plugins
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.quality import Quality, QualitySettings, quality_lines
from benchmarking.core.records import Cell, Point, run_from_json
from benchmarking.devices.support.handles import open_device
from benchmarking.load.connections import Target
from benchmarking.load.server_quality import server_quality
from benchmarking.run_hardware_benchmark import main
from benchmarking.sweep.plan.measuring_settings import measured_by
from benchmarking.sweep.run.quality_pass import (
    end_tokens,
    inputs_of,
    measured_quality,
    quality_point,
    quality_points,
    remark,
    size_step,
    why_not_quality,
)
from benchmarking.sweep.run.reference import ReferenceMaker
from benchmarking.tuning.space import quality_to_show
from benchmarking.workloads.support import synthetic_inputs
from benchmarking.workloads.support.quality_inputs import text_windows
from benchmarking.workloads.support.resolve import resolve
from db.run_records import measured_runs, stored_runs
from db.warehouse import Warehouse
from tests.helpers.llama_server import llama_server, write_model
from tests.helpers.trained_decoder import train

SETTINGS = QualitySettings(windows=6)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("decoder"))


@pytest.fixture(autouse=True)
def shared_builds(build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(build_cache))


def quality_in(runtime_name: str, precision: Any, folder: Path, settings: QualitySettings = SETTINGS) -> Quality:
    """The quality of the model in a runtime on the CPU, as a worker measures it."""
    runtime, cpu = plugins.load("benchmarking.runtimes", runtime_name), plugins.load("benchmarking.devices", "cpu")
    workload, (device,) = resolve(str(folder)), cpu.probe()
    mode = runtime.mode_at(precision, runtime.mode(device, workload, {}))
    cell = Cell(
        workload=workload,
        device=device,
        requested_device="cpu",
        runtime=runtime_name,
        runtime_mode=mode,
        precision=precision,
    )
    points = quality_points(cell, settings)
    runtime.import_libraries()
    if runtime.has_build(cell):
        runtime.prepare(cell, points, BuildStore(), "if_needed")
    maker = ReferenceMaker(cell, BuildStore())
    reference = maker.quality_digest(settings)
    maker.close()
    session = runtime.open(cell, open_device(runtime, cpu, device), lambda name: nullcontext(), points)
    found = measured_quality(session, workload, settings, reference, None, size_step(cell))
    session.close()
    return found


@pytest.mark.parametrize(
    ("runtime", "precision", "most"),
    [("llamacpp", "float32", 1e-6), ("ctranslate2", "float32", 1e-10)],
)
def test_another_runtime_at_float32_has_the_quality_of_the_reference(
    runtime: str, precision: str, most: float, decoder: Path
) -> None:
    found = quality_in(runtime, precision, decoder)
    assert found.missing == {}
    assert 0 <= found.values["kl_divergence"].value < most
    assert found.values["top1_agreement"].value == 1.0
    assert abs(found.values["perplexity_increase"].value) < 0.01


@pytest.mark.slow
def test_fewer_bits_lose_more_and_the_intervals_tell_them_apart(decoder: Path) -> None:
    eight, four = (quality_in("onnxruntime", precision, decoder).values for precision in ("int8", "int4"))
    assert 0 < eight["kl_divergence"].value < four["kl_divergence"].value
    assert eight["kl_divergence"].high < four["kl_divergence"].low
    assert four["top1_agreement"].high < 1
    assert len(four["kl_divergence"].by_window) == SETTINGS.windows


def test_the_perplexity_is_that_of_the_models_own_loss(decoder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    workload = resolve(str(decoder))
    windows = text_windows(workload, SETTINGS)
    model = AutoModelForCausalLM.from_pretrained(decoder)
    labels = torch.from_numpy(windows.tokens.copy())
    labels[:, : windows.context] = -100  # only the scored tokens count
    with torch.inference_mode():
        loss = model(input_ids=torch.from_numpy(windows.tokens), labels=labels).loss
    assert quality_in("eager", "float32", decoder).values["perplexity"].value == pytest.approx(
        float(loss.exp()), rel=1e-5
    )


def test_windows_score_each_token_once_with_a_context(decoder: Path) -> None:
    windows = text_windows(resolve(str(decoder)), QualitySettings(windows=3))
    assert windows.tokens.shape == (3, windows.context + windows.scored)
    assert (windows.tokens[0, windows.scored :] == windows.tokens[1, : windows.context]).all()
    again = text_windows(resolve(str(decoder)), QualitySettings(windows=3))
    assert again.digest == windows.digest != text_windows(resolve(str(decoder)), QualitySettings(windows=2)).digest


def test_a_text_is_checked_before_anything_runs(tmp_path: Path, decoder: Path) -> None:
    assert measured_by({}).quality is None
    assert measured_by({"quality": True}).quality == QualitySettings()
    empty = tmp_path / "empty.txt"
    empty.write_text(" \n")
    with pytest.raises(UsageError, match="has no text"):
        measured_by({"quality_text": str(empty)})
    short = tmp_path / "short.txt"
    short.write_text("Too short.")
    settings = measured_by({"quality_text": str(short)}).quality
    assert settings is not None
    with pytest.raises(UnsupportedError, match="and a window takes"):
        text_windows(resolve(str(decoder)), settings)


PROMPTS = (
    "It is a truth",
    "Alice was beginning to",
    "Call me Ishmael. Some",
    "It was the best of",
    "To Sherlock",
    "We",
)


@pytest.fixture(scope="module")
def questions(decoder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, tuple[float, ...]]]:
    """A file of prompts, and which of them the model answers as expected, by transformers itself: every second expected
    answer is the model's own, and so is every second right choice."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(decoder), AutoModelForCausalLM.from_pretrained(decoder)
    lines, right = list[dict[str, Any]](), dict[str, list[float]]()
    for index, prompt in enumerate(PROMPTS):
        ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"]
        made = model.generate(ids, max_new_tokens=16, do_sample=False, pad_token_id=1)[0, ids.shape[1] :]
        text = tokenizer.decode(made, skip_special_tokens=True).lstrip()
        ends = (end for end in range(2, len(text) - 3) if not text[end - 1].isspace())
        end = next(end for end in ends if text.find(text[end : end + 3]) == end)  # what follows occurs only there
        own = text[:end]
        answer = own if index % 2 else f"{own}?"
        lines.append({"prompt": prompt, "answer": ["QQ", answer], "stop": text[end : end + 3]})
        right.setdefault("exact_match", []).append(float(answer == own))

        choices = ["the old gentleman", "of the world", "a great deal"]
        sums = []
        for choice in choices:
            whole = tokenizer(f"{prompt} {choice}", return_tensors="pt", add_special_tokens=False)["input_ids"]
            with torch.inference_mode():
                log_q = model(whole).logits[0].double().log_softmax(-1)
            start = ids.shape[1]
            sums.append(float(log_q[start - 1 : -1].gather(1, whole[0, start:, None]).sum()))
        best = max(range(3), key=sums.__getitem__)
        chosen = best if index % 2 else (best + 1) % 3
        lines.append({"prompt": prompt, "choices": choices, "answer": chosen})
        right.setdefault("choice_accuracy", []).append(float(chosen == best))
    file = tmp_path_factory.mktemp("questions") / "own.jsonl"
    file.write_text("\n".join([*map(json.dumps, lines), "not a question"]))
    return file, {name: tuple(hits) for name, hits in right.items()}


@pytest.mark.parametrize("runtime", ["eager", "onnxruntime", "llamacpp", "ctranslate2"])
def test_a_file_of_questions_is_answered_as_the_model_itself_answers(
    runtime: str, decoder: Path, questions: tuple[Path, dict[str, tuple[float, ...]]]
) -> None:
    file, expected = questions
    found = quality_in(runtime, "float32", decoder, QualitySettings(windows=2, file=str(file)))
    how = found.how_of("questions")
    assert how["left_out"] == {"13": "not JSON, or truncated: Expecting value: line 1 column 1 (char 0)"}
    assert {name: found.values[name].by_window for name in expected} == expected
    assert found.values["exact_match"].value == 0.5
    low, high = found.values["exact_match"].low, found.values["exact_match"].high
    assert low is not None
    assert high is not None
    assert low < 0.2 < 0.8 < high  # six prompts say little
    assert "12 prompts of own.jsonl; left out: line 13 (not JSON" in " ".join(quality_lines(found))
    assert "perplexity" in found.values


def test_a_file_of_questions_that_is_gone_costs_their_scores_alone(decoder: Path, tmp_path: Path) -> None:
    found = quality_in("eager", "float32", decoder, QualitySettings(windows=2, file=str(tmp_path / "gone.jsonl")))
    assert "perplexity" in found.values
    assert "cannot read" in found.missing["exact_match"]


@pytest.mark.forked_children
@pytest.mark.usefixtures("empty_working_folder")
def test_the_command_stores_the_quality_with_the_run(
    decoder: Path, questions: tuple[Path, dict[str, tuple[float, ...]]], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--batch-sizes", "1", "--sequence-lengths", "16", "--new-tokens", "2", "--iterations", "2", "--quiet")
    flags = (*flags, "--quality-windows", "5", "--quality-file", str(questions[0]))
    code = main([str(decoder), "--device", "cpu", "--precision", "bfloat16", *flags, "--save"])
    assert code == 0
    (file,) = Path("benchmark_results").glob("*.json")
    saved = json.loads(file.read_text())
    run = run_from_json(saved, "run")
    assert run.quality is not None
    assert "quality: perplexity" in capsys.readouterr().out
    with Warehouse.open("benchmark_db.duckdb", read_only=True) as warehouse:
        (row,) = warehouse.query("SELECT * FROM hardware_comparison").dicts()
        assert row["kl_divergence"] == run.quality.values["kl_divergence"].value > 0
        assert row["embedding_cosine"] is None
        assert row["exact_match"] == run.quality.values["exact_match"].value
        (back,) = stored_runs(warehouse, [run.run_id])
        assert back.run.quality == run.quality
    old = {name: value for name, value in saved.items() if name != "quality"}
    assert run_from_json(old, "an older file").quality is None


@pytest.mark.forked_children
@pytest.mark.usefixtures("empty_working_folder")
def test_stored_series_get_their_quality_without_being_measured_again(
    decoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--batch-sizes", "1", "--sequence-lengths", "16", "--new-tokens", "2", "--iterations", "2", "--quiet")
    assert main([str(decoder), "--device", "cpu", "--precision", "bfloat16", *flags, "--launches", "1", "--save"]) == 0
    assert quality([str(decoder), "--quality-windows", "5", "--quiet"]) == 0
    assert "bfloat16: perplexity" in " ".join(capsys.readouterr().out.split())
    with Warehouse.open("benchmark_db.duckdb", read_only=True) as warehouse:
        (row,) = warehouse.query("SELECT run_id, kl_divergence FROM hardware_comparison").dicts()
        assert row["kl_divergence"] > 0
        (back,) = stored_runs(warehouse, [row["run_id"]])
        assert back.run.quality is not None
        assert back.run.quality.how["measured_at"]
        (other,) = measured_runs(warehouse, "TRUE", ())
    assert quality([str(decoder), "--quiet"]) == 0  # it has one: nothing is loaded
    assert "it has a quality: --again measures it again" in capsys.readouterr().err
    away = decoder.rename(decoder.with_name("away"))
    assert quality([str(decoder), "--again", "--quiet"]) == 1
    away.rename(decoder)
    assert f"left out: {decoder} cpu eager bfloat16" in capsys.readouterr().err
    changed = [replace(other, has_quality=False, model_revision="other")]
    found, why = _plans(changed, _names(changed), SETTINGS, timeout_s=60, again=False)
    threads = [replace(other, run_id=f"of {count}", num_threads=count) for count in (1, 2)]
    name = f"{decoder} cpu eager bfloat16"
    assert _names(threads) == {"of 1": f"{name}, threads 1", "of 2": f"{name}, threads 2"}
    assert _names([other]) == {other.run_id: name}
    assert (found, set(why.values())) == ([], {"the model has other weights or another configuration now"})
    assert quality(["model=none", "--quiet"]) == 3


def test_random_weights_have_no_quality() -> None:
    assert "random weights" in str(why_not_quality(resolve("tiny-gpt2")))


def test_impossible_logits_cost_the_quality_and_not_the_run(decoder: Path) -> None:
    class Broken:
        def operation(self, point: object) -> Any:
            return self

        def next_token_logits(self, text: np.ndarray) -> np.ndarray:
            return np.full((64, 512), np.nan, dtype=np.float32)

        def close(self) -> None: ...

    found = measured_quality(Broken(), resolve(str(decoder)), SETTINGS, None, "not_run: none")  # type: ignore[arg-type]
    assert not found.values
    assert set(found.missing.values()) == {"failed: the logits contain NaN or Inf"}


def test_a_transcript_of_noise_is_no_quality(tmp_path: Path) -> None:
    workload = resolve("tiny-whisper")
    with pytest.raises(UnsupportedError, match="no processor"):
        quality_point(workload, SETTINGS)
    (tmp_path / "preprocessor_config.json").write_text("{}")
    assert quality_point(replace(workload, path=str(tmp_path)), SETTINGS).batch_size == SETTINGS.windows


@pytest.mark.parametrize(
    ("model", "task", "windows", "inputs"),
    [
        ("tiny-bert", "text-classification", 16, 16),
        ("tiny-bert", "text-classification", 512, 512),
        ("tiny-vit", None, 40, 40),
        ("tiny-unet", None, 16, 4),
        ("tiny-unet", None, 8, 8),
    ],
)
def test_other_tasks_are_measured_on_as_many_inputs_as_windows(
    model: str, task: str | None, windows: int, inputs: int
) -> None:
    assert quality_point(resolve(model, task=task), QualitySettings(windows=windows)).batch_size == inputs


def test_settings_of_the_quality_that_do_not_hold_for_a_task_are_said(tmp_path: Path) -> None:
    classifier, diffusion = (
        replace(resolve(model, task=task), weights="given")
        for model, task in (("tiny-bert", "text-classification"), ("tiny-unet", None))
    )
    text = QualitySettings(text=str(tmp_path / "a.txt"), windows=8)
    assert "--quality-text: of text generation only" in str(remark(classifier, text))
    assert "is measured on 8 inputs" in str(remark(classifier, text))
    assert remark(classifier, QualitySettings()) is None
    assert "is measured on 4 inputs" in str(remark(diffusion, QualitySettings()))
    assert remark(diffusion, QualitySettings(windows=8)) is None
    assert remark(resolve("tiny-gpt2"), text) is None


def test_a_classifier_that_always_agrees_shows_the_agreement_that_its_inputs_were_chosen_for(tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, BertConfig

    config = BertConfig(
        vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=64,
    )  # fmt: skip
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    settings = quality_to_show({"agreement": 0.97}, resolve(str(tmp_path)))
    found = quality_in("eager", "float32", tmp_path, settings)
    assert found.values["top1_agreement"].value == 1.0
    assert len(found.values["top1_agreement"].by_window) == settings.windows == 122
    assert found.values["top1_agreement"].low is not None
    assert found.values["top1_agreement"].low >= 0.97


def test_a_text_ends_at_the_tokens_of_every_part_and_with_berts_vocabulary_at_its_separator() -> None:
    """BLIP's configuration names another end than the one with which its captions end."""
    blip = {"text_config": {"eos_token_id": 2, "sep_token_id": 102, "pad_token_id": 0}, "vision_config": {}}
    assert end_tokens(blip) == {2, 102}
    assert end_tokens({"eos_token_id": [1, 7], "decoder": {"eos_token_id": None}}) == {1, 7}


def test_another_recording_makes_other_inputs_of_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, point = resolve("tiny-whisper"), Point(batch_size=16, new_tokens=32)
    before = inputs_of(workload, "tokens", point)
    synthetic_inputs.speech_digest.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(synthetic_inputs, "SPEECH", "quality_text.txt")
        assert inputs_of(workload, "tokens", point) != before
    synthetic_inputs.speech_digest.cache_clear()
    assert inputs_of(workload, "tokens", point) == before


def test_a_gguf_file_has_the_perplexity_that_its_server_states(tmp_path: Path) -> None:
    """Its own vocabulary makes the same windows in transformers as in llama.cpp."""
    pytest.importorskip("xllamacpp")
    file, text = tmp_path / "tiny.Q4_0.gguf", tmp_path / "text.txt"
    write_model(file)
    text.write_text(" ".join(f"Is {number} b or a b?" for number in range(60)))
    settings = QualitySettings(windows=5, text=str(text))
    runtime, cpu = plugins.load("benchmarking.runtimes", "llamacpp"), plugins.load("benchmarking.devices", "cpu")
    workload, (device,) = resolve(str(file)), cpu.probe()
    mode = runtime.mode_at("float32", runtime.mode(device, workload, {"kv_cache_type": "f16"}))
    cell = Cell(
        workload=workload, device=device, requested_device="cpu", runtime="llamacpp", runtime_mode=mode,
        precision="float32",
    )  # fmt: skip
    handle = open_device(runtime, cpu, device)
    session = runtime.open(cell, handle, lambda name: nullcontext(), quality_points(cell, settings))
    found = measured_quality(session, workload, settings, None, "not_supported: a file has no torch model")
    session.close()
    with llama_server(file, slots=1) as address:
        stated = server_quality(Target(url=address, model="tiny"), settings, None)
    assert stated.how["by"] == "n_probs"
    assert (found.inputs, len(found.values["perplexity"].by_window)) == (stated.inputs, 5)
    logarithms = [[math.log(value) for value in one.values["perplexity"].by_window] for one in (found, stated)]
    assert logarithms[0] == pytest.approx(logarithms[1], rel=1e-4)
    assert found.missing["kl_divergence"] == "not_supported: a file has no torch model"
