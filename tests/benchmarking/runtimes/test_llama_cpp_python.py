"""llama.cpp through llama-cpp-python, used if xllamacpp is not installed: tokens, clocks, caches, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="pip install llama-cpp-python (built from source, about 12 minutes)")
pytest.importorskip("gguf")

from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.plugins import is_installed
from benchmarking.core.records import Workload
from benchmarking.runtimes import llamacpp
from benchmarking.runtimes.support.engines.engine_session import EngineSettings
from benchmarking.runtimes.support.engines.llama_cpp_python import PythonBinding
from benchmarking.runtimes.support.engines.weight_files import gguf_build
from tests.helpers.engines import CPU, POINT, called, opened, prompts_at

NAME = "llamacpp"
DEPTH = 40


@pytest.fixture(scope="module", autouse=True)
def without_xllamacpp(engine_cache: None) -> Iterator[None]:
    """xllamacpp counts as not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llamacpp, "is_installed", lambda name: name != llamacpp.MAIN and is_installed(name))
        yield


@pytest.mark.parametrize("flash_attention", ["on", "auto"])
def test_tokens_equal_eagers_and_llama_cpps_own_times_are_within_the_wall_times(
    flash_attention: str, llama: Workload, eager: Callable[..., Any]
) -> None:
    marks: list[str] = []
    with opened(NAME, llama, flash_attention=flash_attention) as (session, operation):
        found = called(operation, marks)
        own = operation.runtime_times_ns()
        facts = session.verified
    assert found == eager(prompts_at(llama, POINT))
    assert marks == ["token"] * 12
    assert 0 < own["engine_time_to_first_token"] < own["latency_request"]
    assert own["engine_time_per_output_token"] * 11 < own["latency_request"]
    assert facts["engine"].startswith("llama-cpp-python ")
    assert "AVX" in facts["engine_system"] or "NEON" in facts["engine_system"]
    assert (facts["kv_cache_type"], facts["bits_per_weight"]) == (["f32", "f32"], 32.0)
    assert facts["flash_attention"] == ("enabled" if flash_attention == "on" else "disabled")


def test_call_at_a_context_depth_generates_eagers_tokens(llama: Workload, eager: Callable[..., Any]) -> None:
    context = prompts_at(llama, replace(POINT, sequence_length=DEPTH), llama.seed + 1)
    expected = eager(np.concatenate([context, prompts_at(llama, POINT)], axis=1))
    with opened(NAME, llama, context_depth=str(DEPTH)) as (_, operation):
        assert [called(operation) for _ in range(3)] == [expected] * 3


@pytest.mark.parametrize(("setting", "share"), [("on", 23 / 24), ("off", None)])
def test_prompts_of_earlier_calls_are_reused_only_with_a_prefix_cache(
    setting: str, share: float | None, llama: Workload, eager: Callable[..., Any]
) -> None:
    with opened(NAME, llama, prefix_cache=setting) as (_, operation):
        assert [called(operation) for _ in range(3)] == [eager(prompts_at(llama, POINT))] * 3
        found = {one.name: one.value for one in operation.metrics()}
    assert found.get("prefix_cache_hit_share") == (None if share is None else pytest.approx(share))


def test_a_quantized_type_is_made_by_the_library_and_runs(llama: Workload) -> None:
    with opened(NAME, llama, precision="int4") as (session, operation):
        called(operation)
        assert 4.5 < session.verified["bits_per_weight"] < 8.6


def test_a_batch_is_refused_and_a_single_row_runs(llama: Workload) -> None:
    with opened(NAME, llama) as (session, operation):
        with pytest.raises(UnsupportedError, match="one sequence at a time: use --batch-sizes 1"):
            session.operation(replace(POINT, batch_size=2))
        called(operation)


@pytest.mark.parametrize("options", [{"draft_model": "tiny-llama"}, {"ngram_lookup": "2"}])
def test_speculative_decoding_is_refused_with_the_reason(options: dict[str, str], llama: Workload) -> None:
    with pytest.raises(UnsupportedError, match="does not report how many proposed tokens were accepted"):
        llamacpp.PLUGIN.mode(CPU, llama, options)


def test_file_llama_cpp_cannot_load_is_one_line(tmp_path: Path, llama: Workload) -> None:
    gguf_build(llama, "F32")[1](tmp_path)
    of_wide_heads = EngineSettings(kv_cache_type="q8_0")
    with pytest.raises(BenchhouseError, match=r"^llama\.cpp cannot load model\.gguf with these settings: .+\Z"):
        PythonBinding(tmp_path / "model.gguf", of_wide_heads, [POINT])
