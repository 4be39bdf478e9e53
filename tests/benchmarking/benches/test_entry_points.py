"""Function benchmarks, custom metrics, and measuring them from Python and by flags."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarking import batch_benchmark, cli
from benchmarking.benches.discovery import discover
from benchmarking.benches.model_benchmark import BenchmarkConfig, create_config_variants
from benchmarking.benches.runner import BenchPlanning, replaced_configs
from benchmarking.core.errors import UsageError
from benchmarking.core.metrics import CustomMetric
from benchmarking.core.scenario_file import scenario_file
from benchmarking.measure.context import settings
from db.warehouse import Warehouse
from tests.helpers.paths import ROOT

pytestmark = pytest.mark.forked_children

OWN = '''
"""A benchmark that times itself, with a metric that depends on its options."""
import itertools
import sys
from benchmarking import BenchmarkConfig, CustomMetric, ModelBenchmark, measure_file

class Own(ModelBenchmark):
    configs = [BenchmarkConfig(model_id="small", num_tokens_to_generate=4, measurement_iterations=3)]
    devices = ("null",)
    def setup_model(self):
        print("hello from", self.config.model_id, self.config.num_tokens_to_generate)
        self.times = itertools.cycle([2.0, 2.5, 1.5, 2.0])
    def measure_latency(self):
        return next(self.times)
    def metrics(self):
        yield CustomMetric(name="accepted", value=3.0 * self.config.new_tokens, unit="tokens/step", better="higher")
        yield CustomMetric(name="drafts", value=7)

if __name__ == "__main__":
    sys.exit(measure_file(__file__))
'''


def options(**fields):
    chosen = settings("quick", iterations=None, warmup_iterations=None, launches=None, cold_cache=False)
    return BenchPlanning(session_id="s", settings=chosen, **fields)


def test_a_timed_function_gets_the_config_fields_it_names(write, measure):
    write(
        "sorting.py",
        """
        def run_sorting(batch_size=2, num_tokens_to_generate=3, torch_device=None, **others):
            assert (batch_size, num_tokens_to_generate, torch_device, others) == (2, 3, "cpu", {})
            return [1] * batch_size
        """,
        head="",
    )
    (run,) = measure()
    (result,) = run.results
    assert (run.status, run.cell.workload.model_id, result.point.label) == ("ok", "sorting", "b2 n3")
    assert result.iterations == 3


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("def run_benchmark(batch_size=4): ...", ["run_benchmark"]),
        ("def run_one(speed): ...", "parameter 'speed' is not a field of BenchmarkConfig"),
    ],
)
def test_functions_are_found_by_name(folder, write, body, expected):
    write("one.py", body, head="")
    if isinstance(expected, str):
        with pytest.raises(UsageError, match=expected):
            discover(folder)
    else:
        assert [bench.class_name for bench in discover(folder).benches] == expected


def test_listing_a_driver_records_its_configs_without_measuring(folder, write):
    write(
        "one.py",
        """
        from benchmarking import BenchmarkRunner
        class A(ModelBenchmark):
            def setup_model(self): raise RuntimeError("nothing is measured here")
            def run(self): ...
        def run_one(logger, output_dir, **others):
            runner = BenchmarkRunner(logger, output_dir)
            results = runner.run_benchmark(A, {"big": BenchmarkConfig(name="a", batch_size=8)}, commit_id="x")
            assert list(results) == [] and runner.save_results("a", results) == ""
        """,
    )
    (bench,) = discover(folder).benches
    assert (bench.class_name, [config.batch_size for config in bench.configs]) == ("A", [8])


def test_measuring_during_an_import_is_an_error_with_the_line(folder, write):
    write(
        "one.py",
        """
        from benchmarking import BenchmarkRunner
        class A(ModelBenchmark):
            def setup_model(self): ...
            def run(self): ...
        BenchmarkRunner().run_benchmark(A)
        """,
    )
    with pytest.raises(UsageError, match=r'one.py, line 7: .*put the call below if __name__ == "__main__":'):
        discover(folder)


def test_configs_accept_field_names_of_older_scripts():
    config = BenchmarkConfig(
        model_id="gpt2",
        compile_mode="default",
        measurement_iterations=5,
        num_tokens_to_generate=16,
        torch_dtype="float16",
        attn_implementation="sdpa",
        custom_params={"depth": 2},
    )
    assert (config.name, config.iterations, config.new_tokens, config.precision) == ("gpt2", 5, 16, "float16")
    assert config.options == {"attn_implementation": "sdpa", "depth": 2}
    assert (config.measurement_iterations, config.num_tokens_to_generate) == (5, 16)
    found = create_config_variants(config, {"num_tokens_to_generate": [1, 2]})
    assert [one.new_tokens for one in found] == [1, 2]
    with pytest.raises(UsageError, match="num_tokens_to_generate is an alias of new_tokens"):
        BenchmarkConfig(name="a", new_tokens=1, num_tokens_to_generate=2)


def test_flags_replace_models_and_token_counts_of_configs(folder, write):
    write(
        "one.py",
        """
        class A(ModelBenchmark):
            configs = [BenchmarkConfig(model_id="m", new_tokens=4), BenchmarkConfig(name="plain", batch_size=2)]
            def setup_model(self): ...
            def run(self): ...
        """,
    )
    benches = discover(folder).benches
    (bench,) = replaced_configs(benches, options(model_id="other", new_tokens=(1, 2)))
    found = [(config.name, config.model_id, config.new_tokens) for config in bench.configs]
    assert found == [("other", "other", 1), ("other", "other", 2), ("plain", None, None)]


def test_flags_without_a_matching_config_are_errors(folder, write):
    write("one.py", "class A(ModelBenchmark):\n def setup_model(self): ...\n def run(self): ...")
    benches = discover(folder).benches
    with pytest.raises(UsageError, match="no config of these benchmarks has a model_id"):
        replaced_configs(benches, options(model_id="x"))
    with pytest.raises(UsageError, match="no config of these benchmarks has new_tokens"):
        replaced_configs(benches, options(new_tokens=(1,)))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": "Rate", "value": 1}, "lower-case letters"),
        ({"name": "latency_median_ms", "value": 1}, "is measured by benchhouse"),
        ({"name": "a", "value": float("nan")}, "takes a finite number"),
        ({"name": "a", "value": True}, "takes a finite number"),
        ({"name": "a", "value": 1, "better": "more"}, "better is 'lower', 'higher' or None"),
        ({"name": "a", "value": 1, "unit": "x\ny"}, "a unit has at most 20 characters"),
    ],
)
def test_an_invalid_metric_is_refused_with_the_reason(fields, why):
    with pytest.raises(UsageError, match=why):
        CustomMetric(**fields)


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        ("[1.0]", "must return CustomMetrics: got 1.0"),
        ("[CustomMetric(name='setup_s', value=1)]", "setup_s is a built-in reading"),
    ],
)
def test_unstorable_metrics_fail_the_point(write, measure, metrics, why):
    write(
        "one.py",
        f"""
        from benchmarking import CustomMetric
        class A(ModelBenchmark):
            devices = ("null",)
            def setup_model(self): ...
            def measure_latency(self): return 1.0
            def metrics(self): return {metrics}
        """,
    )
    (run,) = measure(device="null")
    assert run.status == "failed"
    assert why in run.results[0].error


def test_metrics_that_return_nothing_lose_no_result(write, measure):
    write(
        "one.py",
        """
        class A(ModelBenchmark):
            devices = ("null",)
            def setup_model(self): ...
            def measure_latency(self): return 1.0
            def metrics(self): pass
        """,
    )
    (run,) = measure(device="null")
    assert run.status == "ok"


def test_benchmarks_are_measured_in_alternating_launches(write, tmp_path, monkeypatch, capsys):
    write(
        "one.py",
        """
        import itertools
        class A(ModelBenchmark):
            devices = ("null",)
            def setup_model(self): self.times = itertools.cycle([2.0, 2.5, 1.5])
            def measure_latency(self): return next(self.times)
        """,
    )
    monkeypatch.chdir(tmp_path)
    command = ["--benches", "my benches", "--devices", "null", "--iterations", "3", "--launches", "2", "--quiet"]
    for left in (["*.partial.jsonl"], ["*.json"]):
        turn = [sys.executable, str(ROOT / "benchmarking" / "batch_benchmark.py"), *command, "--turn", "side"]
        assert subprocess.run(turn, cwd=tmp_path, check=False).returncode == 0
        (path,) = [path for pattern in left for path in (tmp_path / "side").glob(pattern)]
    run = json.loads(path.read_text())
    assert [result["launches"] for result in run["results"]] == [2]
    assert "--turn" not in run["provenance"]["command"]
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".duckdb"] == []
    assert batch_benchmark.main([*command, "--turn", "side", "--report", "a.html"]) == 2
    assert "--turn only measures one launch into its folder: remove --report" in capsys.readouterr().err


def test_configs_that_differ_in_their_settings_only_are_told_apart_everywhere(
    folder, write, monkeypatch, empty_database, tmp_path, capsys
):
    write("own_settings.py", OWN, head="")
    monkeypatch.syspath_prepend(str(folder))
    from own_settings import Own

    from benchmarking import BenchmarkRunner, create_config_variants

    base = BenchmarkConfig(name="a", variant="eager", new_tokens=2, iterations=2, compile_options={"fullgraph": True})
    matrix = {"compile_mode": [None, "max-autotune"], "sdpa_backend": [None, "math"], "use_cache": [False]}
    runner = BenchmarkRunner(output_dir=folder / "out", launches=1, device="null")
    results = runner.run_benchmark(Own, create_config_variants(base, matrix))
    ends = ("", ", sdpa_backend math", ", compile_mode max-autotune", ", compile_mode max-autotune, sdpa_backend math")
    assert list(results) == [f"a eager float32 b1 n2{end} ({number})" for number, end in enumerate(ends, 1)]
    runs = [one.run for one in results.values()]
    assert runs[3].cell.subject == (
        'a [eager, compile_mode max-autotune, compile_options {"fullgraph": true}, sdpa_backend math, use_cache False]'
    )
    document = scenario_file("a", [(one.run, one.result) for one in results.values()])
    assert [one["scenario_name"] for one in document["benchmark_scenarios"]] == [
        f"eager float32 b1 n2{e}" for e in ends
    ]
    configs = [one["metadata"]["config"] for one in document["benchmark_scenarios"]]
    assert [one["compile_mode"] for one in configs] == [None, None, "max-autotune", "max-autotune"]
    assert [one.get("sdpa_backend") for one in configs] == [None, "math", None, "math"]
    for one in configs:
        assert (one["use_cache"], one["compile_options"]) == (False, {"fullgraph": True})
        assert set(one["custom_params"]) == {"timed_by"}

    file, database = tmp_path / "a_benchmark_20260101_000000.json", str(tmp_path / "a.duckdb")
    file.write_text(json.dumps(document))
    shutil.copy(empty_database, database)
    with Warehouse.open(Path(database)) as warehouse:
        for run in runs:
            warehouse.ingest(run)
    for command in (("show",), ("history",)):
        assert cli.main([*command, "--json", "--db-path", database]) == 0
        shown = {row["settings"] for row in json.loads(capsys.readouterr().out)}
        assert shown == {f"simulated{end}" for end in ends}
    assert cli.main(["import", str(file), "--db-path", database]) == 0
    with Warehouse.open(Path(database), read_only=True) as warehouse:
        sql = "SELECT DISTINCT series_id FROM all_results WHERE origin_format IS NOT NULL"
        assert len(warehouse.query(sql).dicts()) == 4


@pytest.fixture(scope="module")
def measured(tmp_path_factory, empty_database):
    """A folder in which the file above was measured, as a command, and what it printed."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copy(empty_database, folder / "own.duckdb")
    (folder / "benches").mkdir()
    (folder / "benches" / "own.py").write_text(OWN)
    command = [sys.executable, "benches/own.py", "--devices", "null", "--launches", "1", "--model-id", "big"]
    command += ["--num-tokens-to-generate", "4,8", "--log-level", "debug", "--db-path", "own.duckdb"]
    further = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=further, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_a_file_with_a_main_is_a_command_with_output_at_log_level_debug(measured):
    _, done = measured
    assert "hello from big 4" in done.stderr
    assert "hello from big 8" in done.stderr
    assert "hello" not in done.stdout


