"""Each command line of the five documents, run as it is written, on tiny models."""

from __future__ import annotations

import importlib
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarking import benchmark_model, benchmark_script, profiler
from benchmarking.builds.store import CACHE_VARIABLE
from benchmarking.commands import compare_runtimes
from benchmarking.core.errors import UsageError
from benchmarking.sweep.run.lock import FOLDER_VARIABLE
from tests.documents.lines import LINES, Line
from tests.helpers.paths import ROOT

pytestmark = pytest.mark.forked_children
MODULES = {
    "setup_benchmark_db.py": "db.setup_benchmark_db",
    "run_hardware_benchmark.py": "benchmarking.run_hardware_benchmark",
    "visualize_benchmarks.py": "visualize.visualize_benchmarks",
    "run_benchmarks.py": "benchmarking.run_benchmarks",
    "profiler.py": "benchmarking.profiler",
    "compare_onnx.py": "benchmarking.compare_onnx",
    "export_to_onnx.py": "benchmarking.export_to_onnx",
    "benchit": "benchmarking.commands.script",
}
MODELS = {"bert-base-uncased": "tiny-bert", "distilbert-base-uncased": "tiny-bert", "gpt2": "tiny-gpt2"}
"""A model of the documents -> a tiny one of its family, with random weights."""
THEIRS = """
import logging
import sys
import time
from {module} import BenchmarkConfig, BenchmarkRunner, ModelBenchmark, TimingResult, create_config_variants

def called(name):
    with open(__file__ + ".calls", "a") as file:
        print(name, file=file)

class Theirs(ModelBenchmark):
    def __init__(self, logger: logging.Logger):
        super().__init__(logger)
    def setup_model(self, config):
        called("setup_model")
    def cleanup_model(self):
        called("cleanup_model")
    def measure_time_to_first_token(self, config):
        called("measure_time_to_first_token")
        start = time.perf_counter(); time.sleep(0.001)
        return time.perf_counter() - start
    def measure_latency(self, config):
        called("measure_latency")
        start = time.perf_counter(); time.sleep(0.002)
        latency = time.perf_counter() - start
        return TimingResult(latency=latency, tokens_per_second=config.num_tokens_to_generate / latency)

def run_{name}(logger, output_dir="benchmark_results", model_id="their-model", **kwargs):
    if "{name}" == "mock_benchmark" and not kwargs.get("enable_mock"):
        return None
    called("run_{name}")
    base = BenchmarkConfig(name=model_id, model_id=model_id, device="cpu", num_tokens_to_generate=4,
                           measurement_iterations=3, warmup_iterations=1)
    runner = BenchmarkRunner(logger, output_dir)
    results = runner.run_benchmark(Theirs(logger), create_config_variants(base, {{"variant": ["eager"]}}))
    called("run_benchmark")
    saved = runner.save_results("{saved_as}", results)
    called("save_results")
    return saved
"""
MAIN = """
if __name__ == "__main__":
    from benchmarking import measure_file
    sys.exit(measure_file(__file__))
"""
SCRIPT = """
import torch
from turnkeyml.parser import parse

class SmallModel(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(10, width)
    def forward(self, x):
        return self.layer(x)

print("heard")
batch_size, pretrained = parse(["batch_size", "pretrained"])
torch.manual_seed(0)
for width in {widths}:
    SmallModel(width)(torch.rand(batch_size, 10))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A user's folder: benchmarks, scripts, the layout of ML Systems Bench, and results measured without hardware."""
    root = tmp_path_factory.mktemp("documents")
    for name, module, saved_as, end in (
        ("llama_benchmark", "framework", "their_model", ""),
        ("mock_benchmark", "framework", "mock_model", ""),
        ("old_benchmark", "benchmarking", "old_model", MAIN),
    ):
        file = root / "benches" / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(THEIRS.format(module=module, name=name, saved_as=saved_as) + end)
    for name, widths in (("example.py", "5, 6"), ("your_script.py", "5,")):
        (root / name).write_text(SCRIPT.replace("{widths}", widths))
    for name in ("models", "results"):
        (root / name).mkdir()
    (root / "models" / "distilbert-of-before.onnx").touch()  # for the lists of what was exported
    return root


