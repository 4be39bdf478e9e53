"""Profiles in the warehouse: stored once, checked, merged, rebuilt and never among the results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarking.core import run_file
from benchmarking.core.codec import dumps
from benchmarking.core.errors import FormatError
from benchmarking.core.profiles import profile_from_json
from benchmarking.core.records import to_json
from db import ingestion, service
from db.analysis.compare.compared_profiles import Change, ProfileComparison, compare_profiles, profiles_text
from db.analysis.selection import Selection
from db.upkeep.merging import merge
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.records import make_profile, make_run

COUNTS = """
SELECT (SELECT count(*) FROM profiles) AS profiles, (SELECT count(*) FROM profile_modules) AS modules,
    (SELECT count(*) FROM profile_ops) AS operators, (SELECT count(*) FROM benchmark_runs) AS runs
"""
LOST = """
INSERT INTO profile_ops BY NAME SELECT 'gone' AS profile_id, 0 AS ordinal, '' AS module, 'a' AS operator,
    'other' AS kind, 'cpu' AS placed, 1 AS calls, 1 AS exclusive_ms, 1 AS inclusive_ms
"""
"""A row of no profile."""
ONE = {"profiles": 1, "modules": 3, "operators": 2, "runs": 0}


def counts(warehouse):
    return warehouse.query(COUNTS).dicts()[0]


def test_a_profile_is_json_and_back_without_loss():
    profile = make_profile()
    assert profile_from_json(to_json(profile), "here") == profile
    with pytest.raises(FormatError, match="not a benchhouse profile"):
        profile_from_json(to_json(make_run()), "here")
    with pytest.raises(FormatError, match="expected format_version 1, found 2"):
        profile_from_json({**to_json(profile), "format_version": 2}, "here")


def test_files_of_runs_and_profiles_are_loaded_together_and_traces_are_skipped(warehouse, tmp_path):
    (tmp_path / "run.json").write_text(dumps(make_run()))
    (tmp_path / "profiling_results_a.json").write_text(dumps(make_profile()))
    (tmp_path / "trace_a.json").write_text("{}")
    (tmp_path / "onnx_comparison_a.json").write_text("{}")
    for outcome in ("loaded", "present"):
        done = ingestion.load_files(warehouse, ingestion.run_files([tmp_path]))
        assert len(getattr(done, outcome)) == 2
        assert done.refused == ()
    assert counts(warehouse) == {**ONE, "runs": 1}
    with pytest.raises(FormatError, match="a profile, not a run"):
        run_file.read_run(tmp_path / "profiling_results_a.json")


def test_a_different_profile_with_the_same_id_is_refused(warehouse):
    profile = make_profile()
    assert warehouse.ingest_profile(profile, source_sha256="a")
    assert not warehouse.ingest_profile(profile, source_sha256="a")
    with pytest.raises(FormatError, match="already stored with different content"):
        warehouse.ingest_profile(make_profile(2.0, profile_id=profile.profile_id), source_sha256="b")


def test_verify_finds_exclusive_times_that_do_not_sum_to_the_call_and_lost_parts(warehouse):
    profile = make_profile()
    breakdown = replace(profile.call.breakdown, host_ms=4.0)
    warehouse.ingest_profile(profile)
    assert verify(warehouse) == []
    warehouse.ingest_profile(make_profile(call=replace(profile.call, breakdown=breakdown)))
    warehouse.query("DELETE FROM profile_ops USING profiles WHERE profile_ops.profile_id = profiles.profile_id")
    warehouse.query(LOST)
    found = {finding.kind: finding.problem for finding in verify(warehouse)}
    assert "sum to 3 ms, but a call took 4 ms" in found["profile"]
    assert "refers to profile_id gone" in found["orphan"]


def test_merging_adds_profiles_once_and_names_conflicts(warehouse, database):
    profile = make_profile()
    with Warehouse.open(database) as other:
        other.ingest_profile(profile)
    assert merge(warehouse, database).added["profiles"] == 1
    assert counts(warehouse) == ONE
    assert merge(warehouse, database).added["profile_modules"] == 0
    assert verify(warehouse) == []
    warehouse.query("UPDATE profile_modules SET exclusive_ms = 9 WHERE module = 'layers.1'")
    with pytest.raises(FormatError, match=r"module of profile .* layers\.1 differs in exclusive_ms"):
        merge(warehouse, database)


def test_layers_are_compared_against_the_change_of_the_others(warehouse):
    for factor, commit in ((1.0, "a" * 40), (3.0, "b" * 40)):
        profile = make_profile(factor)
        provenance = replace(profile.run.provenance, git_commit=commit, versions={"torch": f"2.{factor:.0f}"})
        warehouse.ingest_profile(replace(profile, run=replace(profile.run, provenance=provenance)))
    found = compare_profiles(warehouse, Selection.parse("a" * 8), Selection.parse("commit=" + "b" * 8))
    assert [(one.name, one.verdict) for one in found.layers] == [("layers.1", "slower"), ("layers.0", "equivalent")]
    assert found.layers[0].ratio == pytest.approx(3.0)
    assert "layers.1" in [one.name for one in found.outstanding]
    assert found.differs["torch"] == ["2.1", "2.3"]


def test_a_layer_that_takes_no_time_any_more_changed_by_all_of_it(warehouse):
    for factor, commit in ((1.0, "a" * 40), (0.0, "b" * 40)):
        profile = make_profile(factor)
        provenance = replace(profile.run.provenance, git_commit=commit)
        warehouse.ingest_profile(replace(profile, run=replace(profile.run, provenance=provenance)))
    found = compare_profiles(warehouse, Selection.parse("a" * 8), Selection.parse("b" * 8))
    text = " ".join(profiles_text(found).split())
    assert "layers.1 differs, as measured and not judged, by -1 ms, -100.0%, most of it in layers.1" in text


def test_a_module_is_most_of_a_change_only_if_it_is_more_than_half_of_it_and_unknown_is_not_unchanged():
    def said(*layers, modules=()):
        sides = [{"subject": name, "profile_id": name} for name in "ab"]
        found = ProfileComparison(before=sides[0], after=sides[1], layers=layers, modules=modules)
        return " ".join(profiles_text(found).split())

    same = [Change(name=f"l{number}", before_ms=10, after_ms=10, verdict="equivalent") for number in range(3)]
    slower = Change(name="l9", before_ms=10, after_ms=11.2, verdict="slower")
    faster_part = Change(name="l9.a", before_ms=2, after_ms=1.3)
    small, large = (Change(name=f"l9.{after}", before_ms=2, after_ms=after) for after in (2.5, 2.8))
    largest = "l9 changed by +1.2 ms, +12.0%, the largest part in l9.2.5 (+0.5 ms of its own);"
    assert largest in said(slower, *same, modules=(faster_part, small))
    assert "most of it in l9.2.8 (+0.8 ms of its own);" in said(slower, *same, modules=(large, faster_part))
    assert "+12.0%; the median" in said(slower, *same, modules=(faster_part,))
    no_layer = "No layer is shown to have changed by 10% relative to the others"
    assert f"{no_layer}; 1 of 4 layers are not judged." in said(replace(slower, verdict="not judged"), *same)
    assert f"{no_layer}." in said(*same)
    measured = said(replace(slower, verdict=None), *same)
    assert "l9 differs, as measured and not judged, by +1.2 ms" in measured
    assert f"{no_layer}; 1 of 4 layers are not judged." in measured


def test_the_service_prints_the_measured_peaks_and_none_without_a_database(database, tmp_path, capsys):
    profile = make_profile()
    hardware_id = profile.run.hardware.hardware_id
    with Warehouse.open(database) as warehouse:
        warehouse.ingest_profile(profile)
        warehouse.query("UPDATE hardware_info SET peak_flops = MAP {'float32': 2e12}, peak_copy_bytes_per_sec = 1e10")
    assert service.main(["peaks", str(database), hardware_id]) == 0
    assert service.main(["peaks", str(database), "other"]) == 0
    assert service.main(["peaks", str(tmp_path / "none.duckdb"), hardware_id]) == 0
    answers = capsys.readouterr().out.splitlines()
    assert answers == ['{"float32": 2000000000000.0, "copy_bytes_per_sec": 10000000000.0}', "{}", "{}"]
    assert not (tmp_path / "none.duckdb").exists()
