"""`--compare-to --interleave`: which stored runs can be measured again."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarking import run_hardware_benchmark
from benchmarking.commands import ab
from benchmarking.core.command_line import parser_of
from benchmarking.core.errors import UsageError
from benchmarking.core.provenance import MeasuredRun
from benchmarking.core.records import Device, Point
from benchmarking.core.verdicts.launches import ROUNDS_TO_PROVE
from benchmarking.devices.support import host as host_module
from benchmarking.devices.support.host import hashed_keys
from benchmarking.sweep.run.command_turns import DEFAULT_COMMAND
from db import setup_benchmark_db

pytestmark = pytest.mark.forked_children

ARGUMENTS = SimpleNamespace(
    compare_to="latest", db_path="a.duckdb", runtimes=None, precisions=("float32",), num_threads=None
)
RUN = MeasuredRun(
    run_id="r",
    model_id="m",
    model_source="catalog",
    task="fill-mask",
    weights="random",
    device="cpu",
    runtime="eager",
    runtime_mode={},
    precision="float32",
    num_threads=None,
    cpu_list=None,
    settings={"profile": "quick", "launches": 2},
    tags={"a": "b c"},
    origin_format=None,
    hashed_keys={},
    points=(Point(batch_size=4, sequence_length=32),),
    has_skipped_points=False,
)


@pytest.fixture
def stored(monkeypatch):
    """A function that makes these the runs that are stored; of this machine unless keys say otherwise."""
    host = host_module.host_facts()
    here = hashed_keys(Device(type="cuda", selector="cuda", found=True, name="GPU"), host)
    monkeypatch.setattr(host_module, "host_facts", lambda: host)

    def store(*runs, **keys):
        found = [replace(run, hashed_keys={**here, **keys}) for run in runs]
        monkeypatch.setattr(ab, "stored_runs", lambda selection, db_path: found)

    return store


def test_interleave_repeats_the_stored_fields_and_this_command_without_comparison_flags(stored):
    stored(RUN)
    one, other = ab.arms(ARGUMENTS, ["--model-id", "n", "--interleave", "--compare-to=latest", "--quiet"])
    what = ("--model-id", "m", "--device", "cpu", "--runtime", "eager", "--precision", "float32")
    how = ("--task", "fill-mask", "--weights", "random", "--batch-sizes", "4", "--sequence-lengths", "32")
    assert one.words == (*DEFAULT_COMMAND, *what, *how, "--profile", "quick", "--launches", "2", "--tag", "a=b c")
    assert other.words == (*DEFAULT_COMMAND, "--model-id", "n", "--quiet")


def test_of_a_session_in_several_setups_the_run_in_that_of_the_command_is_repeated(stored):
    """As after a search, whose runs are one session."""
    fast = replace(RUN, runtime="onnxruntime", precision="int8", num_threads=1, runtime_mode={"fusion": "basic"})
    stored(RUN, fast, replace(fast, num_threads=2), replace(fast, runtime_mode={"fusion": "transformers"}))
    asked = {**vars(ARGUMENTS), "runtimes": ("onnxruntime",), "precisions": ("int8",), "num_threads": (1,)}
    one, _ = ab.arms(SimpleNamespace(**asked, fusion="basic"), [])
    words = " ".join(one.words)
    assert "--runtime onnxruntime --precision int8 " in words
    assert "--num-threads 1 --fusion basic " in words
    with pytest.raises(UsageError, match="these runs need 2 different commands: choose one run"):
        ab.arms(SimpleNamespace(**asked), [])


@pytest.mark.parametrize("differing", [{"model_id": "n"}, {"device": "cuda"}])
def test_a_run_of_another_model_or_device_is_not_chosen_by_its_setup(stored, differing):
    stored(RUN, replace(RUN, runtime="onnxruntime", **differing))
    asked = {**vars(ARGUMENTS), "runtimes": ("onnxruntime",)}
    with pytest.raises(UsageError, match="these runs need 2 different commands: choose one run"):
        ab.arms(SimpleNamespace(**asked), [])


def test_a_comparison_with_a_stored_run_makes_the_launches_that_the_help_names(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ab, "check_comparison_flags", lambda arguments: None)  # nothing is stored yet
    database = ["--db-path", str(tmp_path / "a.duckdb")]
    assert setup_benchmark_db.main([*database, "--quiet"]) == 0
    words = ["tiny-bert", "--device", "null", "--dry-run", *database]
    for more, launches in (([], "1 launch"), (["--save", "--compare-to", "latest"], "8 launches")):
        assert run_hardware_benchmark.main([*words, *more]) == 0
        assert f"quick, {launches}\n" in capsys.readouterr().out
    assert f"{ROUNDS_TO_PROVE} to compare" in " ".join(parser_of("run").format_help().split())


def test_other_devices_of_this_machine_are_the_same_machine(stored):
    stored(RUN, device_name="another", device_type="cpu")
    assert ab.arms(ARGUMENTS, ["--model-id", "m"])


@pytest.mark.parametrize(
    ("runs", "keys", "message"),
    [
        ([replace(RUN, model_source="bench")], {}, "latest: run r cannot be repeated: it is a user"),
        ([replace(RUN, origin_format="pyperf")], {}, "another tool measured it: run that tool again"),
        ([RUN, replace(RUN, model_id="n")], {}, "these runs need 2 different commands: choose one run"),
        ([RUN], {"cpu_model": "Other 1"}, 'another machine .cpu_model: "Other 1" / '),
    ],
)
def test_runs_that_cannot_be_repeated_here_are_refused(stored, runs, keys, message):
    stored(*runs, **keys)
    with pytest.raises(UsageError, match=message):
        ab.arms(ARGUMENTS, [])


def test_stored_command_lines_are_never_executed(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    grid = ["--model-id", "tiny-bert", "--device", "null", "--batch-sizes", "1", "--sequence-lengths", "32", "--quiet"]
    grid += ["--weights", "random", "--iterations", "3", "--warmup-iterations", "1", "--launches", "1"]
    kept = ["--save", "--db-path", "theirs.duckdb", "--output-dir", "theirs"]
    assert run_hardware_benchmark.main([*grid, *kept]) == 0
    (path,) = (tmp_path / "theirs").glob("*.json")
    run = json.loads(path.read_text())
    run["provenance"]["command"] = ["run_hardware_benchmark", "bash", "-c", f"touch {tmp_path / 'mark'}"]
    path.write_text(json.dumps(run))
    assert setup_benchmark_db.main(["--ingest", str(path), "--quiet"]) == 0
    capfd.readouterr()
    # One round is measured, and not judged.
    model, *rest = grid[1:]
    asked = ["--compare-to", "latest", "--interleave", "--fail-on=slower", "--json"]
    assert run_hardware_benchmark.main([model, *rest, *asked]) == 3
    sides = json.loads(capfd.readouterr().out)
    assert "bash" not in sides["a"]["command"]
    assert "--model-id tiny-bert" in sides["a"]["command"]
    assert not (tmp_path / "mark").exists()
