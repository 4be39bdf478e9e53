"""User-written benchmarks on real workers: their measurements and their errors."""

from __future__ import annotations

import pytest

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.scenario_file import scenario_file
from benchmarking.core.untrusted.redaction import redacted_record, without_secrets
from benchmarking.runtimes.bench import PLUGIN

pytestmark = pytest.mark.forked_children

TIMED = """
import time
class Timed(ModelBenchmark):
    configs = create_config_variants(
        BenchmarkConfig(name="timed", sequence_length=4, options={"ms": 2}, tags={"team": "a", "kind": "own"}),
        {"variant": ["x", "y"], "batch_size": [2, 1]},
    )
    def setup_model(self):
        self.seconds = self.config.options["ms"] / 1000
    def run(self):
        assert self.torch_device == "cpu" and self.config.variant in ("x", "y")
        time.sleep(self.seconds)
        return self.config.batch_size
    def problem(self, output):
        return None if output == self.config.batch_size else "another batch"
    def work(self):
        return {"flops": 1000.0 * self.config.batch_size}
"""


def logging(body):
    """A benchmark that logs its calls to log.txt in the folder of its file."""
    return f"""
from pathlib import Path
def log(text):
    with (Path(__file__).parent / "log.txt").open("a") as file:
        file.write(text + " ")
class Logged(ModelBenchmark):
    configs = create_config_variants(BenchmarkConfig(name="logged"), {{"batch_size": [1, 2]}})
    def setup_model(self):
        log(f"setup{{self.config.batch_size}}")
    def cleanup_model(self):
        log(f"cleanup{{self.config.batch_size}}")
    def run(self):
        return 0
{body}
"""


def logged(folder):
    return (folder / "log.txt").read_text().split()


@pytest.mark.forked_children(False)  # that torch is not imported is why bytes are missing
def test_variants_are_runs_and_batch_sizes_their_points(write, measure):
    write("one.py", TIMED)
    runs = measure(tags={"kind": "theirs"})
    assert [run.cell.runtime_mode for run in runs] == [
        {"timed_by": "benchhouse", "variant": "x"},
        {"timed_by": "benchhouse", "variant": "y"},
    ]
    assert [run.provenance.tags for run in runs] == [{"team": "a", "kind": "theirs"}] * 2
    assert len({run.cell.workload.config_hash for run in runs}) == 1
    for run in runs:
        assert (run.status, run.cell.workload.model_id, run.cell.workload.source) == ("ok", "timed", "bench")
        assert (run.cell.workload.family, run.cell.workload.weights) == (None, "given")
        assert [result.point.label for result in run.results] == ["b1 s4", "b2 s4"]
        for result in run.results:
            latency_ms, batch = result.metrics["latency_median_ms"], result.point.batch_size
            assert result.iterations == 3
            assert latency_ms >= 2
            assert result.metrics["flops"] == 1000 * batch
            assert result.metrics["achieved_flops_per_sec"] == pytest.approx(1000 * batch / latency_ms * 1000)
            assert result.missing["bytes_accessed"].startswith("not_supported: the benchmark neither uses torch")
            assert "wrong_output" not in {doubt.kind for doubt in result.doubts}


SELF_TIMED = """
from itertools import chain, repeat

class Own(ModelBenchmark):
    configs = [BenchmarkConfig(name="own", batch_size=2, sequence_length=8, new_tokens=5)]
    def setup_model(self):
        self.latency, self.first = chain([9, 1, 5.5, 7, 6.25], repeat(1)), chain([9, 1, 2, 4, 3], repeat(1))
    def measure_latency(self):
        return next(self.latency)
    def measure_time_to_first_token(self):
        return next(self.first)
"""


