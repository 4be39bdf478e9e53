import json
import os

import pytest

from benchmarking.core import run_file
from benchmarking.core.errors import FormatError, StorageError
from benchmarking.core.records import canonical_hash, to_json
from db import ingestion, rows


def test_a_run_file_is_read_with_its_digest(spool_run):
    import hashlib

    path, run = spool_run()
    file = run_file.read_run(path)
    assert file.run == run
    assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_refused_by_name(spool_run, share):
    path, _ = spool_run()
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(FormatError, match=r"run\.json: not JSON, or truncated"):
        run_file.read_run(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"benchmarks": []}', "not a benchhouse run"),
        (b"[1, 2]", "not a benchhouse run"),
        (b"\xff\xfe\x00junk", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"format": "benchhouse-run", "format_version": 99}', "format 99 is newer than the supported 1"),
        (b'{"format": "benchhouse-run", "format_version": 1, "x": NaN}', "NaN is not a number"),
        (b'{"format": "benchhouse-run", "format_version": 1}', "missing field 'cell'"),
    ],
)
def test_non_run_files_are_refused_by_name(tmp_path, content, words):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=words) as caught:
        run_file.read_run(path)
    assert "x.json" in str(caught.value)


def test_a_missing_file_is_one_clear_error(tmp_path):
    with pytest.raises(StorageError, match=r"cannot read .*gone\.json: No such file"):
        run_file.read_run(tmp_path / "gone.json")


def test_files_come_from_folders_in_depth_and_by_name(tmp_path):
    for name in ("b.json", "a.json", "c.partial.jsonl", "README.md", "inner/d.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = tuple(tmp_path / name for name in ("a.json", "b.json", "inner/d.json"))
    assert ingestion.run_files([tmp_path]) == ingestion.run_files([tmp_path, tmp_path / "inner"]) == found
    assert ingestion.run_files([tmp_path / "README.md"]) == (tmp_path / "README.md",)
    assert ingestion.unfinished_files([tmp_path, tmp_path / "a.json"]) == (tmp_path / "c.partial.jsonl",)


def test_a_bad_file_is_refused_and_the_others_go_in(warehouse, spool_run, tmp_path):
    first, _ = spool_run("1")
    (tmp_path / "runs" / "2.json").write_text("{}")
    third, _ = spool_run("3")
    files = ingestion.run_files([tmp_path / "runs"])
    done = ingestion.load_files(warehouse, files)
    assert (done.loaded, done.present) == ((first, third), ())
    ((refused, reason),) = done.refused
    assert refused.name == "2.json"
    assert "not a benchhouse run" in reason
    assert ingestion.load_files(warehouse, files).present == (first, third)


def test_the_same_run_in_two_files_goes_in_once(warehouse, spool_run, tmp_path):
    first, run = spool_run("1")
    second = tmp_path / "runs" / "2.json"
    second.write_text(json.dumps(to_json(run), indent=1))
    assert ingestion.load_files(warehouse, [first, second]).present == (second,)


def test_where_a_run_came_from_is_stored(warehouse, spool_run, monkeypatch):
    path, _ = spool_run()
    monkeypatch.chdir(path.parent)
    assert warehouse.ingest_file(ingestion.Path(path.name))
    (row,) = warehouse.query("SELECT source, source_sha256 FROM benchmark_runs").dicts()
    assert row == {"source": os.path.realpath(path), "source_sha256": run_file.read_run(path).sha256}


def test_the_id_of_a_series_is_computed_once_for_a_result(spool_run, warehouse, monkeypatch):
    hashed = []
    monkeypatch.setattr(rows, "canonical_hash", lambda keys: hashed.append(keys) or canonical_hash(keys))
    _, run = spool_run()
    assert warehouse.ingest(run)
    assert len(hashed) == len(run.results) > 0
