"""Installed as a wheel or editable, the commands run from an empty folder and find their SQL."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

PARTS = ("benchmarking", "db", "schema", "visualize", "pyproject.toml", "README.md", "LICENSE")
SWEEP = ["--model-id", "tiny-bert", "--device", "null", "--batch-sizes", "1", "--sequence-lengths", "32"]
QUICK = ["--profile", "quick", "--quiet"]

SUFFIX = {"wheel": ".py", "editable": ""}
"""Of the names of commands: each kind of installation has both."""


@pytest.fixture(scope="module", params=SUFFIX)
def installed(request, tmp_path_factory):
    """The folder of commands of a fresh environment; its dependencies are this environment's, by path."""
    folder = tmp_path_factory.mktemp(request.param)
    source = folder / "source"
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            source.mkdir(exist_ok=True)
            shutil.copy(ROOT / part, source / part)
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    scripts = Path(sysconfig.get_path("scripts", "venv", vars={"base": str(environment)}))
    packages = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(environment)}))
    # A path line activates no .pth file of the folder it names: this environment's own editable install stays out.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (packages / "schema.py").write_text("OF_ANOTHER_PROJECT = True\n")
    target = ["-e", str(source)] if request.param == "editable" else [str(source)]
    pip = [str(scripts / "python"), "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, *target], check=True, capture_output=True, cwd=folder)
    return scripts


@pytest.fixture
def run(installed, tmp_path, monkeypatch):
    """Runs a command of the installation in an empty folder and gives what it printed."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("BENCHMARK_DB_PATH", raising=False)

    def call(name, *arguments):
        done = subprocess.run(
            [str(installed / name), *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def test_the_modules_are_the_installed_ones_and_another_projects_schema_stays(run, installed):
    code = "import benchmarking, db.schema, schema; print(benchmarking.__file__, schema.OF_ANOTHER_PROJECT)"
    path, other = run("python", "-c", code).split()
    assert Path(path).is_relative_to(installed.parents[1])
    assert not Path(path).is_relative_to(ROOT)
    assert other == "True"


@pytest.mark.parametrize("package", ["benchmarking", "db", "visualize"])
def test_type_checkers_may_read_the_annotations_of_every_package(run, package):
    code = f"import importlib.resources as r; print(r.files({package!r}).joinpath('py.typed').is_file())"
    assert run("python", "-c", code).strip() == "True"


@pytest.mark.slow
def test_measure_store_and_draw_from_an_empty_folder(run, tmp_path, request):
    suffix = SUFFIX[request.node.callspec.params["installed"]]
    run(f"setup_benchmark_db{suffix}", "--db-path", "here.duckdb")
    run(f"run_hardware_benchmark{suffix}", *SWEEP, *QUICK, "--save", "--db-path", "here.duckdb")
    drawn = run(f"visualize_benchmarks{suffix}", "--db-path", "here.duckdb", "--model-id", "tiny-bert", "--json")
    assert json.loads(drawn)
    assert "verified: no faults" in run("benchhouse", "setup_benchmark_db", "--db-path", "here.duckdb", "--verify")
    assert (tmp_path / "benchmark_visualizations").is_dir()


def test_a_script_of_a_checkout_runs_beside_an_installation_of_another(run):
    printed = run("python", str(ROOT / "db" / "setup_benchmark_db.py"), "--db-path", "own.duckdb")
    assert printed.startswith("own.duckdb: schema ")


def test_the_front_door_knows_its_version(run):
    assert run("benchhouse", "--version").split()[0] == "benchhouse"


@pytest.mark.parametrize(
    "path",
    [
        "benchmarking/run_hardware_benchmark.py",
        "benchmarking/batch_benchmark.py",
        "db/setup_benchmark_db.py",
        "visualize/visualize_benchmarks.py",
    ],
)
def test_every_command_runs_as_a_file_and_as_a_module(tmp_path, path):
    module = path.removesuffix(".py").replace("/", ".")
    for arguments in ([str(ROOT / path)], ["-m", module]):
        done = subprocess.run(
            [sys.executable, *arguments, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith(f"usage: {Path(path).stem}")