@pytest.mark.parametrize("device", ["cpu", "null"])
def test_self_measured_times_are_stored_unchanged_with_a_doubt(write, measure, device):
    write("one.py", SELF_TIMED)
    (run,) = measure(device=device)
    (result,) = run.results
    series = {samples.metric: samples.values for samples in result.samples if samples.phase == "measure"}
    assert series == {"latency_wall": (5.5, 7, 6.25), "time_to_first_token": (2, 4, 3)}
    assert result.metrics["latency_median_ms"] == 6.25
    assert result.metrics["time_to_first_token_ms"] == 3
    assert result.metrics["first_call_ms"] == 9
    assert result.metrics["throughput_tokens_per_sec"] == pytest.approx(2 * 5 * 3 / 18.75 * 1000)
    assert result.metrics["prefill_tokens_per_sec"] == pytest.approx(16 / 3 * 1000)
    why = "not_applicable: the call times itself and does not report it"
    assert result.missing["time_per_output_token_ms"] == result.missing["inter_token_latency_p50_ms"] == why
    assert result.missing["flops"].startswith("not_applicable: the benchmark times itself")
    assert "timed_by_itself" in {doubt.kind for doubt in result.doubts}
    assert run.cell.runtime_mode == {"timed_by": "bench"}


def test_with_first_tokens_only_latency_is_the_time_to_first_token(write, measure):
    write(
        "one.py",
        "class A(ModelBenchmark):\n def setup_model(self): ...\n def measure_time_to_first_token(self): return 4",
    )
    (result,) = measure()[0].results
    assert result.metrics["latency_median_ms"] == result.metrics["time_to_first_token_ms"] == 4


def test_marked_tokens_give_token_times_and_are_counted(write, measure):
    body = """
    class Tokens(ModelBenchmark):
        marks_tokens = True
        configs = create_config_variants(BenchmarkConfig(name="t", sequence_length=2), {"new_tokens": [3, 4]})
        def setup_model(self): ...
        def run(self):
            for _ in range(3):
                self.mark("token")
    """
    write("one.py", body)
    right, wrong = measure()[0].results
    assert (right.status, wrong.status) == ("ok", "failed")
    assert {"time_to_first_token_ms", "time_per_output_token_ms", "inter_token_latency_p50_ms"} <= set(right.metrics)
    assert "generated 3 tokens, expected 4" in wrong.error


def test_every_point_is_set_up_and_cleaned_up_once(folder, write, measure):
    write("one.py", logging(""))
    assert measure()[0].status == "ok"
    assert logged(folder) == ["setup1", "cleanup1", "setup2", "cleanup2"]


def test_an_exception_in_a_call_fails_its_point_and_cleans_up(folder, write, measure):
    write("one.py", logging("        \n    def run(self):\n        return 1 / (self.config.batch_size - 1)"))
    (run,) = measure()
    assert [(result.status, result.error) for result in run.results] == [
        ("failed", "ZeroDivisionError: division by zero"),
        ("ok", None),
    ]
    assert logged(folder) == ["setup1", "cleanup1", "setup2", "cleanup2"]


def test_an_exception_in_setup_fails_its_point_and_cleans_up(folder, write, measure):
    write(
        "one.py", logging("    def setup_model(self):\n        raise ValueError(f'no model {self.config.batch_size}')")
    )
    (run,) = measure()
    assert [result.error for result in run.results] == ["ValueError: no model 1", "ValueError: no model 2"]
    assert logged(folder) == ["cleanup1", "cleanup2"]


def test_an_exception_in_cleanup_fails_its_point(write, measure):
    write("one.py", logging("    def cleanup_model(self):\n        raise ValueError('stuck')"))
    assert [result.error for result in measure()[0].results] == ["ValueError: stuck"] * 2


def test_out_of_memory_is_reported_cleaned_up_and_retried_in_a_fresh_process(folder, write, measure):
    body = "    def run(self):\n        if self.config.batch_size == 2:\n            raise MemoryError('too big')"
    write("one.py", logging(body))
    (run,) = measure()
    assert run.results[0].status == "ok"
    assert run.results[1].error == "out of memory while running b2: too big"
    assert logged(folder) == ["setup1", "cleanup1", "setup2", "cleanup2", "setup2", "cleanup2"]


