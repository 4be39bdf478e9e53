"""Runtimes that load what is made of a model, with tiny models of the families, by the shipped command: the same work
as eager does, the same output, and nothing of another runtime under this one's name.

An export takes ten seconds and more, so that a family of every kind of graphs is measured, and all of them where
BENCHHOUSE_TEST_ALL is set. torch.compile takes minutes over them, so it is among the runtimes only where
BENCHHOUSE_TEST_COMPILED is set; one model of it is measured in any case, where the runtime itself is tested.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarking.batch_benchmark import main
from benchmarking.core import plugins
from benchmarking.core.plugins import family_names
from benchmarking.core.records import Run, run_from_json
from benchmarking.measure.context import settings
from benchmarking.measure.quality_measures import tolerance_of
from benchmarking.sweep.plan.request import Request, plan_cell
from benchmarking.sweep.run.preparation import make_all
from benchmarking.sweep.run.process import PreparationJob
from benchmarking.workloads.support import families
from benchmarking.workloads.support.families import family_of, recipe_of
from tests.docs import support_table

pytestmark = pytest.mark.forked_children

BATCH, ITERATIONS, NEW_TOKENS, STEPS = 2, 3, 3, 2
TINY = {family_of(entry.config, entry.name).name: entry for entry in families.catalog_entries() if not entry.hub}
RUNTIMES = ("onnxruntime", "openvino", *(("compiled",) if os.environ.get("BENCHHOUSE_TEST_COMPILED") else ()))
ONE_OF_EACH = ("encoder-only", "decoder-only", "encoder-decoder", "diffusion", "state-space", "rag")
"""Each kind of graphs once; the states of the fifth do not grow, and the last has no graphs."""
BY_THE_COMMAND = "encoder-only"
"""The family whose graphs and reference are made by the command itself, in its own process."""
MEASURED = family_names() if os.environ.get("BENCHHOUSE_TEST_ALL") else ONE_OF_EACH
GRID = ["--batch-sizes", BATCH, "--sequence-lengths", 16, "--new-tokens", NEW_TOKENS, "--steps", STEPS]
GRID += ["--documents", 50, "--top-k", 2, "--iterations", ITERATIONS, "--warmup-iterations", 1, "--launches", 1]


def make_builds(families: Sequence[str]) -> None:
    """Make what the command would make for these families, in this one process: importing torch and what exports with
    it takes as long as an export."""
    for family in families:
        axes = {"steps": (STEPS,)} if family == "diffusion" else {}
        request = Request(
            model_id=TINY[family].name,
            device="cpu",
            runtime="onnxruntime",
            batch_sizes=(BATCH,),
            sequence_lengths=(16,),
            new_tokens=(NEW_TOKENS,),
            axes=axes,
            shared_axes=frozenset({"sequence_length", "new_tokens"}),
            settings=settings("quick"),
        )
        plan = plan_cell(request, "session")
        make_all(PreparationJob(cell=plan.cell, points=plan.runnable, rebuild="if_needed"), lambda message: None)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> dict[tuple[str, str], Run]:
    """The runs of one batch of these tiny models on all these runtimes, by runtime and family."""
    folder = tmp_path_factory.mktemp("runtimes")
    names = ",".join(TINY[family].name for family in MEASURED)
    what = ["--models", names, "--devices", "cpu", "--runtimes", ",".join(RUNTIMES), "--skip-unsupported"]
    kept = ["--output-dir", folder, "--db-path", folder / "b.duckdb", "--quiet", "--cache-dir", build_cache]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "HF_HUB_OFFLINE", "1")
        patch.setitem(os.environ, "BENCHHOUSE_CACHE_DIR", str(build_cache))
        make_builds([family for family in MEASURED if family not in (BY_THE_COMMAND, "rag")])
        assert main([str(word) for word in (*what, *GRID, *kept)]) == 0
    files = [path for path in Path(folder).glob("*.json") if path.name != "benchmark_summary.json"]
    found = [run_from_json(json.loads(path.read_text()), str(path)) for path in files]
    return {(run.cell.runtime, str(run.cell.workload.family)): run for run in found}


def test_measured_families_cover_every_kind_of_graphs() -> None:
    tiny = support_table.tiny_models_by_family()
    recipes = {family: recipe_of(models[-1]) for family, models in tiny.items()}
    kinds = {family: "none" if isinstance(recipe, str) else recipe.kind for family, recipe in recipes.items()}
    assert {kinds[family] for family in ONE_OF_EACH} == set(kinds.values())
    assert set(kinds) == set(family_names())


@pytest.mark.slow
@pytest.mark.parametrize("family", MEASURED)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_pairs_match_the_reference_or_are_skipped_with_a_reason(
    runs: dict[tuple[str, str], Run], runtime: str, family: str
) -> None:
    run = runs[runtime, family]
    (result,) = run.results
    cell = run.cell
    why_not = plugins.load("benchmarking.runtimes", runtime).supports(cell.device, cell.workload, cell.precision)
    if why_not is not None:
        assert result.status == "skipped"
        assert why_not in str(result.error)
        return
    assert (result.status, result.error, result.iterations) == ("ok", None, ITERATIONS)
    assert not [doubt.kind for doubt in result.doubts if doubt.severity == "invalid"]
    assert result.metrics["output_error"] <= tolerance_of("float32", cell.workload.family).relative_l2
    if result.point.new_tokens is not None:
        assert result.metrics["output_equal_token_share"] == 1.0
        assert result.metrics["time_to_first_token_ms"] > 0
    assert cell.workload.parameter_count == TINY[family].parameter_count
    assert result.metrics["flops"] > TINY[family].parameter_count / 10


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_loaded_build_is_reported_and_made_beforehand(runs: dict[tuple[str, str], Run], runtime: str) -> None:
    run = runs[runtime, "encoder-only"]
    (load,) = run.loads
    assert "float32" in load.verified["parameter_dtypes"]
    if runtime != "compiled":
        assert run.preparation is not None
        assert run.preparation.build["kind"] == ("onnx" if runtime == "onnxruntime" else runtime)
        assert run.preparation.build["build_s"] >= 0
        assert load.memory_bytes["weights_bytes"] >= 4 * TINY["encoder-only"].parameter_count
