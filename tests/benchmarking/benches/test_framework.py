"""Benchmark files written for benchmark_v2, unchanged: its module `framework`, its signatures and its seconds."""

from __future__ import annotations

import sys

import pytest

from benchmarking import TimingResult
from benchmarking.benches import framework
from benchmarking.benches.discovery import discover, load_module
from benchmarking.benches.model_benchmark import BenchmarkConfig
from benchmarking.benches.runner import workload_of
from benchmarking.core.errors import UsageError
from benchmarking.measure.doubt_rules import about_claims

pytestmark = pytest.mark.forked_children

BENCH = """
import logging
import time
from framework import (
    BenchmarkConfig, BenchmarkRunner, GPUMonitor, ModelBenchmark, TimingResult, create_config_variants, flush_memory
)

class Theirs(ModelBenchmark):
    def __init__(self, logger: logging.Logger):
        super().__init__(logger)
        self.config = None

    def setup_model(self, config: BenchmarkConfig) -> None:
        assert config.device == "cpu" and config.torch_dtype == "float32" and config.use_cache is True
        assert config.generation_config.get("do_sample", False) is True
        assert config.compile_options == {"fullgraph": True}
        self.logger.info("set up %s", config.model_id)
        if config.variant == "kernelized":
            config.variant = "eager"
        monitor = GPUMonitor(sample_interval=0.05)
        monitor.start()
        assert monitor.stop()["gpu_monitoring_status"] in ("disabled", "success", "failed")
        flush_memory()

    def cleanup_model(self) -> None:
        self.model = None

    def measure_time_to_first_token(self, config: BenchmarkConfig) -> float:
        start = time.perf_counter()
        time.sleep(0.002)
        return time.perf_counter() - start

    def measure_latency(self, config: BenchmarkConfig) -> TimingResult:
        start = time.perf_counter()
        time.sleep(0.004)
        latency = time.perf_counter() - start
        return TimingResult(latency=latency, tokens_per_second=config.num_tokens_to_generate / latency,
                            total_tokens_generated=config.num_tokens_to_generate)

def run_theirs(logger, output_dir="benchmark_results", model_id="their-model", **kwargs):
    from framework import BenchmarkRunner
    if not kwargs.get("enable_mock"):
        return None
    base = BenchmarkConfig("theirs", model_id, "eager", 1, kwargs.get("measurement_iterations", 3),
                           generation_config={"do_sample": True}, compile_options={"fullgraph": True})
    base.num_tokens_to_generate = kwargs.get("num_tokens_to_generate", 8)
    configs = create_config_variants(base, {"variant": ["eager", "kernelized"], "sdpa_backend": [None, "math"]})
    configs = [config for config in configs if config.variant != "eager" or config.sdpa_backend is None]
    runner = BenchmarkRunner(logger, output_dir)
    results = runner.run_benchmark(Theirs(logger), configs[:2], collect_gpu_metrics=False)
    if not results:
        raise RuntimeError("no results")
    return runner.save_results("their_model", results)
"""


@pytest.fixture
def theirs(write):
    return write("theirs.py", BENCH, head="")


def test_a_driver_gets_the_values_of_the_command(folder, theirs):
    with pytest.raises(UsageError, match="no benchmark to run"):
        discover(folder)  # it requests nothing without enable_mock
    given = {"model_id": "other", "num_tokens_to_generate": 4}
    (bench,) = discover(folder, enable_mock=True, given=given).benches
    assert (bench.saved_as, len(bench.configs)) == ("their_model", 2)
    assert {(one.model_id, one.new_tokens, one.iterations) for one in bench.configs} == {("other", 4, 3)}
    assert [one.sdpa_backend for one in bench.configs] == [None, None]
    assert [one.variant for one in bench.configs] == ["eager", "kernelized"]


@pytest.mark.parametrize(
    ("file", "signature"),
    [
        ("theirs_benchmark.py", "run_theirs(logger, output_dir, model_id='m', **kwargs)"),
        ("theirs_benchmark.py", "run_theirs_benchmark(logger, **kwargs)"),
        ("other.py", "run_theirs(logger, output_dir='benchmark_results', model_id='m', **kwargs)"),
    ],
)
def test_a_driver_is_found_by_the_name_of_its_file_or_as_the_only_one(folder, write, file, signature):
    start = BENCH.index("def run_theirs")
    end = BENCH.index("    from framework import BenchmarkRunner")
    names = 'model_id, output_dir = kwargs.get("model_id", "m"), "."' if "output_dir" not in signature else "pass"
    write(file, f"{BENCH[:start]}def {signature}:\n    {names}\n{BENCH[end:]}", head="")
    (bench,) = discover(folder, enable_mock=True, given={"model_id": "big"}).benches
    assert {config.model_id for config in bench.configs} == {"big"}


def test_several_drivers_without_the_name_of_the_file_are_refused(folder, write):
    drivers = "def run_a(logger, output_dir): ...\ndef run_b(logger, output_dir): ..."
    write("theirs.py", drivers, head="")
    with pytest.raises(UsageError, match=r"run_a, run_b could each be the benchmark: call one of them run_theirs"):
        discover(folder)


def test_a_config_generates_100_tokens_unless_a_number_is_given():
    assert framework.BenchmarkConfig(name="a").num_tokens_to_generate == 100
    assert framework.BenchmarkConfig("a", "m", "eager", 1, 2, 7).new_tokens == 7
    assert framework.BenchmarkConfig(name="a", new_tokens=None).num_tokens_to_generate is None
    config = framework.BenchmarkConfig(name="a", num_tokens_to_generate=4)
    assert [one.new_tokens for one in framework.create_config_variants(config, {"batch_size": [1, 2]})] == [4, 4]
    assert BenchmarkConfig(name="a").new_tokens is None