@pytest.mark.parametrize("value", ["'fast'", "0", "-1.5", "float('nan')", "None", "True"])
def test_an_invalid_time_fails_the_point(write, measure, value):
    write(
        "one.py", f"class A(ModelBenchmark):\n def setup_model(self): ...\n def measure_latency(self): return {value}"
    )
    assert "A.measure_latency must return milliseconds, a number above 0: got" in measure()[0].results[0].error


def test_a_problem_makes_the_result_invalid(write, measure):
    write("one.py", logging("    def problem(self, output):\n        return 'bad'"))
    result = measure()[0].results[0]
    assert result.validity == "invalid"
    assert [doubt.evidence["problem"] for doubt in result.doubts if doubt.kind == "wrong_output"] == ["bad"]


def test_unknown_names_in_work_fail_the_point(write, measure):
    write("one.py", logging("    def work(self):\n        return {'flop': 1}"))
    assert "work() of Logged may declare flops, bytes_accessed: got 'flop'" in measure()[0].results[0].error


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "-1"])
def test_work_that_is_no_amount_fails_the_point(write, measure, value):
    write("one.py", logging(f"    def work(self):\n        return {{'flops': {value}}}"))
    assert "work() of Logged takes numbers from 0: got" in measure()[0].results[0].error


def test_a_time_that_a_benchmark_reports_for_one_call_is_not_that_of_the_others(write, measure):
    body = """
    from benchmarking import TimingResult
    class Streaming(ModelBenchmark):
        configs = [BenchmarkConfig(name="streaming", iterations=3, warmup_iterations=1)]
        calls = 0
        def setup_model(self): ...
        def measure_latency(self):
            self.calls += 1
            return TimingResult(latency=0.01, time_to_first_token=0.005 if self.calls == 1 else None)
    """
    write("one.py", body)
    (result,) = measure(iterations=None)[0].results
    assert [series.metric for series in result.samples if series.phase == "measure"] == ["latency_wall"]
    assert "time_to_first_token_ms" not in result.metrics


@pytest.mark.parametrize(
    ("stated", "batch_size", "tokens"),
    [
        ("tokens_per_second=5 / 0.01", 1, 5),  # it stopped after 5 of 100 tokens
        ("total_tokens_generated=100 if self.calls % 2 else 10", 1, 70),  # of three calls: 100, 10, 100
        ("tokens_per_second=1, total_tokens_generated=100", 1, 100),
        ("tokens_per_second=100 / 0.01", 2, 100),
        ("tokens_per_second=float('nan'), total_tokens_generated='a'", 2, 200),
        ("tokens_per_second=100 / 0.01 if self.calls > 3 else None", 1, None),
    ],
)
def test_the_rate_of_tokens_is_the_one_that_a_benchmark_states(write, measure, stated, batch_size, tokens):
    body = f"""
    from benchmarking import TimingResult
    class Generates(ModelBenchmark):
        configs = [BenchmarkConfig(
            name="g", batch_size={batch_size}, new_tokens=100, iterations=3, warmup_iterations=1)]
        calls = 0
        def setup_model(self): ...
        def measure_latency(self):
            self.calls += 1
            return TimingResult(latency=0.01, {stated})
    """
    write("one.py", body)
    (run,) = measure(iterations=None)
    (result,) = run.results
    expected = None if tokens is None else pytest.approx(tokens / 0.01)
    assert result.metrics.get("throughput_tokens_per_sec") == expected
    is_as_asked = tokens in (None, batch_size * 100)
    assert ("other_output_length" in {doubt.kind for doubt in result.doubts}) is not is_as_asked
    measurements = scenario_file("g", [(run, result)])["benchmark_scenarios"][0]["measurements"]
    if "per_second=5" in stated:
        assert measurements["tokens_per_second"]["median"] == pytest.approx(500)
        assert measurements["time_per_output_token_seconds"]["median"] == pytest.approx(0.002)
    assert ("tokens_per_second" in measurements) is (tokens is not None)