def test_custom_metrics_are_stored_with_unit_and_direction(measured):
    folder, _ = measured
    with Warehouse.open(folder / "own.duckdb", read_only=True) as warehouse:
        rows = warehouse.query("SELECT new_tokens, other_metrics, extra FROM all_results ORDER BY 1").dicts()
    assert [(row["new_tokens"], dict(row["other_metrics"])["accepted"]) for row in rows] == [(4, 12.0), (8, 24.0)]
    about = json.loads(rows[0]["extra"])["custom_metrics"]
    assert about == {
        "accepted": {"unit": "tokens/step", "better": "higher"},
        "drafts": {"unit": "", "better": None},
    }


def run_command(measured, capsys, *words):
    folder, _ = measured
    code = cli.main([*words, "--db-path", str(folder / "own.duckdb")])
    out, err = capsys.readouterr()
    return code, out, err


def test_custom_metrics_are_compared_shown_and_tracked_by_name(measured, capsys):
    code, out, _ = run_command(
        measured, capsys, "compare", "new_tokens=4", "new_tokens=8", "--metric", "accepted", "--json"
    )
    (finding,) = json.loads(out)["findings"]
    assert code == 3  # sessions without a history are described
    assert finding["judgement"]["change"] == pytest.approx(1.0)
    assert json.loads(out)["unit"] == "tokens/step"
    code, out, _ = run_command(measured, capsys, "history", "--metric", "accepted", "--json")
    assert sorted(point["value"] for one in json.loads(out) for point in one["points"]) == [12.0, 24.0]
    code, out, _ = run_command(measured, capsys, "show", "--metric", "accepted")
    assert "accepted" in out
    code, _, _ = run_command(measured, capsys, "check", "--metric", "accepted", "--no-alerts")
    assert code == 3  # not enough runs


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("history", "--metric", "acepted"), "did you mean accepted"),
        (("check", "--metric", "drafts"), "drafts is stored without a direction"),
        (("regressions", "--metric", "drafts"), "drafts is stored without a direction"),
    ],
)
def test_metrics_without_a_direction_cannot_be_compared(measured, capsys, words, why):
    code, _, err = run_command(measured, capsys, *words)
    assert code == 2
    assert why in err


