"""Listing and clearing the build cache: exact sizes, and no unintended deletion."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from benchmarking import cli
from benchmarking.builds.inventory import delete_folders, lean_cache
from benchmarking.builds.store import RECORD, BuildKey, BuildStore, lock_of
from benchmarking.commands.cache import main
from benchmarking.core.text import size_text

DAY_S = 86_400


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "builds"


def make(kind="onnx", model="tiny-bert", precision="float32", payload=1000):
    """A build with a file of so many bytes; its folder."""
    key = BuildKey(kind=kind, parts={"model_id": model, "precision": precision, "task": "fill-mask"})

    def fill(folder: Path):
        (folder / "weights.bin").write_bytes(b"\0" * payload)
        return {}

    store = BuildStore()
    store.get(key, fill)
    return store.folder(key)


def size(folder):
    return sum(file.stat().st_size for file in folder.iterdir())


def used_days_ago(folder, days):
    then = time.time() - days * DAY_S
    os.utime(folder / RECORD, (then, then))


def listed(capsys):
    assert main(["list", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_list_has_one_line_per_build(capsys):
    folder = make(payload=123_456)
    used_days_ago(folder, 0)
    assert main(["list"]) == 0
    headings, _, line = capsys.readouterr().out.splitlines()
    assert headings.split() == ["kind", "model", "precision", "size", "made", "last", "used", "digest"]
    assert line.split()[:5] == ["onnx", "tiny-bert", "float32", "124", "kB"]
    assert line.endswith(folder.name[:12])


def test_an_empty_cache_is_reported(capsys, cache):
    assert main(["list"]) == 0
    assert capsys.readouterr().out.strip() == f"no builds in {cache}"
    assert main(["stats", "--json"]) == 0
    stats = json.loads(capsys.readouterr().out)
    assert (stats["builds"], stats["size_bytes"], stats["kinds"]) == (0, 0, {})
    assert stats["free_bytes"] > 0
    assert not cache.exists()


def test_stats_add_up_by_kind(capsys):
    folders = [make(), make(model="gpt2"), make(kind="reference", payload=10)]
    assert main(["stats", "--json"]) == 0
    stats = json.loads(capsys.readouterr().out)
    assert stats["kinds"] == {
        "onnx": {"builds": 2, "size_bytes": size(folders[0]) + size(folders[1])},
        "reference": {"builds": 1, "size_bytes": size(folders[2])},
    }
    assert stats["size_bytes"] == sum(map(size, folders))
    assert main(["stats"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("all")]
    assert line.split(maxsplit=2) == ["all", "3", size_text(stats["size_bytes"])]


def test_the_report_is_csv_to_stdout_or_a_file(capsys, tmp_path):
    folder = make(model='a "quoted", name')
    assert main(["report"]) == 0
    text = capsys.readouterr().out
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["kind"], row["model_id"], row["size_bytes"]) == ("onnx", 'a "quoted", name', str(size(folder)))
    assert (row["digest"], row["folder"]) == (folder.name, str(folder))
    assert main(["report", "--output", str(tmp_path / "report.csv")]) == 0
    with (tmp_path / "report.csv").open(newline="", encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == [row]
    assert main(["report", "--output", str(tmp_path / "no" / "report.csv")]) == 2


def test_the_report_has_no_cell_that_a_spreadsheet_would_execute(capsys):
    make(model="=1+1")
    assert main(["report"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["model_id"] == "'=1+1"


def test_a_digest_prefix_names_a_build(capsys):
    folder, other = make(), make(model="gpt2")
    expected = size_text(size(folder))
    assert main(["delete", folder.name[:10]]) == 0
    assert capsys.readouterr().out.splitlines() == [f"1 build deleted, {expected} freed"]
    assert not folder.exists()
    assert other.exists()
    assert not lock_of(folder).exists()


def test_ambiguous_prefixes_delete_nothing(capsys):
    folders = [make(model=f"model-{number}") for number in range(17)]  # of 17 digests two begin with the same digit
    first = [folder.name[0] for folder in folders]
    twice = next(digit for digit in first if first.count(digit) > 1)
    assert main(["delete", twice]) == 2
    assert "give more digits" in capsys.readouterr().err
    assert all(folder.exists() for folder in folders)


@pytest.mark.parametrize(
    ("arguments", "gone"),
    [
        (["--kind", "reference"], {"reference"}),
        (["--model", "gpt2"], {"gpt2"}),
        (["--older-than", "7"], {"old"}),
        (["--older-than", "7", "--kind", "reference"], set()),
        (["--all", "--yes"], {"plain", "gpt2", "reference", "old"}),
    ],
)
def test_builds_are_selected_by_their_properties(arguments, gone):
    folders = {
        "plain": make(),
        "gpt2": make(model="gpt2"),
        "reference": make(kind="reference"),
        "old": make(precision="float16"),
    }
    used_days_ago(folders["old"], 8)
    used_days_ago(folders["plain"], 6)
    assert main(["delete", *arguments]) == 0
    assert {name for name, folder in folders.items() if not folder.exists()} == gone


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no builds selected: give digests"),
        (["--all"], "--all would delete 1 builds"),
        (["--kind", "onx"], "found onnx"),
        (["--model", "bert"], "found tiny-bert"),
        (["--older-than", "soon"], "takes a number from 0"),
        (["--older-than", "-1"], "takes a number from 0"),
        (["zzzz"], "no build has a digest that begins with 'zzzz'"),
        ([""], "argument DIGEST: takes DIGEST: got ''"),
    ],
)
def test_unknown_names_delete_nothing(capsys, arguments, words):
    folder = make()
    assert main(["delete", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert folder.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "are_results_kept"),
    [
        (["--all", "--yes", "--kind", "onnx"], 0, True),
        (["--all", "--yes", "--older-than", "30"], 0, True),
        (["--all", "--yes", "--kind", "onx"], 2, True),
        (["net_12345678", "--model", "tiny-bert"], 0, True),
        (["net_12345678", "--all"], 0, False),
        (["--all", "--yes"], 0, False),
    ],
)
def test_the_results_of_a_scripts_model_stay_unless_it_is_chosen_as_a_whole(arguments, code, are_results_kept, cache):
    make()
    state = cache.parent / "scripts" / "net_12345678"
    state.mkdir(parents=True)
    (state / "state.yaml").write_text("x: [")
    assert main(["delete", *arguments]) == code
    assert state.exists() == are_results_kept


def test_a_digest_with_all_deletes_nothing_else(cache):
    folder, other = make(), make(model="gpt2")
    state = cache.parent / "scripts" / "net_12345678"
    state.mkdir(parents=True)
    (state / "state.yaml").write_text("x: [")
    assert main(["delete", folder.name, "--all", "--yes"]) == 0
    assert [path.exists() for path in (folder, other, state)] == [False, True, True]


def test_a_build_that_another_process_deleted_first_is_not_counted(cache):
    folder, gone = make(), make(model="gpt2")
    shutil.rmtree(gone)
    assert delete_folders(cache, [gone, folder]).count == 1


def test_builds_in_progress_are_kept(capsys):
    folder = make()
    with FileLock(lock_of(folder)):
        assert main(["delete", "--all", "--yes"]) == 1
        assert folder.exists()
        assert f"skipped: {folder}" in capsys.readouterr().err
    assert main(["delete", "--all", "--yes"]) == 0
    assert not folder.exists()


def killed_build(kind, model):
    """What a process leaves behind that is killed while it makes a build."""
    code = f"""
