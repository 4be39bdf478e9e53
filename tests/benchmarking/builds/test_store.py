"""Builds are complete, made once per digest, and a broken cache is one clear line; a model's part of their key."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarking.builds import store as stores
from benchmarking.builds.inventory import read_contents
from benchmarking.builds.store import (
    RECORD,
    Build,
    BuildKey,
    BuildStore,
    combined_facts,
    default_cache_dir,
    model_parts,
)
from benchmarking.core.errors import BenchhouseError, FormatError, StorageError
from benchmarking.workloads.support.resolve import resolve

KEY = BuildKey(kind="onnx", parts={"model_id": "tiny-bert", "opset": 20})


@pytest.fixture
def store(tmp_path):
    return BuildStore(tmp_path)


def writes(text, **facts):
    """A maker whose build has one file."""

    def make(folder):
        (folder / "model.txt").write_text(text)
        return facts

    return make


def fails(folder):
    (folder / "half.txt").write_text("half")
    raise RuntimeError("the exporter fell over")


def left_in(store, kind="onnx"):
    """Everything in the kind's folder except locks."""
    folder = store.root / kind
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock") if folder.exists() else []


def test_reading_a_store_writes_nothing(tmp_path):
    store = BuildStore(tmp_path / "cache")
    assert store.find(KEY) is None
    assert not (tmp_path / "cache").exists()


def test_build_is_made_once_and_found_with_its_record(store):
    build, is_new = store.get(KEY, writes("four", opset=20))
    assert is_new
    assert (build.kind, build.digest, build.parts, build.facts) == ("onnx", KEY.digest, KEY.parts, {"opset": 20})
    assert build.size_bytes == 4
    assert build.build_s >= 0
    assert store.get(KEY, fails) == (build, False)
    assert store.find(KEY) == store.find_digest("onnx", KEY.digest) == build
    assert (store.folder(KEY) / "model.txt").read_text() == "four"
    assert left_in(store) == [KEY.digest]


@pytest.mark.parametrize(
    "other",
    [
        BuildKey(kind="openvino", parts=KEY.parts),
        BuildKey(kind="onnx", parts={**KEY.parts, "opset": 21}),
        BuildKey(kind="onnx", parts={**KEY.parts, "weights": None}),
    ],
)
def test_different_key_is_a_different_build(store, other):
    store.get(KEY, writes("a"))
    assert other.digest != KEY.digest
    assert store.find(other) is None


def test_key_is_independent_of_part_order():
    assert BuildKey(kind="onnx", parts=dict(reversed(KEY.parts.items()))).digest == KEY.digest


def test_error_while_building_propagates_and_leaves_nothing(store):
    with pytest.raises(RuntimeError, match="the exporter fell over"):
        store.get(KEY, fails)
    assert (left_in(store), store.find(KEY)) == ([], None)
    assert store.get(KEY, writes("a"))[1]


def test_rebuild_always_replaces_and_a_failure_keeps_the_old_build(store):
    store.get(KEY, writes("old"))
    with pytest.raises(RuntimeError):
        store.get(KEY, fails, "always")
    assert (store.folder(KEY) / "model.txt").read_text() == "old"
    build, is_new = store.get(KEY, writes("newer"), "always")
    assert (is_new, build.size_bytes, left_in(store)) == (True, 5, [KEY.digest])
    assert (store.folder(KEY) / "model.txt").read_text() == "newer"


def test_rebuild_never_uses_existing_builds_only(store):
    with pytest.raises(
        BenchhouseError, match=r"no onnx build of tiny-bert .*--rebuild never does not permit making one"
    ):
        store.get(KEY, writes("a"), "never")
    build, _ = store.get(KEY, writes("a"))
    assert store.get(KEY, fails, "never") == (build, False)


def test_incomplete_build_is_not_found(store):
    seen = []

    def make(folder):
        (folder / "model.txt").write_text("a")
        seen.append(store.find(KEY))
        return {}

    store.get(KEY, make)
    assert seen == [None]


