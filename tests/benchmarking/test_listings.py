"""Output of `--list-devices`, `--list-runtimes` and `--list-models`."""

from __future__ import annotations

import json

import pytest

from benchmarking.builds.store import BuildKey, BuildStore
from benchmarking.commands.listings import catalog_json, devices_json, devices_text
from benchmarking.core import plugins
from benchmarking.core.records import Device, from_json
from benchmarking.run_hardware_benchmark import main
from benchmarking.workloads.support.hub import cached_models, hub_cache_dir

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub cache with a model of two commits, one without weights, and an unfinished download."""
    folder = tmp_path / "hub"
    model = folder / "models--owner--small"
    (model / "blobs").mkdir(parents=True)
    (model / "blobs" / "w").write_bytes(b"\0" * 4000)
    (model / "blobs" / "c").write_bytes(b"{}")
    for commit in ("old", COMMIT):
        snapshot = model / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").symlink_to(model / "blobs" / "c")
        (snapshot / "model.safetensors").symlink_to(model / "blobs" / "w")
    (folder / "models--gpt2" / "snapshots" / "only").mkdir(parents=True)
    (folder / "models--gone" / "snapshots").mkdir(parents=True)
    (folder / "datasets--owner--data" / "snapshots" / "x").mkdir(parents=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(folder))
    return folder


@pytest.fixture(autouse=True)
def build_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))


def make_build(kind):
    key = BuildKey(kind=kind, parts={"model_id": "tiny-gpt2", "precision": "int8", "task": "text-generation"})
    build, _ = BuildStore().get(key, lambda folder: (folder / "x").write_bytes(b"\0" * 100) and {})
    return build


def test_cached_models_count_shared_files_once(hub):
    gpt2, small = cached_models(hub)
    assert (gpt2.model_id, gpt2.size_bytes, gpt2.weights_bytes) == ("gpt2", 0, 0)
    assert (small.model_id, small.size_bytes, small.weights_bytes) == ("owner/small", 4002, 4000)
    assert len(small.revisions) == 2
    assert cached_models(hub / "nowhere") == ()


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/c"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({"HF_HOME": "$SCRATCH/b"}, "/scratch/b/hub"),
    ],
)
def test_the_hub_cache_is_found_where_the_library_puts_it(environment, place, monkeypatch):
    monkeypatch.setenv("SCRATCH", "/scratch")
    assert str(hub_cache_dir(environment)) == place


def test_models_are_listed_from_catalog_cache_and_builds(hub, capsys):
    build = make_build("onnx")
    make_build("reference")
    assert main(["--list-models", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    catalog = {row["name"]: row for row in listed["catalog"]}
    assert catalog["gpt2"]["float32_bytes"] == 4 * catalog["gpt2"]["parameter_count"]
    assert [row["name"] for row in listed["cached"]] == ["gpt2", "owner/small"]
    (exported,) = listed["exported"]
    assert (exported["name"], exported["format"], exported["precision"]) == ("tiny-gpt2", "onnx", "int8")
    assert exported["digest"] == build.digest


def test_models_as_text(hub, capsys):
    build = make_build("onnx")
    assert main(["--list-models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"Cached from the hub in {hub}:" in lines
    (small,) = [line for line in lines if line.startswith("owner/small")]
    assert small.split()[1:5] == ["4", "kB", "4", "kB"]
    assert lines[-1].startswith("tiny-gpt2  text-generation  onnx")
    assert lines[-1].endswith(build.digest[:12])


def test_a_folder_named_like_a_built_in_model_changes_nothing_in_the_list(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listed = catalog_json()
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "bert-base-uncased").mkdir()
    (tmp_path / "bert-base-uncased" / "config.json").write_text('{"model_type": "vit"}')
    assert catalog_json() == listed


def test_empty_lists_show_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    assert main(["--list-models"]) == 0
    assert capsys.readouterr().out.splitlines()[-4:-2] == ["none", ""]


def test_runtimes_are_found_or_have_a_reason(monkeypatch, capsys):
    eager = plugins.load("benchmarking.runtimes", "eager")
    monkeypatch.setattr(type(eager), "missing", lambda self: "not installed: torch: pip install torch")
    assert main(["--list-runtimes", "--json"]) == 0
    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert (listed["eager"]["found"], listed["eager"]["why_not"]) == (False, "not installed: torch: pip install torch")
    assert "torch" in listed["eager"]["versions"]
    assert {"null", "bench"}.isdisjoint(listed)
    assert main(["--list-runtimes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["runtime", "versions"]
    (head,) = [place for place, line in enumerate(lines) if line.split() == ["not", "found", "why"]]
    assert any(line.split()[0] == "eager" and line.endswith("pip install torch") for line in lines[head + 2 :])


FOUND = {
    "cpu": (
        Device(
            type="cpu",
            selector="cpu",
            found=True,
            name="AMD EPYC",
            memory_bytes=25_276_514_304,
            precisions=("float32", "int8"),
        ),
    ),
    "cuda": (Device(type="cuda", selector="cuda", found=False, why_not="no driver: install it"),),
    "qnn": (Device(type="qnn", selector="qnn", found=True, name="Emulator", driver="QNN 2", simulated=True),),
    "null": (Device(type="null", selector="null", found=True, name="null device"),),
}


def test_table_is_aligned_and_gives_the_reasons():
    assert devices_text(FOUND).splitlines() == [
        "device  name                                memory  precisions    driver",
        "─" * 72,
        "cpu     AMD EPYC                           25.3 GB  float32 int8  -",
        "qnn     Emulator (emulated, never ranked)        -  -             QNN 2",
        "",
        "not found  why",
        "─" * 32,
        "cuda       no driver: install it",
        "",
        "null: computes nothing, to try commands: its times are those of the JSON file $BENCHHOUSE_NULL_SCRIPT, such "
        'as {"latency_ms": {"*": [5.0, 5.1]}}, or about 0.01 ms per token',
    ]


def test_without_absent_devices_there_is_no_second_table():
    assert "not found" not in devices_text({"cpu": FOUND["cpu"]})


def test_json_is_the_records_without_the_null_device():
    listed = devices_json(FOUND)
    assert [entry["selector"] for entry in listed] == ["cpu", "cuda", "qnn"]
    assert from_json(Device, json.loads(json.dumps(listed[0]))) == FOUND["cpu"][0]
    assert listed[1]["why_not"] == "no driver: install it"
