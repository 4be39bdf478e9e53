"""What works where only the warehouse is installed, without the extra `measure`, and what measuring says there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib

import pytest

from benchmarking.cli import COMMANDS
from benchmarking.core.plugins import MEASURING
from tests.helpers.paths import ROOT

EXTRA = 'pip install "benchhouse[measure]"'
OF_MEASURE = (
    *("torch", "transformers", "huggingface_hub", "safetensors", "diffusers", "onnx", "onnxscript", "onnxruntime"),
    *("openvino", "pynvml", "scipy", "duckdb_cli", "nncf", "torchao", "kernels", "accelerate"),
)
RUN = """
import json, sys
hidden = set(json.loads(sys.argv[1]))

class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(one) for one in sys.meta_path]
from benchmarking.cli import main
for command in json.loads(sys.argv[2]):
    code = main(command)
    if code:
        print("exit code", code, "of", *command)
        sys.exit(code)
"""
MEASURING_COMMANDS = {
    "run": ["run_hardware_benchmark", "--model-id", "tiny-bert", "--device", "null"],
    "dry run": ["run_hardware_benchmark", "--model-id", "tiny-bert", "--device", "cpu", "--dry-run"],
    "resume": ["run_hardware_benchmark", "--resume"],
    "calibrate": ["run_hardware_benchmark", "--calibrate-device", "--device", "cpu"],
    "batch": ["batch_benchmark", "--models", "tiny-bert", "--devices", "cpu"],
    "compare runtimes": ["compare_onnx", "tiny-bert"],
    "export": ["export_to_onnx", "tiny-bert", "--output-dir", "out"],
    "ab": ["ab", "run_hardware_benchmark --model-id tiny-bert", "run_hardware_benchmark --model-id tiny-bert"],
}


def run(commands, hidden, folder):
    """The commands one after the other, in a process that does not find the hidden modules."""
    code = [sys.executable, "-c", RUN, json.dumps(sorted(hidden)), json.dumps(commands)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(code, capture_output=True, text=True, cwd=folder, env=environment, check=False, timeout=120)


@pytest.mark.parametrize("command", MEASURING_COMMANDS.values(), ids=MEASURING_COMMANDS)
def test_a_measuring_command_without_its_packages_says_in_one_line_what_to_install(command, tmp_path):
    done = run([command], OF_MEASURE, tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"needs {', '.join(MEASURING)}, which are not installed: {EXTRA}" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("absent", MEASURING)
def test_of_a_partly_installed_set_what_is_missing_is_named(absent, tmp_path):
    done = run([MEASURING_COMMANDS["run"]], [absent], tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"needs {absent}, which is not installed: {EXTRA}" in done.stderr


@pytest.mark.parametrize(
    ("command", "absent"),
    [
        ([*MEASURING_COMMANDS["dry run"], "--runtime", "openvino"], "openvino"),
        ([*MEASURING_COMMANDS["dry run"], "--runtime", "onnxruntime"], "onnxruntime"),
        (["run_hardware_benchmark", "--model-id", "tiny-unet", "--device", "cpu"], "diffusers"),
        ([*MEASURING_COMMANDS["export"], "--format", "openvino"], "openvino"),
    ],
)
def test_what_only_one_runtime_or_family_needs_is_named_when_it_is_asked_for(command, absent, tmp_path):
    done = run([command], [absent], tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert absent in done.stderr
    assert EXTRA in done.stderr


def test_a_report_of_a_batch_where_only_measuring_is_installed_says_what_to_install(tmp_path):
    done = run([["batch_benchmark", "--benches", ".", "--report", "report.html"]], ["duckdb"], tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--report needs duckdb, which is not installed: pip install benchhouse" in done.stderr


def test_every_help_works_without_them(tmp_path):
    done = run([[name, "--help"] for name in COMMANDS], OF_MEASURE, tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_reading_judging_and_drawing_work_without_them(tmp_path):
    (tmp_path / "values.json").write_text(
        json.dumps(
            {
                "version": "1.0",
                "metadata": {"name": "linear", "unit": "second"},
                "benchmarks": [{"runs": [{"values": [0.01, 0.011, 0.012] * 20} for _ in range(3)]}],
            }
        )
    )
    commands = [
        ["import", "values.json", "--db-path", "a.duckdb", "--device-name", "one"],
        ["setup_benchmark_db", "--db-path", "a.duckdb", "--verify"],
        ["query", "SELECT count(*) FROM all_results", "--db-path", "a.duckdb"],
        ["history", "--db-path", "a.duckdb"],
        ["series", "list", "--db-path", "a.duckdb"],
        ["export", "--format", "csv", "--db-path", "a.duckdb", "--output", "a.csv"],
        ["merge", "a.duckdb", "--db-path", "b.duckdb"],
        ["visualize_benchmarks", "--db-path", "a.duckdb", "--output-dir", "charts", "--formats", "png"],
        ["run_hardware_benchmark", "--list-models"],
        ["run_hardware_benchmark", "--list-runtimes"],
        ["manage_cache", "list"],
    ]
    done = run(commands, OF_MEASURE, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "charts").glob("*.png"))


def test_the_extras_complete_the_installation_and_the_tests_have_all_that_measures():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {name.partition(">")[0].partition(";")[0] for name in project["dependencies"]}
    assert not named & {"torch", "transformers", "onnxruntime", "onnxruntime-gpu", "openvino", "diffusers", "scipy"}
    extras = project["optional-dependencies"]
    assert "benchhouse[measure-core]" in extras["measure"]
    assert "benchhouse[measure-core]" in extras["measure-amd"]
    assert not [one for one in extras["measure-amd"] if one.startswith("onnxruntime-gpu")]
    (parts,) = [one for one in extras["test"] if one.startswith("benchhouse[")]
    assert "measure" in parts.partition("[")[2].rstrip("]").split(",")
