"""The script for machines with a GPU, run on this machine's processor with the packages that it asks for, and no other
of ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.hardware import check

SCRIPT = Path(check.__file__)
ON_A_PROCESSOR = {"wall_time", "weights", "utilization", "cold_cache", "spooling", "out_of_memory", "families"}
BROUGHT = {"filelock", "jinja2"}
"""Packages of ours that torch requires too."""
OURS = {
    re.match(r"[\w-]+", line)[0].replace("pyyaml", "yaml") for line in requires("benchhouse") if "extra ==" not in line
}
WITHOUT = f"""import sys
for name in {sorted({"onnx", "onnxscript", *OURS} - BROUGHT - set(check.NEEDED))}:
    sys.modules[name] = None
"""
"""Makes packages missing in a process and its children."""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """Every check on the processor, as somebody without a warehouse would run it."""
    folder = tmp_path_factory.mktemp("hardware")
    (folder / "sitecustomize.py").write_text(WITHOUT)
    arguments = ("--device", "cpu", "--model", "tiny-bert", "--models", "tiny-bert", "--json", "found.json")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "BENCHHOUSE_LOCK_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {
        one["name"].partition(" ")[0]: one for one in map(json.loads, (folder / "found.json").read_text().splitlines())
    }
    return SimpleNamespace(found=found, table=done.stdout, exit_code=done.returncode)


@pytest.mark.slow
def test_every_check_has_an_outcome_and_the_table_shows_it(verdicts):
    assert set(verdicts.found) == {one.__name__ for one in check.CHECKS}
    for verdict in verdicts.found.values():
        assert verdict["outcome"].upper() in verdicts.table
        assert verdict["claim"] in verdicts.table


@pytest.mark.parametrize("name", sorted(ON_A_PROCESSOR))
def test_what_a_processor_can_show_is_right(verdicts, name):
    assert verdicts.found[name]["outcome"] == "right", verdicts.found[name]["evidence"]


@pytest.mark.parametrize("name", sorted({one.__name__ for one in check.CHECKS} - ON_A_PROCESSOR))
def test_what_needs_a_gpu_is_not_applicable_and_says_so(verdicts, name):
    assert verdicts.found[name]["outcome"] == "not applicable"
    assert verdicts.found[name]["evidence"].startswith("no GPU: cpu is ")


def test_the_exit_code_is_0_where_nothing_is_wrong(verdicts):
    assert verdicts.exit_code == 0


def test_the_readme_describes_every_check():
    text = SCRIPT.with_name("README.md").read_text()
    assert [one.__name__ for one in check.CHECKS if f"`{one.__name__}`" not in text] == []


def test_missing_packages_are_one_line_that_installs_them(capsys, monkeypatch):
    monkeypatch.setattr(check.importlib.util, "find_spec", lambda name: None if name in ("yaml", "pynvml") else name)
    for device, packages in (("cuda:0", "PyYAML nvidia-ml-py"), ("rocm:0", "PyYAML")):
        with pytest.raises(SystemExit, match="2"):
            check.main(["--device", device])
        assert capsys.readouterr().err.strip().endswith(f"error: missing packages: pip install {packages}")


def test_every_gpu_that_people_rent_has_a_data_sheet():
    names = ("H100 NVL", "A100 80GB PCIe", "H200", "GeForce RTX 5090", "B200", "L40S")
    assert [name for name in names if check.data_sheet(f"NVIDIA {name}") is None] == []
    assert check.data_sheet("AMD Instinct MI300X OAM") is not None


def test_both_loops_have_the_same_inputs(machine):
    (own,) = machine.inputs.values()
    with torch.inference_mode():
        expected = machine.session.model(own).last_hidden_state
    output = machine.operation.run(lambda name: None)
    assert torch.equal(output.last_hidden_state, expected)


def test_data_sheets_are_found_by_the_exact_name():
    assert check.data_sheet("NVIDIA L40S") is not check.data_sheet("NVIDIA L4")
    assert check.data_sheet("NVIDIA L4")["copy"] == 0.3e12
    assert check.data_sheet("AMD Instinct MI300X")["copy"] == 5.3e12
    assert check.data_sheet("NVIDIA H100 80GB HBM3 MIG 1g.10gb") is None


def test_a_budget_leaves_out_what_would_not_end_in_time(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(check, "CHECKS", {check.weights: 15, check.families: 400})
    words = ["--device", "cpu", "--model", "tiny-bert", "--budget", "60", "--json", str(tmp_path / "found.json")]
    assert check.main(words) == 0
    assert "LEFT OUT        families tiny-bert     takes about 400 s, " in capsys.readouterr().out
    assert [json.loads(line)["name"] for line in (tmp_path / "found.json").read_text().splitlines()] == ["weights"]


@pytest.fixture
def machine(tmp_path):
    """The processor as a device that no earlier check has opened."""
    machine = check.Machine("cpu", "tiny-bert", tmp_path, ("tiny-bert",))
    yield machine
    machine.close()


@pytest.mark.parametrize(
    "loop",
    [
        lambda machine: machine.own_call_s(2)[0],
        lambda machine: check.own_token_ms(machine, fetches=True),
        lambda machine: machine.handle.torch_name == "cpu",
    ],
)
def test_the_loops_of_a_check_open_the_device_themselves_so_that_it_runs_alone(machine, loop, monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda place: None)
    machine.is_cuda = True
    assert loop(machine) > 0


class Parameter(SimpleNamespace):
    __hash__ = object.__hash__

    def numel(self):
        return 10

    def element_size(self):
        return 4


def test_a_number_that_differs_is_wrong_with_both_numbers():
    model = SimpleNamespace(parameters=lambda: [Parameter(), Parameter()], buffers=list)
    machine = SimpleNamespace(session=SimpleNamespace(model=model, weights_bytes=81))
    verdict = check.judged(check.weights, machine)
    assert (verdict.outcome, verdict.evidence) == ("wrong", "81 bytes, own sum 80")
    machine.session.weights_bytes = 80
    assert check.judged(check.weights, machine).outcome == "right"


def test_numbers_further_apart_than_allowed_are_wrong():
    assert check.near("ms", 1.1, 1.0, 0.15, "turns").endswith("off by 10.0% (allowed 15%: turns)")
    with pytest.raises(check.Wrong, match=r"off by 20\.0%"):
        check.near("ms", 1.2, 1.0, 0.15, "turns")


def test_a_check_that_breaks_is_wrong_and_the_others_go_on():
    verdict = check.judged(check.weights, SimpleNamespace())
    assert verdict.outcome == "wrong"
    assert verdict.evidence.startswith("the check itself failed: AttributeError")


def test_an_unknown_check_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        check.main(["--only", "weights,magic"])
    assert "--only: unknown check 'magic'" in capsys.readouterr().err
