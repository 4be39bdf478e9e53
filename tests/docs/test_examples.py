"""What is in examples/ works: each file is run, or read by the command it is for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from xml.etree import ElementTree

import pytest
import yaml

from benchmarking import __version__
from tests.helpers.doc_pages import blocks
from tests.helpers.paths import ROOT

pytestmark = pytest.mark.forked_children

EXAMPLES = ROOT / "examples"
TESTED = {
    "benches/attention.py",
    "ci-gate.yml",
    "measure_and_store.py",
    "models.yaml",
    "prices.yaml",
    "publish-pages.yml",
}


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested_here():
    files = {path.relative_to(EXAMPLES) for path in EXAMPLES.rglob("*") if path.is_file()}
    assert {path.as_posix() for path in files if "__pycache__" not in path.parts} == TESTED


@pytest.mark.slow
def test_the_benchmark_is_measured(scratch):
    command = ("batch_benchmark", "--benches", "examples/benches", "--devices", "cpu", "--iterations", "2")
    run(*command, "--warmup-iterations", "1", "--launches", "1", "--include", "attention", "--no-save", "--quiet")


def test_every_model_of_the_list_is_planned(scratch):
    plan = run("batch_benchmark", "--model-list", "examples/models.yaml", "--devices", "null", "--dry-run")
    names = [one if isinstance(one, str) else one["id"] for one in read("models.yaml")["models"]]
    assert all(name in plan for name in names)


def test_the_prices_are_those_of_the_recommendation(scratch):
    limits = ("--latency-ms", "2000", "--prefer", "cost", "--price", "examples/prices.yaml", "--json")
    answer = run("benchhouse", "recommend", "bert-base-uncased", *limits)
    assert json.loads(answer)
    assert "EUR" in answer


@pytest.mark.slow
def test_the_script_stores_what_it_measures(scratch):
    printed = run(sys.executable, "examples/measure_and_store.py", "example.duckdb")
    assert [f"batch of {size}" in printed for size in (1, 8, 64)] == [True] * 3


@pytest.mark.parametrize(("page", "name"), [("getting-started.md", "models.yaml"), ("judging.md", "prices.yaml")])
def test_a_file_shown_on_a_page_is_the_example(page, name):
    (shown,) = [one for one in blocks(ROOT / "docs" / page) if one.kind == "file" and one.file_name == name]
    assert shown.text == (EXAMPLES / name).read_text(encoding="utf-8")


def test_the_benchmark_shown_on_a_page_is_the_example():
    page = ROOT / "docs" / "getting-started.md"
    (shown,) = [one for one in blocks(page) if one.kind == "file" and one.file_name == "benches/attention.py"]
    assert (EXAMPLES / "benches" / "attention.py").read_text(encoding="utf-8").endswith(shown.text)


@pytest.fixture
def gate_step(scratch, monkeypatch):
    """A function that runs the script of a step of the workflow as GitHub does, and gives its exit code."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(scratch / "summary.md"))
    monkeypatch.setenv("GITHUB_REF_NAME", "main")
    job = read("ci-gate.yml")["jobs"]["gate"]
    for name, value in job["env"].items():
        monkeypatch.setenv(name, value)
    scripts = {step["name"]: step["run"] for step in job["steps"] if "run" in step}

    def step(name: str, *, instead: tuple[str, str]) -> int:
        old, new = instead
        assert old in scripts[name]
        script = scripts[name].replace(old, new)
        return subprocess.run(["bash", "-e", "-c", script], check=False, env=dict(os.environ)).returncode

    return step


def test_the_workflow_measures_and_passes_while_there_is_no_history(gate_step, scratch):
    assert gate_step("Measure", instead=("--device cpu", "--device null")) == 0
    assert gate_step("Gate", instead=("--confirm", "")) == 0
    assert "not enough data" in (scratch / "summary.md").read_text(encoding="utf-8")