def test_concurrent_processes_make_a_build_once(store):
    made, outcomes = [], []

    def make(folder):
        made.append(folder)
        time.sleep(0.2)
        return {}

    def want():
        outcomes.append(BuildStore(store.root.parent).get(KEY, make)[1])

    threads = [threading.Thread(target=want) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), sorted(outcomes)) == (1, [False, False, True])


def test_a_build_of_another_process_is_waited_for_and_that_is_said(tmp_path, monkeypatch):
    from filelock import FileLock

    monkeypatch.setattr(stores, "SILENT_S", 0.01)
    held, said = FileLock(stores.lock_of(BuildStore(tmp_path).folder(KEY))), []
    Path(held.lock_file).parent.mkdir(parents=True)

    def say(what):
        said.append(what)
        held.release()

    with held:
        assert BuildStore(tmp_path, say=say).get(KEY, writes("a"))[1]
    assert BuildStore(tmp_path, say=say).get(KEY, writes("b"), "always")[1]
    assert said == [f"the onnx build {KEY.digest}, which another process is making: waiting for it"]


def test_killed_build_releases_its_lock_and_is_not_found(store):
    code = (
        "import os, sys; from pathlib import Path; from benchmarking.builds.store import BuildKey, BuildStore\n"
        "def make(folder):\n"
        "    (folder / 'half').write_text('x')\n"
        "    os._exit(9)\n"
        "BuildStore(Path(sys.argv[1])).get(BuildKey(kind='onnx', parts={'model_id': 'tiny-bert', 'opset': 20}), make)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(store.root.parent)], check=False)
    assert done.returncode == 9
    assert store.find(KEY) is None
    assert store.get(KEY, writes("a"))[1]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "onnx"}', '{"format": "something else"}'])
def test_damaged_record_is_one_line_and_rebuild_always_replaces_it(store, text):
    store.get(KEY, writes("old"))
    (store.folder(KEY) / RECORD).write_text(text)
    for ask in (lambda: store.find(KEY), lambda: store.get(KEY, writes("a"))):
        with pytest.raises(FormatError, match=r"build\.json: invalid record of a build .*--rebuild always") as raised:
            ask()
        assert "\n" not in str(raised.value)
    assert store.get(KEY, writes("new"), "always")[1]
    assert store.find(KEY).size_bytes == 3


