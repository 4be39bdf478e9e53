"""Redaction of runs, partial runs, batches and their output: no secrets, `~`, and no names on request."""

from __future__ import annotations

import dataclasses
import json
import platform
import shutil
from pathlib import Path

import pytest

from benchmarking import batch_benchmark, run_hardware_benchmark
from benchmarking.batch.batch_run import Manifest
from benchmarking.batch.summary import BatchInfo
from benchmarking.core.records import Measurement
from benchmarking.core.untrusted.redaction import redacted_record
from benchmarking.sweep.run.command_session import finish_run
from db.warehouse import Warehouse

pytestmark = pytest.mark.forked_children

TOKEN = "hf_" + "a1B2c3D4" * 4
GIVEN = [
    *("--model-id", "tiny-bert", "--device", "null", "--batch-sizes", "1", "--sequence-lengths", "32"),
    *("--iterations", "3", "--warmup-iterations", "0", "--launches", "1", "--profile", "quick"),
]
SECRETS = ("hunter2hunter2", "s3cr3tvalue", TOKEN, "sigvalue")


@pytest.fixture(autouse=True)
def in_an_empty_folder(empty_working_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "people" / "ann"))
    monkeypatch.setenv("OV_MIRROR", "https://ann:hunter2hunter2@host.example/api?token=s3cr3tvalue&sig=sigvalue")
    monkeypatch.setenv("OV_PASSWORD", "hunter2hunter2")


def contents(folder):
    """Everything in a folder, as bytes."""
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def assert_has_none(text):
    content = text if isinstance(text, bytes) else text.encode()
    assert [secret for secret in SECRETS if secret.encode() in content] == []