import os, signal
from benchmarking.builds.store import BuildKey, BuildStore

def make(folder):
    (folder / "weights.bin").write_bytes(bytes(500))
    os.kill(os.getpid(), signal.SIGKILL)

BuildStore().get(BuildKey(kind={kind!r}, parts={{"model_id": {model!r}}}), make)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    (left,) = (BuildStore().root / kind).glob(".*.new")
    return left


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_incomplete_builds_and_stale_locks_are_deleted(capsys, cache):
    folder = make()
    dead = killed_build("openvino", "gone")
    older, live = (cache / "onnx" / f".{digit * 32}-abc" for digit in "ab")
    for half in (older, live):
        half.mkdir()
        (half / "weights.bin").write_bytes(b"\0" * 500)
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert all(f"incomplete: {path}: 500 B" in text for path in (dead, older))
    with FileLock(cache / "onnx" / f".{'b' * 32}.lock"):
        assert main(["delete", folder.name]) == 0
        assert "incomplete builds deleted, 1 kB freed" in capsys.readouterr().out
        assert sorted(path.name for path in (cache / "onnx").iterdir()) == [f".{'b' * 32}-abc", f".{'b' * 32}.lock"]
        assert list((cache / "openvino").iterdir()) == []


def test_links_are_never_followed(capsys, tmp_path, cache):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / RECORD).write_text("{}")
    make()
    (cache / "onnx" / ("c" * 32)).symlink_to(precious)
    (cache / "linked-kind").symlink_to(precious.parent)
    found = listed(capsys)
    assert len(found["builds"]) == 1
    assert sorted(Path(link).name for link in found["links"]) == ["c" * 32, "linked-kind"]
    assert main(["delete", "--all", "--yes"]) == 0
    assert (precious / RECORD).exists()
    assert (cache / "onnx" / ("c" * 32)).is_symlink()