def test_the_folder_benches_is_the_default(measured, capsys, monkeypatch):
    folder, _ = measured
    monkeypatch.chdir(folder)
    assert batch_benchmark.main(["--dry-run", "--devices", "null", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [cell["cell"]["workload"]["model_id"] for cell in json.loads(out)["cells"]] == ["small"]
    assert "benchmarks: ./benches" in err
    assert batch_benchmark.main(["--models", "tiny-bert", "--model-id", "x"]) == 2


def test_a_runner_measures_each_config_and_writes_the_first_layout(folder, write, monkeypatch):
    write("own_runner.py", OWN, head="")
    monkeypatch.syspath_prepend(str(folder))
    from own_runner import Own

    from benchmarking import BenchmarkRunner

    runner = BenchmarkRunner(output_dir=folder / "out", launches=1, device="null")
    configs = {"one": BenchmarkConfig(name="a", new_tokens=2, iterations=4), "two": Own.configs[0]}
    results = runner.run_benchmark(Own, configs, commit_id="abc")
    assert list(results) == ["one", "two"]
    assert results["one"].result.metrics["accepted"] == 6
    path = runner.save_results("org/a", results)
    assert runner.save_results("org/a", results) != path, "also within a second"
    document = json.loads(Path(path).read_text())
    assert document["model_name"] == "org/a"
    first = document["benchmark_scenarios"][0]
    assert (first["scenario_name"], first["metadata"]["commit_id"]) == ("one", "abc")
    assert sorted(first["measurements"]["latency"]["measurements"]) == [0.0015, 0.002, 0.002, 0.0025]
    assert first["measurements"]["tokens_per_second"]["max"] == pytest.approx(2 / 0.0015)
    assert first["gpu_metrics"]["gpu_monitoring_status"] == "disabled"