def test_file_at_the_cache_path_is_one_line(tmp_path):
    (tmp_path / "builds").write_text("")
    with pytest.raises(StorageError, match=r"cannot write to the build cache .*") as raised:
        BuildStore(tmp_path).get(KEY, writes("a"))
    assert "choose another with --cache-dir" in str(raised.value)
    assert BuildStore(tmp_path).find(KEY) is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_cache_is_used_and_not_extended(store):
    store.get(KEY, writes("a"))
    folders = [store.root, store.root / "onnx", store.folder(KEY)]
    for folder in folders:
        folder.chmod(0o555)
    try:
        assert store.get(KEY, fails)[1] is False
        with pytest.raises(StorageError, match="cannot write to the build cache"):
            store.get(BuildKey(kind="onnx", parts={"opset": 1}), writes("a"))
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_read_only_cache_is_used_without_lock_and_timestamp(store, monkeypatch):
    build, _ = store.get(KEY, writes("a"))

    def refuse(*arguments, **named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.utime", refuse)
    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    assert store.get(KEY, fails) == (build, False)
    with pytest.raises(StorageError, match=r"cannot write to the build cache .*Permission denied: choose another"):
        store.get(BuildKey(kind="onnx", parts={"opset": 1}), writes("a"))


def test_finding_a_build_is_noted_as_its_use(store):
    store.get(KEY, writes("a"))
    record = store.folder(KEY) / RECORD
    os.utime(record, (1, 1))
    store.find(KEY)
    assert record.stat().st_mtime > 1


def test_a_cache_of_another_user_that_cannot_be_read_is_a_storage_error(store, monkeypatch):
    def denied(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    store.get(KEY, writes("a"))
    monkeypatch.setattr(Path, "exists", denied)
    with pytest.raises(StorageError, match=r"cannot read the build cache .*: Permission denied: choose another with"):
        store.find(KEY)


def test_a_build_deleted_while_it_is_looked_up_is_made_again(store, monkeypatch):
    store.get(KEY, writes("a"))
    read = stores.read_record

    def after_a_deletion(record):
        shutil.rmtree(record.parent, ignore_errors=True)
        return read(record)

    monkeypatch.setattr(stores, "read_record", after_a_deletion)
    assert store.find(KEY) is None
    monkeypatch.setattr(stores, "read_record", read)
    assert store.get(KEY, writes("b"))[1]


def test_builds_deleted_while_the_cache_is_read_are_left_out(store, monkeypatch):
    store.get(KEY, writes("a"))
    store.get(BuildKey(kind="onnx", parts={}), writes("b"))
    lexists = os.path.lexists

    def after_a_deletion(path):
        if str(path).endswith(RECORD):
            shutil.rmtree(store.folder(KEY), ignore_errors=True)
        return lexists(path)

    (store.folder(KEY) / RECORD).write_text("{")
    monkeypatch.setattr(os.path, "lexists", after_a_deletion)
    found = read_contents(store.root)
    assert (len(found.builds), found.broken) == (1, ())


def test_the_record_is_readable_json(store):
    store.get(KEY, writes("a"))
    record = json.loads((store.folder(KEY) / RECORD).read_text())
    assert record["parts"] == {"model_id": "tiny-bert", "opset": 20}


def test_folder_filled_during_use_is_a_build_once_kept(store):
    store.get(KEY, writes("old"))
    place = store.empty_folder(KEY)
    assert (list(place.iterdir()), store.find(KEY)) == ([], None)
    (place / "cache.bin").write_bytes(bytes(7))
    build = store.keep(KEY, build_s=1.5, facts={"hits": 0})
    assert (build.build_s, build.size_bytes, build.facts, store.find(KEY)) == (1.5, 7, {"hits": 0}, build)


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "here"))
    assert BuildStore().root == tmp_path / "here" / "builds"
    monkeypatch.delenv("BENCHHOUSE_CACHE_DIR")
    assert default_cache_dir().name == "benchhouse"


def test_overwritten_weights_of_equal_size_change_the_key(tmp_path):
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"before")
    os.utime(weights, ns=(1, 1))
    workload = dataclasses.replace(
        resolve("tiny-bert"), source="local", path=str(tmp_path), weights="pretrained", revision="names and sizes"
    )
    before = model_parts(workload)
    assert before["files"] == [["model.safetensors", 6, 1]]
    weights.write_bytes(b"after!")
    os.utime(weights, ns=(2, 2))
    assert model_parts(workload) == {**before, "files": [["model.safetensors", 6, 2]]}


def test_seeded_weights_are_known_by_their_seed():
    workload = resolve("tiny-bert")
    assert "files" not in model_parts(workload)
    assert model_parts(dataclasses.replace(workload, seed=1)) == {**model_parts(workload), "seed": 1}


def test_combined_facts_are_sums_and_new_if_any_is():
    def build(digest, build_s, size_bytes):
        return Build(
            kind="onnx",
            digest=digest,
            parts={},
            made_at="2026-11-21T00:00:00Z",
            build_s=build_s,
            size_bytes=size_bytes,
            facts={"exporter": digest},
        )

    assert combined_facts("onnx", [(build("a", 1.5, 10), False), (build("b", 2.0, 5), True)]) == {
        "kind": "onnx",
        "digest": "a",
        "digests": ["a", "b"],
        "build_s": 3.5,
        "size_bytes": 15,
        "is_new": True,
        "exporter": "a",
    }
    assert combined_facts("onnx", [(build("a", 1.5, 10), False)])["is_new"] is False