@pytest.fixture
def run(folder, build_cache, monkeypatch, capfd):
    """Runs a line in that folder: its exit code and everything that it printed."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder / "locks"))  # not behind other tests: times do not matter here
    monkeypatch.delenv("BENCHMARK_DB_PATH", raising=False)
    monkeypatch.setattr(profiler, "DEFAULT_MODEL", "tiny-bert")
    monkeypatch.setattr(compare_runtimes, "DEFAULT_MODEL", "tiny-bert")
    monkeypatch.setattr(compare_runtimes, "ROUNDS_TO_PROVE", 1)  # the launches of a comparison
    monkeypatch.setattr(compare_runtimes, "_compared", lambda: ("eager", "onnxruntime"))  # OpenVINO takes as long again

    def run_words(words):
        capfd.readouterr()
        # benchit lists and deletes what is in its cache; exports of models are shared with all other tests
        cache = folder / "cache" if words[0] == "benchit" else build_cache
        monkeypatch.setenv(CACHE_VARIABLE, str(cache))
        code = importlib.import_module(MODULES[words[0]]).main(words[1:])
        out, err = capfd.readouterr()
        return code, out + err

    return run_words


def spooled(run, folder):
    """A run file and a database with results of the null device, which need no model."""
    for model in ("tiny-bert", "tiny-gpt2"):
        words = ["run_hardware_benchmark.py", "--model-id", model, "--device", "null"]
        assert run([*words, "--batch-sizes", "1,2", "--sequence-lengths", "16", "--save", "--quiet"])[0] == 0
    return str(next((folder / "benchmark_results").glob("tiny-bert_null*.json")))


def hashes(run, folder):
    """The hashes of the models in example.py, which is analysed once."""
    kept = folder / "hashes"
    if not kept.exists():
        _, printed = run(["benchit", "example.py", "--analyze-only"])
        kept.write_text("\n".join(line.split()[1] for line in printed.splitlines() if line.split()[:1] == ["hash"]))
    return kept.read_text().split()


def actual_words(line: Line, run, folder) -> list[str]:
    """The words of a line with the test's models, files and hashes in place of the document's."""
    words = [word if line.own_model else MODELS.get(word, word) for word in shlex.split(line.text)]
    if any(word.startswith("benchmark_results/gpt2_cuda") for word in words):
        words[-1] = spooled(run, folder)
    if "hash_" in line.text:
        for number, found in enumerate(hashes(run, folder)):
            words = [word.replace(f"hash_{number}", found) for word in words]
    if words[0] == "benchit" and words[-1] == "example":  # a unique prefix of the build's name
        words[-1] += f"_{hashes(run, folder)[0]}"[:5]
    dry = "--analyze-only" if words[0] == "benchit" else "--dry-run"
    return words + ([dry] if line.plan_only else [])


@pytest.mark.parametrize("line", LINES, ids=[line.text for line in LINES])
def test_a_line_of_the_documents_works(line, run, folder):
    words = actual_words(line, run, folder)
    for path in folder.glob("benches/*.calls"):
        path.unlink()
    before = {path: path.stat().st_mtime_ns for path in folder.glob(line.makes)} if line.makes else {}
    if words[0] == "llama_benchmark.py":  # in the folder benches, with Python alone
        done = subprocess.run(
            [sys.executable, "old_benchmark.py", "--dry-run"],
            cwd=folder / "benches",
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        code, printed = done.returncode, done.stdout + done.stderr
    else:
        code, printed = run(words)
    assert words[0] != "benchit" or "heard" not in printed  # what scripts print is shown on request only
    is_refused = "--device cuda" in line.text and code != 0
    assert code == (2 if is_refused else line.code), printed
    if is_refused:
        assert "device 'cuda' is not available: " in printed
    if line.says is not None:
        assert line.says in printed
    called = {name for path in folder.glob("benches/*.calls") for name in path.read_text().split()}
    assert set(line.calls) <= called
    if line.makes is not None:
        after = {path: path.stat().st_mtime_ns for path in folder.glob(line.makes)}
        assert after.items() - before.items(), printed


def test_opset_14_is_really_written(run, folder):
    import onnx

    words = ["export_to_onnx.py", "tiny-bert", "--opset-version", "14", "--output-name", "old.onnx", "--quiet"]
    code, printed = run([*words, "--cache-dir", str(folder / "hub")])
    assert code == 0, printed
    model = onnx.load(str(folder / "models" / "old.onnx"))
    assert [one.version for one in model.opset_import if one.domain in ("", "ai.onnx")] == [14]
    assert "agrees with torch" in printed
    assert run(words)[0] == 2  # it exists


def test_results_go_to_the_file_that_output_names(run, folder):
    # the runtime is ONNX Runtime in the lines; nothing needs to be measured for the file
    words = ["--quiet", "--warmup-iterations", "1", "--no-save", "--device", "null", "--runtime", "null"]
    code, printed = run(
        ["run_benchmarks.py", "--model", "tiny-bert", "--num-iterations", "3", "--output", "out/one.json", *words]
    )
    assert code == 0, printed
    assert '"tiny-bert"' in Path("out/one.json").read_text()
    code, _ = run(["run_benchmarks.py", "--model", "tiny-bert", "--output", "results", *words])
    assert code == 2
    code, _ = run(["run_benchmarks.py", "--model", "tiny-bert", "--output", "missing/x.json", "--dry-run", *words])
    assert (code, Path("missing").exists()) == (0, False)
    code, printed = run(["run_benchmarks.py", "--model"])
    assert (code, "--model needs a value" in printed) == (2, True)


def test_what_scripts_print_and_tracebacks_are_shown_on_request(run, folder, monkeypatch):
    (folder / "loud.py").write_text("print('heard'); raise ValueError('broken')")
    monkeypatch.setenv("MLAGILITY_DEBUG", "True")
    code, printed = run(["benchit", "loud.py", "--analyze-only"])
    assert (code, "heard" in printed) == (1, True)
    monkeypatch.setenv("MLAGILITY_TRACEBACK", "True")
    with pytest.raises(Exception, match="no such script"):
        run(["benchit", "gone.py"])
    monkeypatch.delenv("MLAGILITY_TRACEBACK")
    assert run(["benchit", "gone.py"])[0] == 2


def test_without_a_device_both_front_doors_measure_in_pytorch(monkeypatch, tmp_path):
    (tmp_path / "one.py").write_text("import torch\ntorch.manual_seed(0)\ntorch.nn.Linear(2, 2)(torch.zeros(1, 2))\n")
    module = torch.nn.Linear(2, 2)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    report = benchmark_script(str(tmp_path / "one.py"), iterations=2, warmup_iterations=1, launches=1)
    runs = [*report.runs, benchmark_model(module, torch.zeros(1, 2), iterations=2, warmup_iterations=1)]
    assert [run.cell.runtime for run in runs] == ["eager", "eager"]
    assert runs[0].cell.device.type != "openvino"


def test_groq_is_refused_with_the_reason(run):
    code, printed = run(["benchit", "example.py", "--groq-num-chips", "2"])
    assert (code, "--groq-num-chips: Groq's compiler and chips are not supported" in printed) == (2, True)
    code, printed = run(["benchit", "example.py", "--devices", "groq"])
    assert (code, "device 'groq': Groq's compiler and chips are not supported" in printed) == (2, True)
    with pytest.raises(UsageError, match="groqview: Groq's compiler and chips are not supported"):
        benchmark_model("tiny-bert", groqview=True)
