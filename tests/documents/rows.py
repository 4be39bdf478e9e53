"""What the five documents promise, row by row: as they write it, what works here, and what shows it.

The verdict is "as written", "one line" (it works with the one difference that is named), or "no" with the reason.
`check` names the evidence: a line of `lines.LINES` (its beginning), "flag COMMAND FLAG VALUE" (is read), "name
MODULE:ATTRIBUTE", "takes MODULE:FUNCTION NAME=VALUE ..." (accepts these arguments), "column TABLE.COLUMN" and "table
NAME" (filled by a measurement), "chart NAME" (drawn from it), "plugins KIND NAME ...", "runtimes ALIAS=NAME ...", "file
PATH", "field BenchmarkConfig.NAME", "calls NAME" (called while a line is run), or "reason" for a no.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.documents.lines import ACCELERATE, MLAGILITY, PROFILER, SYSTEMS, TRANSFORMERS

AS, ONE, NO = "as written", "one line", "no"


class Row(NamedTuple):
    """A promise of a document, and what becomes of it."""

    document: str
    promise: str
    verdict: str
    here: str
    check: str


ROWS = (
    Row(ACCELERATE, "`setup_benchmark_db.py --db-path`", AS, "", "line setup_benchmark_db.py --db-path"),
    Row(
        ACCELERATE, "`--overwrite`", AS, "asks on a terminal; elsewhere says what it deletes", "flag setup --overwrite"
    ),
    Row(ACCELERATE, "`run_hardware_benchmark.py --model-id --device --save`", AS, "", "flag run --model-id gpt2"),
    Row(ACCELERATE, "`--precision`", AS, "", "flag run --precision float16"),
    Row(ACCELERATE, "`--batch-sizes`", AS, "", "flag run --batch-sizes 1,2,4"),
    Row(ACCELERATE, "`--sequence-lengths`", AS, "", "flag run --sequence-lengths 128,256,512"),
    Row(ACCELERATE, "`--iterations`", AS, "", "flag run --iterations 20"),
    Row(ACCELERATE, "`--output-dir`", AS, "", "flag run --output-dir other_results"),
    Row(ACCELERATE, "`visualize_benchmarks.py --json-path`", AS, "", "flag charts --json-path run.json"),
    Row(ACCELERATE, "`visualize_benchmarks.py --db-path --model-id`", AS, "", "flag charts --model-id gpt2"),
    Row(ACCELERATE, "`--architecture-comparison`", AS, "", "flag charts --architecture-comparison"),
    Row(ACCELERATE, "`batch_benchmark.py`", AS, "", "script batch_benchmark"),
    Row(
        ACCELERATE, "`integration_benchmark.py`", AS, "batch_benchmark with `--cluster`", "script integration_benchmark"
    ),
    Row(ACCELERATE, "six device kinds", AS, "also null for tests", "plugins devices cpu cuda rocm mps openvino qnn"),
    Row(ACCELERATE, "eleven architectures", AS, "", "families 11"),
    Row(
        ACCELERATE,
        "latency: mean, median, min, max, 90th percentile",
        AS,
        "",
        "column benchmark_results.latency_p90_ms",
    ),
    Row(ACCELERATE, "throughput", AS, "", "column benchmark_results.throughput_samples_per_sec"),
    Row(ACCELERATE, "peak memory", AS, "MB is 10^6 bytes", "column benchmark_results.memory_peak_rss_infer_mb"),
    Row(ACCELERATE, "average memory", AS, "", "column benchmark_results.memory_rss_mean_mb"),
    Row(ACCELERATE, "first token latency", AS, "", "column benchmark_results.time_to_first_token_ms"),
    Row(ACCELERATE, "load time", AS, "", "column benchmark_runs.load_time_s"),
    Row(ACCELERATE, "table `benchmark_runs`", AS, "", "table benchmark_runs"),
    Row(ACCELERATE, "table `benchmark_results`", AS, "", "table benchmark_results"),
    Row(ACCELERATE, "table `hardware_info`", AS, "", "table hardware_info"),
    Row(ACCELERATE, "table `raw_benchmark_data`", AS, "", "table raw_benchmark_data"),
    Row(
        ACCELERATE,
        "extend `hardware_detection.py`",
        ONE,
        "a device is one file in benchmarking/devices",
        "file docs/adding-a-plugin.md",
    ),
    Row(
        ACCELERATE,
        "model loading in the class `ModelBenchmark`",
        ONE,
        "a runtime is one file in benchmarking/runtimes",
        "file docs/adding-a-plugin.md",
    ),
    Row(ACCELERATE, "chart: latency by batch size", AS, "", "chart latency_vs_batch_size"),
    Row(ACCELERATE, "chart: throughput by batch size", AS, "", "chart throughput_vs_batch_size"),
    Row(ACCELERATE, "chart: memory by batch size", AS, "", "chart memory_vs_batch_size"),
    Row(ACCELERATE, "chart: hardware comparison", AS, "", "chart hardware_comparison"),
    Row(ACCELERATE, "chart: architecture comparison", AS, "", "chart architecture_comparison"),
    Row(ACCELERATE, "power, WebNN, WebGPU, regression detection", AS, "", "plugins runtimes webnn webgpu"),
    Row(
        ACCELERATE,
        "Python 3.7",
        NO,
        "torch and transformers need 3.10 or newer by now; benchhouse needs 3.11",
        "reason",
    ),
    Row(TRANSFORMERS, "`run_benchmarks.py`", AS, "", "line run_benchmarks.py"),
    Row(TRANSFORMERS, "`--output-dir`", AS, "", "flag benches --output-dir my_results"),
    Row(TRANSFORMERS, "`--model-id`", AS, "", "flag benches --model-id gpt2"),
    Row(TRANSFORMERS, "`--warmup-iterations`", AS, "", "flag benches --warmup-iterations 5"),
    Row(
        TRANSFORMERS,
        "`--measurement-iterations`",
        AS,
        "",
        "line run_benchmarks.py --include mock_benchmark --enable-mock --w",
    ),
    Row(TRANSFORMERS, "`--num-tokens-to-generate`", AS, "", "flag benches --num-tokens-to-generate 200"),
    Row(TRANSFORMERS, "`--include`, `--exclude`", AS, "", "flag benches --include llama_benchmark"),
    Row(
        TRANSFORMERS, "`--enable-mock`", AS, "also passed on to the benchmark's function", "flag benches --enable-mock"
    ),
    Row(TRANSFORMERS, "`--log-level DEBUG`", AS, "in any case", "line run_benchmarks.py --log-level DEBUG"),
    Row(
        TRANSFORMERS,
        "`python llama_benchmark.py` in `benches`",
        ONE,
        "`run_benchmarks.py --include llama_benchmark`; or import from benchmarking and end with measure_file",
        "line llama_benchmark.py",
    ),
    Row(
        TRANSFORMERS,
        "`./benches` found by itself",
        AS,
        "the examples, where there is none, stored only with `--save`, `--output-dir` or `--db-path`",
        "line run_benchmarks.py",
    ),
    Row(
        TRANSFORMERS,
        "a llama, a gpt2 and a mock benchmark",
        AS,
        "",
        "file benchmarking/benches/examples/llama_benchmark.py",
    ),
    Row(
        TRANSFORMERS,
        "`framework.py`",
        AS,
        "resolves while a benchmark file is loaded",
        "name benchmarking.benches.framework:ModelBenchmark",
    ),
    Row(
        TRANSFORMERS,
        "`BenchmarkConfig(name, model_id, ...)`",
        AS,
        "also without names of the fields",
        "name benchmarking:BenchmarkConfig",
    ),
    Row(
        TRANSFORMERS, "`config.variant`, `config.compile_mode` set later", AS, "", "field BenchmarkConfig.compile_mode"
    ),
    Row(
        TRANSFORMERS,
        "`warmup_iterations`, `measurement_iterations`",
        AS,
        "",
        "field BenchmarkConfig.measurement_iterations",
    ),
    Row(TRANSFORMERS, "`batch_size`", AS, "", "field BenchmarkConfig.batch_size"),
    Row(
        TRANSFORMERS,
        "`num_tokens_to_generate`",
        AS,
        "100 by default, in files that import `framework`",
        "field BenchmarkConfig.num_tokens_to_generate",
    ),
    Row(TRANSFORMERS, "`generation_config`, `compile_options`", AS, "", "field BenchmarkConfig.generation_config"),
    Row(TRANSFORMERS, "`sdpa_backend`, `use_cache`", AS, "", "field BenchmarkConfig.sdpa_backend"),
    Row(TRANSFORMERS, "`ModelBenchmark.setup_model(config)`", AS, "", "calls setup_model"),
    Row(TRANSFORMERS, "`ModelBenchmark.cleanup_model()`", AS, "", "calls cleanup_model"),
    Row(TRANSFORMERS, "`measure_time_to_first_token(config)` in seconds", AS, "", "calls measure_time_to_first_token"),
    Row(TRANSFORMERS, "`measure_latency(config)`", AS, "", "calls measure_latency"),
    Row(
        TRANSFORMERS,
        "`TimingResult(latency=, tokens_per_second=)` in seconds",
        AS,
        "checked against the wall time of the call",
        "name benchmarking:TimingResult",
    ),
    Row(
        TRANSFORMERS,
        "`BenchmarkRunner(logger, output_dir)`",
        AS,
        "each config in fresh processes",
        "name benchmarking:BenchmarkRunner",
    ),
    Row(TRANSFORMERS, "`run_benchmark(benchmark, configs)`", AS, "also `collect_gpu_metrics=`", "calls run_benchmark"),
    Row(TRANSFORMERS, "`save_results(name, results)`", AS, "", "calls save_results"),
    Row(TRANSFORMERS, "`create_config_variants`", AS, "", "name benchmarking:create_config_variants"),
    Row(
        TRANSFORMERS,
        "`GPUMonitor(sample_interval=)`, `start`, `stop`",
        AS,
        "without a GPU `stop` returns the reason",
        "name benchmarking.benches.framework:GPUMonitor",
    ),
    Row(TRANSFORMERS, "`flush_memory`", AS, "", "name benchmarking:flush_memory"),
    Row(
        TRANSFORMERS,
        "`run_<name>(logger, output_dir, **kwargs)`",
        AS,
        "called once to list, with the command's values",
        "calls run_llama_benchmark",
    ),
    Row(TRANSFORMERS, "percentiles 25, 75, 90, 95, 99", AS, "", "column benchmark_results.latency_p99_ms"),
    Row(TRANSFORMERS, "`MODEL/MODEL_benchmark_TIME.json`", AS, "", "line run_benchmarks.py"),
    Row(TRANSFORMERS, "`benchmark_summary.json`", AS, "", "line run_benchmarks.py --output-dir my_results"),
    Row(TRANSFORMERS, "`benchmark_run_TIME.log`", ONE, "it is called batch_SESSION.log", "line run_benchmarks.py"),
    Row(
        TRANSFORMERS,
        "eager, compiled, kernelized",
        AS,
        "variants of a benchmark, and runtimes of models",
        "plugins runtimes eager compiled kernelized",
    ),
    Row(TRANSFORMERS, "`gpu_metrics` in the file", AS, "", "name benchmarking.core.scenario_file:gpu_summary"),
    Row(PROFILER, "`profiler.py`", AS, "", "line profiler.py"),
    Row(PROFILER, "`--model` (default distilbert-base-uncased)", AS, "", "line profiler.py --model"),
    Row(PROFILER, "`--batch-size` (4), `--sequence-length` (128)", AS, "", "flag profile --sequence-length 64"),
    Row(PROFILER, "`--device` (cpu), `--num-runs` (5)", AS, "", "flag profile --num-runs 10"),
    Row(
        PROFILER, "`--output` (auto)", AS, "auto is results/profiling_results_*.json", "flag profile --output any_name"
    ),
    Row(PROFILER, "`compare_onnx.py`", AS, "also OpenVINO, where installed", "line compare_onnx.py"),
    Row(
        PROFILER,
        "its `--model`, `--batch-size` (4), `--num-runs` (10)",
        AS,
        "more iterations raise the precision, as `--launches` does",
        "line compare_onnx.py",
    ),
    Row(
        PROFILER,
        "its `--output` (auto)",
        AS,
        "auto is results/onnx_comparison_*.json, with `--model` or no model",
        "flag compare-runtimes --output any_name",
    ),
    Row(PROFILER, "`results/profiling_results_*.json`", AS, "", "line profiler.py"),
    Row(
        PROFILER,
        "`results/trace_*.json`",
        AS,
        "Chrome's format; `--tensorboard DIR` for TensorBoard",
        "line profiler.py --batch-size 16",
    ),
    Row(
        PROFILER,
        "attention, embedding, tokenization",
        AS,
        "tokenization with texts: `profile_inference(texts)`",
        "name benchmarking.sweep.show.profile_report:KIND_NAMES",
    ),
    Row(PROFILER, "CPU and GPU time", AS, "", "name benchmarking.core.profiles:Profile"),
    Row(
        PROFILER,
        "`from profiler import MLRuntimeProfiler`",
        ONE,
        "from benchmarking import MLRuntimeProfiler",
        "name benchmarking:MLRuntimeProfiler",
    ),
    Row(
        PROFILER,
        "`profile_inference(batch_size=, sequence_length=, num_runs=)`",
        AS,
        "",
        "takes benchmarking.profiler:MLRuntimeProfiler.profile_inference batch_size=8 sequence_length=256 num_runs=10",
    ),
    Row(
        PROFILER,
        "`save_results(FILE)`, `print_summary()`",
        AS,
        "",
        "name benchmarking.profiler:MLRuntimeProfiler.save_results",
    ),
    Row(
        PROFILER,
        "mean ± deviation in the summary",
        ONE,
        "medians with their interval, since a few slow calls move a mean",
        "name benchmarking.sweep.show.profile_report:profile_text",
    ),
    Row(SYSTEMS, "`export_to_onnx.py MODEL`", AS, "", "line export_to_onnx.py bert"),
    Row(
        SYSTEMS,
        "`--output-name x.onnx`",
        AS,
        "one file, in ./models if that folder exists",
        "line export_to_onnx.py distilbert",
    ),
    Row(
        SYSTEMS,
        "`--max-length`",
        AS,
        "length of the check; the graphs take every length",
        "flag export-model --max-length 256",
    ),
    Row(
        SYSTEMS,
        "`--opset-version`",
        ONE,
        "14 is written when asked for; the default is 20",
        "test test_opset_14_is_really_written",
    ),
    Row(SYSTEMS, "`--cache-dir`", AS, "Hugging Face's cache", "flag export-model --cache-dir hub"),
    Row(
        SYSTEMS,
        "`run_benchmarks.py --model`",
        AS,
        "a name that is not exported yet is exported to the cache",
        "line run_benchmarks.py --model",
    ),
    Row(
        SYSTEMS,
        "`--num-iterations`, `--warmup-iterations`",
        AS,
        "",
        "line run_benchmarks.py --model bert-base-uncased --device cpu --num",
    ),
    Row(
        SYSTEMS, "`--batch-size`, `--seq-length`, `--num-threads`", AS, "", "line run_benchmarks.py --model distilbert"
    ),
    Row(SYSTEMS, "`--output`", AS, "", "test test_results_go_to_the_file_that_output_names"),
    Row(SYSTEMS, "`--list-models`", AS, "", "line run_benchmarks.py --list-models"),
    Row(
        SYSTEMS,
        "JSON in `results/raw/`",
        AS,
        "where a folder results exists, else benchmark_results",
        "line run_benchmarks.py --model",
    ),
    Row(
        SYSTEMS,
        "`BaseRunner`, `load_model`, `run_inference`",
        NO,
        "a runtime here also says what it supports and verifies what ran: a file in benchmarking/runtimes",
        "reason",
    ),
    Row(
        SYSTEMS,
        "`BenchmarkMetrics`",
        ONE,
        "a benchmark returns CustomMetric(name=..., value=..., unit=..., better=...)",
        "name benchmarking:CustomMetric",
    ),
    Row(
        SYSTEMS,
        "`plotting.py`, `results/plots`",
        ONE,
        "visualize_benchmarks.py --output-dir results/plots",
        "flag charts --output-dir results/plots",
    ),
    Row(MLAGILITY, "`benchit SCRIPT --device x86`", AS, "ONNX Runtime", "line benchit example.py --device x86"),
    Row(
        MLAGILITY,
        "`--devices`",
        AS,
        "without it the best device found, in PyTorch",
        "test test_without_a_device_both_front_doors_measure_in_pytorch",
    ),
    Row(MLAGILITY, "`nvidia`", AS, "TensorRT", "alias cuda"),
    Row(
        MLAGILITY,
        "`groq`, `--groq-*`, `--groqview`",
        NO,
        "needs Groq's compiler and chips, where nothing here could be verified; refused by name",
        "reason",
    ),
    Row(
        MLAGILITY,
        "`--backend remote`",
        ONE,
        "with --remote-host user@machine, over SSH",
        "flag script --backend remote",
    ),
    Row(
        MLAGILITY,
        "`--runtime ort`, `trt`, `pytorch1`, `pytorch2`",
        AS,
        "onnxruntime, tensorrt, eager, compiled",
        "runtimes ort=onnxruntime trt=tensorrt pytorch1=eager pytorch2=compiled",
    ),
    Row(MLAGILITY, "`benchit benchmark`", AS, "", "line benchit benchmark --help"),
    Row(MLAGILITY, "`SCRIPT::HASH,HASH`", AS, "", "line benchit benchmark example.py::hash_0"),
    Row(
        MLAGILITY,
        "`--search-dir`, `--all`",
        AS,
        "--all alone is the current folder",
        "flag script --search-dir a",
    ),
    Row(MLAGILITY, "`--use-slurm`", AS, "", "flag script --use-slurm"),
    Row(MLAGILITY, "`--lean-cache`", AS, "", "flag script --lean-cache"),
    Row(MLAGILITY, "`-d`, `--cache-dir`", AS, "", "flag script --cache-dir cache"),
    Row(MLAGILITY, "`--rebuild if_needed|always|never`", AS, "", "flag script --rebuild always"),
    Row(
        MLAGILITY,
        "`--sequence-file`",
        ONE,
        "get_sequence() returns benchhouse's stages instead of groqflow's",
        "flag script --sequence-file sequence.py",
    ),
    Row(
        MLAGILITY,
        "`--script-args`",
        AS,
        "split at spaces, or without any at commas; not in quotes, nor in the value of --flag=VALUE",
        "flag script --script-args a,b",
    ),
    Row(MLAGILITY, "`--max-depth`", AS, "", "flag script --max-depth 1"),
    Row(MLAGILITY, "`--analyze-only`, `--build-only`", AS, "", "line benchit example.py --analyze-only"),
    Row(MLAGILITY, "`cache list`", AS, "", "line benchit cache list"),
    Row(
        MLAGILITY,
        "`cache stats BUILD`, `cache print BUILD`",
        AS,
        "a unique prefix is enough",
        "line benchit cache stats",
    ),
    Row(MLAGILITY, "`cache delete BUILD`, `--all`", ONE, "--all takes --yes too", "line benchit cache delete"),
    Row(MLAGILITY, "`cache report`", AS, "to stdout, or --output FILE", "line benchit cache report"),
    Row(MLAGILITY, "`version`", AS, "", "line benchit version"),
    Row(MLAGILITY, "`benchmark_script()`", AS, "from benchmarking", "name benchmarking:benchmark_script"),
    Row(MLAGILITY, "`benchmark_model()`", AS, "from benchmarking", "name benchmarking:benchmark_model"),
    Row(
        MLAGILITY,
        "`MeasuredPerformance`",
        ONE,
        "run.results[0].performance has the same four members",
        "name benchmarking.core.records:Result.performance",
    ),
    Row(MLAGILITY, "`*_state.yaml`", ONE, "CACHE/scripts/SCRIPT_HASH/state.yaml", "line benchit cache print"),
    Row(
        MLAGILITY,
        "conversion to float16 while building",
        ONE,
        "--precision float16, since it changes the results",
        "flag script --precision float16",
    ),
    Row(
        MLAGILITY,
        "100 calls",
        ONE,
        "calls until the interval is narrow; --iterations 100 for that number",
        "flag script --iterations 100",
    ),
    Row(
        MLAGILITY, "Keras", ONE, "Keras 3 on its torch backend", "name benchmarking.workloads.support.script_runs:KERAS"
    ),
    Row(
        MLAGILITY,
        "`mlagility.parser`, `turnkeyml.parser`",
        AS,
        "importable inside a benchmarked script",
        "name benchmarking.workloads.support.script_runs:parse",
    ),
    Row(
        MLAGILITY,
        "`MLAGILITY_TRACEBACK`, `MLAGILITY_DEBUG`",
        AS,
        "",
        "test test_what_scripts_print_and_tracebacks_are_shown_on_request",
    ),
)