def test_an_unchanged_file_is_measured_in_its_seconds_and_a_replaced_variant_is_invalid(folder, theirs, measure, plan):
    found = discover(folder, enable_mock=True).benches
    assert workload_of(found[0], found[0].configs[0]).config["saved_as"] == "their_model"
    eager, kernelized = measure(benches=found)
    (result,) = eager.results
    assert 4 <= result.metrics["latency_min_ms"] < 400
    assert 2 <= result.metrics["time_to_first_token_ms"] < 400
    assert 8 / 0.4 < result.metrics["claimed_tokens_per_second"] <= 8 / 0.004
    assert not {"claimed_time", "partly_timed"} & {doubt.kind for doubt in result.doubts}
    (replaced,) = kernelized.results
    (doubt,) = (one for one in replaced.doubts if one.kind == "not_as_requested")
    assert "replaced the variant 'kernelized' by 'eager'" in str(doubt.evidence)
    assert replaced.validity == "invalid"


def test_seconds_returned_as_milliseconds_are_invalid(write, measure):
    write(
        "one.py",
        """
        import time
        class Slow(ModelBenchmark):
            configs = [BenchmarkConfig(name="slow")]
            def setup_model(self): pass
            def measure_latency(self):
                started = time.perf_counter()
                time.sleep(0.02)
                return time.perf_counter() - started
        """,
    )
    (result,) = measure()[0].results
    (doubt,) = (one for one in result.doubts if one.kind == "claimed_time")
    assert result.validity == "invalid"
    assert "ms" in doubt.evidence["unit_check"]
    assert "s)" in doubt.evidence["unit_check"]


@pytest.mark.parametrize(
    ("claimed_ms", "wall_ms", "kinds"),
    [
        (200.0, 200.1, []),
        (200.0, 610.0, ["partly_timed"]),
        (610.0, 200.0, ["claimed_time"]),
        (0.2, 200.0, ["claimed_time"]),
        (200_000.0, 200.0, ["claimed_time"]),
        (0.00005, 0.05, ["partly_timed"]),  # a call as short as the call of the method
    ],
)
def test_a_claimed_time_is_checked_against_the_wall_time(claimed_ms, wall_ms, kinds):
    pairs = {"measure_latency": [(claimed_ms, wall_ms)] * 3}
    assert [one.kind for one in about_claims(pairs)] == kinds


def test_framework_resolves_only_while_a_bench_is_loaded_and_a_file_beside_it_wins(folder, theirs, write):
    assert "framework" not in sys.modules
    try:
        assert load_module(theirs).ModelBenchmark is framework.ModelBenchmark
        assert sys.modules["framework"] is framework
    finally:
        framework.withdraw()
    assert "framework" not in sys.modules
    write("own/framework.py", "VALUE = 7", head="")
    bench = write("own/bench.py", "from framework import VALUE", head="")
    try:
        assert load_module(bench).VALUE == 7
    finally:
        sys.modules.pop("framework", None)
        sys.path.remove(str(bench.parent))


def test_a_driver_may_use_results_that_do_not_exist_while_it_is_listed(folder, write):
    write(
        "one.py",
        """
        from framework import BenchmarkRunner
        class A(ModelBenchmark):
            def setup_model(self, config): ...
            def measure_latency(self, config): return 1.0
        def run_one(logger, output_dir):
            runner = BenchmarkRunner(logger, output_dir)
            results = runner.run_benchmark(A, [BenchmarkConfig(name="a")])
            print(results["a"].result.metrics)
        """,
    )
    found = discover(folder)
    assert [bench.class_name for bench in found.benches] == ["A"]
    assert "KeyError" in found.left_out["one.run_one"]


def test_configs_can_be_changed_and_are_checked_when_they_are():
    config = BenchmarkConfig(name="a", custom_params={"depth": 2})
    config.variant = "compiled"
    config.compile_mode = "max-autotune"
    config.num_tokens_to_generate = 5
    config.use_cache = False
    assert (config.variant, config.new_tokens, config.options) == ("compiled", 5, {"depth": 2, "use_cache": False})
    assert (config.use_cache, config.sdpa_backend, config.custom_params) == (False, None, {"depth": 2})
    config.use_cache = None
    assert config.options == {"depth": 2}
    with pytest.raises(UsageError, match="batch_size of a takes a whole number from 1: got 0"):
        config.batch_size = 0
    with pytest.raises(UsageError, match="unknown field of BenchmarkConfig 'varient': did you mean variant"):
        config.varient = "eager"


def test_a_timing_result_holds_what_a_benchmark_reports():
    result = TimingResult(latency=0.5, tokens_per_second=20.0)
    assert (result.latency, result.tokens_per_second, result.values_s) == (0.5, 20.0, (0.5,))
    assert TimingResult([0.5, 1.5]).latency == 1.0
    assert TimingResult(latency=0.0, tokens_per_second=0.0).latency == 0.0
    with pytest.raises(UsageError, match="latency=SECONDS: got none"):
        TimingResult()


def test_attention_kernels_are_chosen_by_name_and_never_replaced():
    import torch

    assert set(framework.get_available_sdpa_backends()) <= set(framework.SDPA_BACKENDS)
    query = torch.ones(1, 1, 4, 8)
    with framework.SDPAContext("math"), framework.SDPAContext(None):
        assert torch.nn.functional.scaled_dot_product_attention(query, query, query).shape == query.shape
    with pytest.raises(UsageError, match="unknown sdpa_backend 'maths': did you mean math"):
        framework.SDPAContext("maths")