def test_the_workflow_passes_a_steady_history_and_writes_junit(gate_step, scratch):
    steady = f"--run {(scratch / 'judged_run').read_text()}"
    assert gate_step("Gate", instead=("--confirm", steady)) == 0
    assert ElementTree.parse(scratch / "gate.xml").getroot().tag == "testsuites"


def test_the_workflow_fails_where_the_gate_does(gate_step):
    assert gate_step("Gate", instead=("--confirm", "--run 00000000-aaaa")) not in (0, 3)


@pytest.mark.parametrize(
    ("existing", "expected"), [("", "POST .*/issues/7/comments "), ("42", "PATCH .*/comments/42 ")]
)
def test_the_workflow_comments_once_and_then_renews_its_comment(tmp_path, existing, expected):
    program = tmp_path / "gh"
    program.write_text(f'#!/bin/sh\ncase "$*" in *--jq*) echo "{existing}";; *) echo "$*" >> {tmp_path}/calls;; esac\n')
    program.chmod(0o755)
    (script,) = [one["run"] for one in read("ci-gate.yml")["jobs"]["comment"]["steps"] if "run" in one]
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_REPOSITORY": "o/r", "PULL_REQUEST": "7"}
    done = subprocess.run(["bash", "-e", "-c", script], check=True, capture_output=True, text=True, env=own)
    assert re.search(f"--method {expected}-F body=@comment.md", (tmp_path / "calls").read_text())
    assert (done.stdout, done.stderr) == ("", "")


def test_the_gates_workflow_pins_its_actions_and_gives_no_job_more_than_it_needs():
    gate, comment = (read("ci-gate.yml")["jobs"][name] for name in ("gate", "comment"))
    used = [step["uses"] for job in (gate, comment) for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", one) for one in used)
    assert read("ci-gate.yml")["permissions"] == {"contents": "read"}
    assert comment["permissions"] == {"pull-requests": "write"}
    assert "checkout" not in " ".join(step.get("uses", "") for step in comment["steps"])
    assert "benchmark_db.duckdb" in gate["steps"][-1]["with"]["path"]


@pytest.mark.slow
def test_the_workflow_publishes_the_pages_that_it_hands_over(scratch):
    (job,) = read("publish-pages.yml")["jobs"].values()
    (script,) = [step["run"] for step in job["steps"] if step.get("name") == "Publish"]
    (upload,) = [step["with"] for step in job["steps"] if "upload-pages-artifact" in step.get("uses", "")]
    (cached,) = [step["with"] for step in job["steps"] if "actions/cache" in step.get("uses", "")]
    assert (scratch / cached["path"]).is_file()
    subprocess.run(["bash", "-e", "-c", script.replace("publish site", "publish site model=gpt2")], check=True)
    assert (scratch / upload["path"] / "index.html").is_file()


def read(name: str) -> dict[str, object]:
    return yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))


def test_the_hooks_before_a_commit_call_programs_that_the_test_extra_installs():
    (own,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    programs = {hook["entry"].split()[0] for hook in own["hooks"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert own["repo"] == "local"
    assert programs == {"ruff", "mypy"}
    assert programs <= {wanted.split(">")[0] for wanted in project["optional-dependencies"]["test"]}


def test_the_plugins_shown_on_a_page_meet_the_lint_rules_of_the_house(tmp_path):
    found = [one for one in blocks(ROOT / "docs" / "adding-a-plugin.md") if one.kind == "file" and one.language]
    files = [tmp_path / one.file_name for one in found if one.file_name.endswith(".py")]
    for file, block in zip(files, (one for one in found if one.language == "python"), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text, encoding="utf-8")
    for step in (("check",), ("format", "--check")):
        ruff = (sys.executable, "-m", "ruff", *step, "--config", str(ROOT / "pyproject.toml"))
        assert "warning" not in run(*ruff, *map(str, files))


def test_the_project_and_its_package_have_the_same_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == __version__
