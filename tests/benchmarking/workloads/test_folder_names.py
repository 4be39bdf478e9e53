"""Model folders with any valid file name are measured, stored, continued and found again."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil

import pytest

from benchmarking import cli
from benchmarking.core.untrusted.redaction import expanded, redacted, redacted_path
from benchmarking.run_hardware_benchmark import main
from benchmarking.workloads.support.resolve import resolve

pytestmark = pytest.mark.forked_children

ASKED = [
    *("--batch-sizes", "1", "--sequence-lengths", "8", "--iterations", "3", "--warmup-iterations", "0"),
    *("--launches", "1", "--profile", "quick", "--save", "--quiet"),
]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCHMARK_DB_PATH", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def stored_models(capsys):
    """The model ids in the database, as `query` prints them."""
    capsys.readouterr()
    assert cli.main(["query", "SELECT DISTINCT model_id FROM all_results ORDER BY model_id", "--format", "json"]) == 0
    return [row["model_id"] for row in json.loads(capsys.readouterr().out)]


def test_folders_with_names_of_240_bytes_are_measured_and_stored(tmp_path, save_tiny, capsys):
    first, second = ("x" * 239 + "a"), ("é" * 119 + "bb")
    save_tiny(tmp_path / first)
    shutil.copytree(first, second)
    for name in (first, second):
        assert main(["--model-id", name, "--device", "null", *ASKED]) == 0
    files = os.listdir("benchmark_results")
    assert len([name for name in files if name.endswith(".json")]) == 2
    assert max(map(len, files)) <= 240
    assert stored_models(capsys) == [first, second]
    for command in (["history", f"model={first}"], ["compare", f"model={first}", f"model={first}"]):
        assert cli.main(command) in (0, 3)


def test_a_folder_whose_name_is_not_utf_8_is_measured_and_stored_under_a_readable_name(tmp_path, save_tiny, capsys):
    save_tiny(tmp_path / "plain")
    names = [os.fsdecode(b"model-\xff\xfe"), os.fsdecode(b"model-\xff\xfd")]
    for name in names:
        shutil.copytree("plain", name)
    assert main(["--model-id", names[0], "--device", "cpu", *ASKED]) == 0
    assert main(["--model-id", names[1], "--device", "null", *ASKED]) == 0
    assert stored_models(capsys) == ["model-\\xff\\xfd", "model-\\xff\\xfe"]
    for name in (names[0], "model-\\xff\\xfe"):
        assert cli.main(["history", f"model={name}", "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)) >= 1
        assert cli.main(["recommend", name]) in (0, 3)
        assert "model-\\xff\\xfe" in "".join(capsys.readouterr())


def test_one_folder_is_one_model_with_and_without_a_slash_or_a_dot(tmp_path, save_tiny, capsys):
    save_tiny(tmp_path / "gg" / "net")
    save_tiny(tmp_path / "-net")
    spellings = ["gg/net", "gg/net/", "./gg/net", ".//gg/./net//"]
    assert {resolve(name).model_id for name in spellings} == {"gg/net"}
    assert [resolve(f"./-net{end}").model_id for end in ("", "/")] == ["./-net", "./-net"]
    save_tiny(tmp_path / "~" / "net")
    assert resolve("./~/net/").model_id == "./~/net", "the home folder's is another one"
    assert main(["--model-id", "./gg/net/", "--device", "null", *ASKED]) == 0
    assert stored_models(capsys) == ["gg/net"]
    for name in spellings:
        assert cli.main(["history", f"model={name}", "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)) == 1
        assert cli.main(["recommend", name]) in (0, 3)
        assert "gg/net" in "".join(capsys.readouterr())


def test_a_run_of_such_a_folder_continues_from_its_partial_file(tmp_path):
    path = os.path.join(tmp_path, os.fsdecode(b"model-\xff"))
    os.mkdir(path)
    text = json.dumps(redacted({"path": path}), ensure_ascii=False)
    assert text.encode().endswith(b'model-\\\\xff"}')
    assert expanded(json.loads(text)) == {"path": path}
    assert redacted_path(path) == f"{tmp_path}/model-\\xff"


def test_the_name_of_a_run_file_is_as_it_was_for_shorter_names(null_plan_name):
    assert null_plan_name("org/model") == "org-model_null_null_float32_20260101T000000Z"
    long = null_plan_name("m" * 300)
    assert len(long) == 200
    assert long != null_plan_name("m" * 301)


@pytest.fixture
def null_plan_name(make_run):
    """A function that returns the name of a model's run file."""
    from benchmarking.sweep.run.spool import file_name

    def name(model_id):
        cell = make_run().cell
        device = dataclasses.replace(cell.device, selector="null")
        workload = dataclasses.replace(cell.workload, model_id=model_id)
        cell = dataclasses.replace(cell, workload=workload, device=device, runtime="null", precision="float32")
        return file_name(cell, "2026-01-01T00:00:00Z")

    return name