def test_links_inside_a_build_are_deleted_without_their_targets(tmp_path):
    precious = tmp_path / "precious.bin"
    precious.write_bytes(b"gold")
    folder = make()
    (folder / "link.bin").symlink_to(precious)
    assert main(["delete", "--all", "--yes"]) == 0
    assert not folder.exists()
    assert precious.read_bytes() == b"gold"


@pytest.mark.parametrize("trouble", ["no record", "no JSON", "another's record", "nested", "pipe"])
def test_a_broken_build_is_reported_and_can_be_deleted(capsys, trouble):
    folder = make()
    if trouble == "no record":
        (folder / RECORD).unlink()
    elif trouble == "no JSON":
        (folder / RECORD).write_text("{")
    elif trouble == "nested":
        (folder / RECORD).write_text("[" * 100_000 + "]" * 100_000)
    elif trouble == "pipe":
        (folder / RECORD).unlink()
        os.mkfifo(folder / RECORD)
    else:
        record = json.loads((folder / RECORD).read_text())
        (folder / RECORD).write_text(json.dumps({**record, "digest": "../../../elsewhere"}))
    (broken,) = listed(capsys)["broken"]
    assert broken["folder"] == str(folder)
    assert broken["why"]
    assert main(["delete", folder.name]) == 0
    assert not folder.exists()


def test_foreign_files_in_the_cache_are_kept(cache, capsys):
    make()
    (cache / "onnx" / "README").write_text("mine")
    (cache / "onnx" / ".hidden").write_text("mine")
    assert main(["delete", "--all", "--yes"]) == 0
    assert sorted(path.name for path in (cache / "onnx").iterdir()) == [".hidden", "README"]


def test_cache_dir_selects_another_cache(capsys, tmp_path, monkeypatch):
    make()
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", os.environ["BENCHHOUSE_CACHE_DIR"])  # put back after the command
    assert cli.main(["cache", "list", "--json", "--cache-dir", str(tmp_path / "empty")]) == 0
    assert json.loads(capsys.readouterr().out)["builds"] == []
    (tmp_path / "file").write_text("")
    assert main(["list", "--cache-dir", str(tmp_path / "file")]) == 2
    assert "takes a folder" in capsys.readouterr().err


def test_lean_cache_deletes_new_builds_and_keeps_old_ones():
    messages: list[str] = []
    before = make()
    with lean_cache(is_lean=True, say=messages.append):
        make()
        new = make(model="gpt2")
        listed_in = os.environ.pop("BENCHHOUSE_MADE_BUILDS")
        by_another = make(model="t5-small")
        os.environ["BENCHHOUSE_MADE_BUILDS"] = listed_in
        expected = size_text(size(new))
    assert before.exists()
    assert by_another.exists()
    assert not new.exists()
    assert messages == [f"lean cache: 1 build deleted, {expected} freed"]
    assert "BENCHHOUSE_MADE_BUILDS" not in os.environ


def test_lean_cache_is_cleaned_after_errors():
    messages: list[str] = []

    def interrupted():
        with lean_cache(is_lean=True, say=messages.append):
            messages.append(str(make()))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    folder, freed = messages
    assert not Path(folder).exists()
    assert freed.startswith("lean cache: 1 build deleted")


def test_without_lean_cache_builds_are_kept():
    messages: list[str] = []
    with lean_cache(is_lean=False, say=messages.append):
        folder = make()
    assert folder.exists()
    assert messages == []


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (45_600_000, "45.6 MB"),
        (999_950_000, "1000 MB"),
        (1_230_000_000, "1.23 GB"),
    ],
)
def test_sizes_are_in_powers_of_ten(size_bytes, text):
    assert size_text(size_bytes) == text