@pytest.mark.parametrize("first", ["0.0", "None"])
def test_without_a_first_token_the_latency_stays(write, measure, first):
    write(
        "one.py",
        f"""
        class Encodes(ModelBenchmark):
            def setup_model(self): ...
            def measure_time_to_first_token(self): return {first}
            def measure_latency(self): return 4
        """,
    )
    (result,) = measure()[0].results
    assert result.metrics["latency_median_ms"] == 4
    assert result.missing["time_to_first_token_ms"].endswith("the call times itself and does not report it")


def test_work_of_a_torch_benchmark_is_counted(write, measure):
    body = """
    class Torch(ModelBenchmark):
        def setup_model(self):
            import torch
            self.a = torch.ones(8, 8)
        def run(self):
            return self.a @ self.a
    """
    write("one.py", body)
    (result,) = measure()[0].results
    assert (result.metrics["flops"], result.metrics["bytes_accessed"]) == (2 * 8**3, 2 * 4 * 64)


def test_a_deleted_benchmark_file_is_a_failed_load(write, plan, tmp_path):
    from benchmarking.core.provenance import utc_now
    from benchmarking.sweep.run.supervisor import Observer, Track, sweep

    path = write("one.py", logging(""))
    track = Track(plan()[0], tmp_path)
    path.unlink()
    sweep([track], Observer())
    assert "one.py: No such file" in track.run(utc_now()).results[0].error


def test_flags_override_the_number_of_calls_in_a_config(write, plan):
    write("one.py", logging("    configs = [BenchmarkConfig(name='a', iterations=7, warmup_iterations=2)]"))
    assert [one.settings.fixed_iterations for one in plan(iterations=None)] == [7]
    assert [one.settings.fixed_iterations for one in plan(iterations=3)] == [3]


def test_unsupported_devices_of_a_benchmark_are_errors_or_skipped(write, plan):
    write("one.py", logging("    devices = ('cuda',)"))
    with pytest.raises(UnsupportedError, match=r"benchmark one.Logged, logged: .*Logged runs on cuda, not on cpu"):
        plan()
    (skipped,) = plan(skip_unsupported=True)
    assert set(skipped.skipped) == {"b1", "b2"}


def test_a_benchmark_timed_from_outside_cannot_run_on_a_scripted_clock(write, plan):
    write("one.py", logging(""))
    with pytest.raises(UnsupportedError, match="the benchmark must time itself"):
        plan(device="null")


def test_models_do_not_run_on_the_runtime_of_benchmarks(capsys):
    from benchmarking.run_hardware_benchmark import main

    assert main(["--model-id", "tiny-bert", "--device", "cpu", "--runtime", "bench", "--dry-run"]) == 2
    assert "runtime bench runs your own benchmarks, not models" in capsys.readouterr().err


def test_the_runtime_has_one_option(write, plan):
    write("one.py", logging(""))
    cell = plan()[0].cell
    with pytest.raises(UsageError, match="runtime bench has no option 'attention'; it has variant"):
        PLUGIN.mode(cell.device, cell.workload, {"attention": "eager"})


def test_a_secret_among_the_options_is_not_stored_and_needed_for_each_launch(write, plan):
    """Also not with --resume, or on another machine."""
    write(
        "one.py", logging("    configs = [BenchmarkConfig(name='one', options={'api_key': 'q7-of-a-bench', 'ms': 2})]")
    )
    own = plan()[0]
    assert without_secrets(own.cell.subject) == "one [api_key ***, ms 2]", "in logs and errors"
    stored = redacted_record(own)
    assert stored.cell.workload.config["options"] == {"api_key": "***", "ms": 2}
    with pytest.raises(UsageError, match=r"^one: its api_key is a secret, which is neither stored nor sent"):
        PLUGIN.open(stored.cell, None, None, ())


def test_a_command_overrides_a_configs_precision(write, plan):
    write("one.py", logging(""))
    assert [one.cell.precision for one in plan(precision="bfloat16")] == ["bfloat16"]
    with pytest.raises(UnsupportedError, match="does not support tf32"):
        plan(precision="tf32")