def model_at_home(folder):
    """A folder of a model, without weights, in the home folder."""
    home = folder / "people" / "ann" / "models" / "bert"
    home.mkdir(parents=True)
    config = {"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    (home / "config.json").write_text(json.dumps({**config, "intermediate_size": 8, "vocab_size": 100}))
    return home


def test_runs_and_their_database_contain_no_secrets(tmp_path, capsys):
    tags = ["--tag", "HF_TOKEN=s3cr3tvalue", "--tag", f"note={TOKEN}", "--tag", "suite=night"]
    arguments = [*tags, "--description", "password=hunter2hunter2 of the mirror", "--save"]
    assert run_hardware_benchmark.main([*GIVEN, *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert_has_none(out + err)
    assert_has_none(contents(tmp_path))
    (run,) = json.loads(out)
    assert run["provenance"]["tags"] == {"HF_TOKEN": "***", "note": "***", "suite": "night"}
    assert run["provenance"]["description"] == "password=*** of the mirror"
    assert run["environment"]["values"]["environment_variables"]["OV_MIRROR"] == "https://host.example/api?***"
    with Warehouse.open(tmp_path / "benchmark_db.duckdb", read_only=True) as warehouse:
        (row,) = warehouse.query("SELECT tags, command FROM benchmark_runs").dicts()
    assert row["tags"]["HF_TOKEN"] == "***"
    assert "--model-id tiny-bert" in str(row["command"]).replace("', '", " ")


def test_batch_summary_report_and_log_contain_no_secrets(tmp_path, capsys):
    arguments = ["--models", "tiny-bert", "--devices", "null", *GIVEN[4:], "--tag", "HF_TOKEN=s3cr3tvalue"]
    assert batch_benchmark.main([*arguments, "--description", TOKEN, "--report", "report.md"]) == 0
    assert_has_none("".join(capsys.readouterr()))
    assert_has_none(contents(tmp_path))


def test_errors_and_tracebacks_contain_no_secrets(null_track):
    track = null_track()
    track.begin()
    point = track.plan.runnable[0]
    error = f"401 for https://ann:hunter2hunter2@host/x?sig=sigvalue with {TOKEN}"
    failed = Measurement(point=point, launch=0, status="failed", error=error, started_at="a", finished_at="b")
    track.keep(dataclasses.replace(failed, extra={"traceback": f"raise Error({error!r}, password='s3cr3tvalue')"}))
    assert_has_none(track.file.path.read_bytes())
    one = finish_run(track)
    assert_has_none(one.path.read_bytes())
    assert "401 for https://host/x?*** with ***" in str(one.run.error)


def test_paths_at_home_are_stored_with_a_tilde_and_a_run_continues_from_them(null_track, tmp_path):
    home = model_at_home(tmp_path)
    track = null_track()
    workload = dataclasses.replace(track.plan.cell.workload, path=str(home))
    track.plan = dataclasses.replace(track.plan, cell=dataclasses.replace(track.plan.cell, workload=workload))
    track.begin()
    text = track.file.path.read_text()
    assert "~/models/bert" in text
    assert str(tmp_path / "people") not in text
    assert track.file.read().plan.cell.workload.path == str(home)


def test_models_in_the_home_folder_are_named_with_a_tilde(tmp_path, capsys):
    home = model_at_home(tmp_path)
    arguments = ["--model-id", str(home), *GIVEN[2:], "--weights", "random", "--save", "--quiet"]
    assert run_hardware_benchmark.main([*arguments, "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    workload = run["cell"]["workload"]
    assert (workload["model_id"], workload["path"]) == ("~/models/bert", "~/models/bert")
    assert "people" not in json.dumps(run)


def test_anonymous_runs_omit_host_and_user_and_keep_their_series(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "anns-own-laptop")
    monkeypatch.setenv("LOGNAME", "ann-of-the-lab")
    (folder := tmp_path / "ann-of-the-lab").mkdir()
    monkeypatch.chdir(folder)
    arguments = [*GIVEN, "--save", "--description", "on anns-own-laptop by ann-of-the-lab", "--json"]
    tags = ["--tag", "HF_TOKEN=s3cr3tvalue", "--tag", "on=anns-own-laptop"]
    assert run_hardware_benchmark.main([*arguments, "--anonymous", *tags]) == 0
    out, _ = capsys.readouterr()
    for text in (out, contents(folder).decode(errors="replace")):
        assert "anns-own-laptop" not in text
        assert "ann-of-the-lab" not in text
    assert json.loads(out)[0]["provenance"]["host"] == ""
    assert run_hardware_benchmark.main(arguments) == 0
    assert json.loads(capsys.readouterr().out)[0]["provenance"]["host"] == "anns-own-laptop"
    with Warehouse.open(folder / "benchmark_db.duckdb", read_only=True) as warehouse:
        sql = "SELECT count(DISTINCT series_id) AS series, count(DISTINCT hardware_id) AS machines, count(*) AS runs"
        (row,) = warehouse.query(f"{sql} FROM all_results").dicts()
    assert row == {"series": 1, "machines": 1, "runs": 2}


def test_the_file_of_an_anonymous_run_has_no_user_in_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGNAME", "ann-of-the-lab")
    folder = shutil.copytree(model_at_home(tmp_path), tmp_path / "scratch" / "ann-of-the-lab" / "bert")
    arguments = ["--model-id", str(folder), *GIVEN[2:], "--weights", "random", "--save", "--quiet", "--anonymous"]
    assert run_hardware_benchmark.main(arguments) == 0
    (path,) = (tmp_path / "benchmark_results").glob("*.json")
    assert path.name.endswith("-scratch-user-bert_null_null_float32_" + path.name.rpartition("_")[2])


def test_manifest_paths_are_restored(null_track, tmp_path):
    about = BatchInfo(
        session_id="s",
        command=("batch", "--tag", "HF_TOKEN=s3cr3tvalue"),
        started_at="2026-01-01T00:00:00Z",
        db_path=str(Path.home() / "results.duckdb"),
        report=None,
    )
    manifest = Manifest.create(tmp_path, about, (null_track().plan,))
    text = manifest.path.read_text()
    assert_has_none(text)
    assert '"db_path": "~/results.duckdb"' in text


def test_runs_without_secrets_are_unchanged(make_run):
    run = make_run(with_failed=True, with_doubtful=True)
    assert redacted_record(run) == run
