"""Every command line of the five documents, in their order, without `python ` and `python scripts/`."""

from __future__ import annotations

from typing import NamedTuple

ACCELERATE = "IPFS Accelerate benchmarking"
TRANSFORMERS = "transformers benchmark_v2"
PROFILER = "ML Runtime Profiler"
SYSTEMS = "ML Systems Bench"
MLAGILITY = "MLAgility"
DOCUMENTS = (ACCELERATE, TRANSFORMERS, PROFILER, SYSTEMS, MLAGILITY)


class Line(NamedTuple):
    """A command line, and what shows that it did its work."""

    document: str
    text: str
    makes: str | None = None
    """Pattern of a file that exists afterwards, and changed."""
    says: str | None = None
    """What it prints, on either stream."""
    code: int = 0
    plan_only: bool = False
    """Whether it is run as a dry run (benchit: only analysed): it differs from an earlier line in values only."""
    calls: tuple[str, ...] = ()
    """What is called of the benchmark file, or by it."""
    own_model: bool = False
    """Whether the document's model is kept, because the tiny one is too small for the line."""


LINES = (
    Line(ACCELERATE, "setup_benchmark_db.py --db-path benchmark_db.duckdb", makes="benchmark_db.duckdb"),
    Line(ACCELERATE, "setup_benchmark_db.py --db-path benchmark_db.duckdb --overwrite", says="runs 0, results 0"),
    Line(ACCELERATE, "run_hardware_benchmark.py --model-id bert-base-uncased --device cuda --save", says="cuda"),
    Line(
        ACCELERATE,
        "run_hardware_benchmark.py --model-id gpt2 --device cuda --precision float16 --batch-sizes 1,2,4,8 "
        "--sequence-lengths 128,256,512 --iterations 20 --save --output-dir benchmark_results",
        says="cuda",
        own_model=True,
    ),
    Line(
        ACCELERATE,
        "visualize_benchmarks.py --json-path benchmark_results/gpt2_cuda_float16_20250410_120000.json",
        makes="benchmark_visualizations/*.png",
    ),
    Line(
        ACCELERATE,
        "visualize_benchmarks.py --db-path benchmark_db.duckdb --model-id bert-base-uncased",
        makes="benchmark_visualizations/*.png",
    ),
    Line(
        ACCELERATE,
        "visualize_benchmarks.py --db-path benchmark_db.duckdb --architecture-comparison",
        makes="benchmark_visualizations/*architecture*",
    ),
    Line(
        TRANSFORMERS,
        "run_benchmarks.py",
        makes="benchmark_results/their_model/their_model_benchmark_*.json",
        calls=(
            *("run_llama_benchmark", "run_benchmark", "save_results"),
            *("setup_model", "measure_time_to_first_token", "measure_latency", "cleanup_model"),
        ),
    ),
    Line(TRANSFORMERS, "run_benchmarks.py --output-dir my_results", makes="my_results/benchmark_summary.json"),
    Line(
        TRANSFORMERS,
        "run_benchmarks.py --warmup-iterations 5 --measurement-iterations 10 --num-tokens-to-generate 200",
        says="their-model",
        plan_only=True,
    ),
    Line(TRANSFORMERS, "run_benchmarks.py --include llama_benchmark", says="their-model", plan_only=True),
    Line(TRANSFORMERS, "run_benchmarks.py --exclude old_benchmark", says="their-model", plan_only=True),
    Line(TRANSFORMERS, "run_benchmarks.py --model-id gpt2", says="tiny-gpt2", plan_only=True),
    Line(TRANSFORMERS, "run_benchmarks.py --include mock_benchmark --enable-mock", says="their-model", plan_only=True),
    Line(TRANSFORMERS, "llama_benchmark.py", says="their-model", plan_only=True),
    Line(TRANSFORMERS, "run_benchmarks.py --help", says="--enable-mock"),
    Line(
        TRANSFORMERS,
        "run_benchmarks.py --include mock_benchmark --enable-mock --warmup-iterations 1 --measurement-iterations 2 "
        "--num-tokens-to-generate 10",
        makes="benchmark_results/mock_model/*.json",
    ),
    Line(TRANSFORMERS, "run_benchmarks.py --log-level DEBUG", says="their-model", plan_only=True),
    Line(PROFILER, "profiler.py", makes="results/profiling_results_*.json", says="attention"),
    Line(
        PROFILER,
        "profiler.py --model distilbert-base-uncased --batch-size 8 --device cuda --num-runs 10",
        says="cuda",
    ),
    Line(PROFILER, "compare_onnx.py --model distilbert-base-uncased --batch-size 4 --num-runs 20", says="onnxruntime"),
    Line(PROFILER, "profiler.py --batch-size 16 --num-runs 5", makes="results/trace_*.json"),
    Line(SYSTEMS, "export_to_onnx.py bert-base-uncased", says="agrees with torch"),
    Line(
        SYSTEMS,
        "export_to_onnx.py distilbert-base-uncased --output-name distilbert.onnx --max-length 256",
        makes="models/distilbert.onnx",
    ),
    Line(SYSTEMS, "run_benchmarks.py --model bert-base-uncased", makes="results/raw/*.json", says="onnxruntime"),
    Line(
        SYSTEMS,
        "run_benchmarks.py --model bert-base-uncased --device cpu --num-iterations 100 --batch-size 1 --seq-length 128 "
        "--num-threads 4",
        says="100 iterations",
        plan_only=True,
    ),
    Line(SYSTEMS, "run_benchmarks.py --list-models", says="distilbert"),
    Line(SYSTEMS, "run_benchmarks.py --model bert-base-uncased --device cpu", says="b1 s128", plan_only=True),
    Line(SYSTEMS, "run_benchmarks.py --model bert-base-uncased --device cuda", says="cuda"),
    Line(
        SYSTEMS,
        "run_benchmarks.py --model distilbert-base-uncased --batch-size 8 --seq-length 256",
        says="b8 s256",
        plan_only=True,
    ),
    Line(SYSTEMS, "run_benchmarks.py --model bert-base-uncased --num-threads 1", says="threads    1", plan_only=True),
    Line(SYSTEMS, "run_benchmarks.py --model bert-base-uncased --num-threads 8", says="threads    8", plan_only=True),
    Line(MLAGILITY, "benchit your_script.py --device x86", says="SmallModel", plan_only=True),
    Line(MLAGILITY, "benchit example.py --analyze-only", says="SmallModel"),
    Line(MLAGILITY, "benchit example.py --device x86", says="example.SmallModel on cpu in onnxruntime (float32)"),
    Line(MLAGILITY, "benchit benchmark --help", says="--analyze-only"),
    Line(MLAGILITY, "benchit cache list --help", says="--cache-dir"),
    Line(MLAGILITY, "benchit benchmark example.py::hash_0", says="SmallModel", plan_only=True),
    Line(MLAGILITY, "benchit benchmark example.py::hash_0,hash_1", says="SmallModel", plan_only=True),
    Line(MLAGILITY, "benchit cache list", says="example_"),
    Line(MLAGILITY, "benchit cache stats example", says="onnxruntime"),
    Line(MLAGILITY, "benchit cache print example", says="SmallModel"),
    Line(MLAGILITY, "benchit cache report", says="mean_latency_ms"),
    Line(MLAGILITY, "benchit cache delete example", says="deleted"),
    Line(MLAGILITY, "benchit version", says="benchhouse "),
)
