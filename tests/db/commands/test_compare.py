"""benchhouse compare, as it is typed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from db.commands.compare import main
from db.warehouse import Warehouse

ONE = {"batch_sizes": (1,), "sequence_lengths": (32,)}
FACTORS = (1.0, 1.002, 0.998)
OFFSETS = {"a": 10, "b": 12, "c": 14}
"""Seconds: the launches of the sides alternate."""


def tagged(run, side):
    results = tuple(
        replace(
            result,
            samples=tuple(
                replace(
                    one,
                    values=tuple(value * FACTORS[one.launch] for value in one.values),
                    started_at=f"{run.started_at[:-3]}{10 * one.launch + OFFSETS[side]:02}Z",
                )
                for one in result.samples
            ),
        )
        for result in run.results
    )
    provenance = replace(run.provenance, tags={"side": side}, git_commit_time=None)
    return replace(run, finished_at=f"{run.started_at[:-3]}59Z", provenance=provenance, results=results)


@pytest.fixture
def stored(tmp_path, empty_database, make_run):
    """Arguments that name a database with the sides a, b (slower at one of two points) and c (another runtime)."""
    path = shutil.copy2(empty_database, tmp_path / "a.duckdb")
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(tagged(make_run(batch_sizes=(1, 2), sequence_lengths=(32,)), "a"))
        slow = make_run(batch_sizes=(1,), sequence_lengths=(32,), slowdown=1.5, started_at="2026-01-02T03:04:07Z")
        same = make_run(batch_sizes=(2,), sequence_lengths=(32,), started_at="2026-01-02T03:04:07Z")
        warehouse.ingest(tagged(slow, "b"))
        warehouse.ingest(tagged(same, "b"))
        warehouse.ingest(tagged(make_run(runtime="openvino", started_at="2026-01-02T03:04:08Z", **ONE), "c"))
    return ["--db-path", str(path)]


def test_a_comparison_is_a_table_with_the_worst_first(capsys, stored):
    assert main(["tag.side=a", "tag.side=b", *stored]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Latency per call, median (ms), geometric mean of the launches; A: tag.side=a, B: tag.side=b"
    assert " ".join(lines[3].split()) == "point A ms B ms change 95 % interval detectable verdict launches doubts"
    assert lines[5].startswith("b1 s32     8    12  +50.0%")
    assert "slower" in lines[5]
    assert lines[6].startswith("b2 s32    16    16   +0.0%")
    assert "1 slower, 1 equivalent" in lines


def test_junit_has_a_case_per_point_and_fails_what_the_gate_fails(capsys, stored, tmp_path):
    path = tmp_path / "gate.xml"

    def cases(*flags):
        code = main(["tag.side=a", "tag.side=b", *stored, "--junit", str(path), *flags])
        suite = ElementTree.parse(path).getroot().find("testsuite")
        return code, int(suite.get("failures")), suite.findall("testcase")

    code, failures, (slower, same) = cases("--fail-on", "slower")
    assert (code, failures) == (1, 1)
    assert slower.get("name") == "b1 s32 latency_median_ms"
    assert slower.find("failure").get("message").startswith("A 8 ms, B 12 ms, +50.0%, 95 % interval ")
    assert same.find("system-out").text.startswith("equivalent: A 16 ms, B 16 ms")
    assert cases()[:2] == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("tag.side=a", "tag.side=nowhere"), 3, "B (tag.side=nowhere) selects no results"),
        (("tag.side=a", "tag.side=b", "--metric", "time_to_first_token_ms"), 3, "no point has a verdict"),
        (("tag.side=a", "tag.side=nowhere", "--fail-on", "slower"), 3, "not known: no point is on both sides"),
        (("tag.side=a",), 2, "expected two selections"),
        (("tag.side=a", "tag.side=b", "--metric", "latency"), 2, "unknown metric 'latency'"),
    ],
)
def test_junit_has_an_error_where_the_exit_code_says_that_nothing_was_compared(
    stored, tmp_path, arguments, code, expected
):
    path = tmp_path / "gate.xml"
    assert main([*arguments, *stored, "--junit", str(path)]) == code
    suite = ElementTree.parse(path).getroot().find("testsuite")
    *_, case = suite.findall("testcase")
    assert expected in case.find("error").get("message")
    assert suite.get("errors") == "1"
    assert main(["tag.side=a", "tag.side=b", *stored, "--junit", "-"]) == 2


def test_a_file_that_cannot_be_written_takes_no_verdict_and_no_error_with_it(capsys, stored, tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", refuse)
    path = str(tmp_path / "gate.xml")
    for flags, code in ((("--fail-on", "slower"), 1), ((), 1)):
        assert main(["tag.side=a", "tag.side=b", *stored, "--junit", path, *flags]) == code
        out, err = capsys.readouterr()
        assert "1 slower, 1 equivalent" in out
        assert f"benchhouse compare: error: --junit: cannot write {path}: No space left on device" in err
    assert main(["tag.side=a", *stored, "--junit", path]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("benchhouse compare: error: expected two selections")


def test_only_changes_leaves_the_other_rows_out_and_counts_them(capsys, stored):
    assert main(["tag.side=a", "tag.side=b", "--only-changes", *stored]) == 0
    out = capsys.readouterr().out
    assert "b2 s32" not in out
    assert "1 slower, 1 equivalent" in out


def test_a_beginning_of_ids_that_several_runs_share_selects_all_and_says_so(capsys, stored, make_run):
    ids = [f"01a21ee7-000{place}-7000-8000-000000000000" for place in range(3)]
    with Warehouse.open(stored[1]) as warehouse:
        for run_id in ids:
            warehouse.ingest(replace(make_run(**ONE), run_id=run_id))
    assert main(["run=01a21ee7", "tag.side=b", *stored]) == 3
    assert "01a21ee7: the ids of 3 runs begin so, and all of them are selected\n" in capsys.readouterr().err
    assert main([f"run={ids[0]}", "tag.side=b", *stored]) == 3
    assert "begin so" not in capsys.readouterr().err


def test_json_has_every_number(capsys, stored):
    assert main(["tag.side=a", "tag.side=b", "--json", *stored]) == 0
    document = json.loads(capsys.readouterr().out)
    worst = document["findings"][0]
    assert worst["point"] == "b1 s32"
    assert worst["judgement"]["change"] == pytest.approx(0.5)
    assert worst["judgement"]["is_worse"] is True
    assert worst["after"]["launches"] == 3
    assert document["counts"] == {"slower": 1, "equivalent": 1}


def test_markdown_is_a_table(capsys, stored):
    assert main(["tag.side=a", "tag.side=b", "--markdown", *stored]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "**1 slower, 1 equivalent**"
    assert any(line.startswith("| b1 s32 | 8 | 12 | +50.0% |") for line in lines)


def test_throughput_is_judged_and_more_of_it_is_better(capsys, stored):
    assert main(["tag.side=a", "tag.side=b", "--metric", "throughput_samples_per_sec", "--json", *stored]) == 0
    first = json.loads(capsys.readouterr().out)["findings"][0]["judgement"]
    assert (first["verdict"], first["change"]) == ("slower", pytest.approx(1 / 1.5 - 1))


def test_sides_neither_interleaved_nor_with_a_history_are_described_with_exit_code_3(capsys, stored, make_run):
    with Warehouse.open(stored[1]) as warehouse:
        warehouse.ingest(tagged(make_run(slowdown=1.5, started_at="2026-01-09T03:04:07Z", **ONE), "b"))
    assert main(["tag.side=a", "since=2026-01-08", *stored]) == 3
    captured = capsys.readouterr()
    assert "1 not judged" in captured.out
    assert "+50.0%" in captured.out
    assert "they did not run in turns" in captured.out
    assert captured.err.count("\n") == 1


def test_by_splits_one_selection(capsys, stored):
    assert main(["--by", "runtime", "tag.side=a|c", "--json", *stored]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["before"], document["after"]) == ("eager", "openvino")
    assert [one["subject"]["runtime"] for one in document["findings"]] == [["eager", "openvino"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tag.side=a", "tag.side=c"], "the reasons are given above"),
        (["tag.side=a", "tag.side=nowhere"], "B (tag.side=nowhere) selects no results"),
        (["tag.side=a,batch=2", "tag.side=c"], "no point is on both sides"),
        (["--by", "device"], "all selected results have one value of device, cpu"),
        (["--by", "device", "batch=99"], "no results are selected"),
        (["--by", "runtime", "--baseline", "tensorrt"], "A (tensorrt) selects no results"),
    ],
)
def test_nothing_to_compare_is_exit_code_3_and_one_line(capsys, stored, arguments, message):
    assert main([*arguments, *stored]) == 3
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert message in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["latest"], "expected two selections, or one and --by FIELD: got 1"),
        (
            ["runtime=eager", "runtime=onnxruntime", "runtime=openvino"],
            "expected two selections, or one and --by FIELD",
        ),
        (["a=1", "latest"], "unknown selection 'a'"),
        (["--by", "colour"], "unknown field of --by 'colour'"),
        (["--by", "device", "latest", "latest"], "--by compares within one selection: got 2"),
        (["latest", "latest", "--baseline", "cpu"], "--baseline is a value of --by"),
        (["latest", "latest", "--metric", "speed"], "unknown metric 'speed'"),
        (["latest", "latest", "--across", "colour"], "unknown field of --across 'colour'"),
        (["latest", "latest", "--json", "--markdown"], "not allowed with"),
    ],
)
def test_usage_errors_are_exit_code_2_and_one_line(capsys, arguments, message):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_missing_database_is_one_line(capsys, tmp_path):
    assert main(["latest", "latest", "--db-path", str(tmp_path / "none.duckdb")]) == 1
    assert "no database at" in capsys.readouterr().err


def test_a_comparison_in_a_warehouse_without_results_says_so(empty_database, capsys):
    assert main(["--by", "runtime", f"--db-path={empty_database}"]) == 3
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert err.endswith(f"not enough data: {empty_database} has no results\n")


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        ("branch=dev", "; no branch 'dev' is stored: there are main"),
        ("tag.other=x", "; no tag.other 'x' is stored: none is"),
        ("tag.side=x", "; no tag.side 'x' is stored: there are a, b, c"),
        ("device=cuda", "; no device 'cuda' is stored: there are cpu"),
        ("model=llama", "; no model 'llama' is stored: there are bert-base-uncased"),
        ("model=bert", "; no model 'bert' is stored: did you mean bert-base-uncased?"),
        ("model=bert-base-uncase", "; no model 'bert-base-uncase' is stored: did you mean bert-base-uncased?"),
        ("runtime=ort", "; runtime=ort: did you mean runtime=onnxruntime?"),
        ("runtime=onnxruntime", "; no runtime 'onnxruntime' is stored: there are "),
    ],
)
def test_a_name_that_is_not_stored_is_answered_with_those_that_are(selection, said, capsys, stored):
    assert main([selection, "tag.side=a", *stored]) == 3
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_stored_runtime_of_another_tool_is_not_taken_for_one_of_ours(capsys, stored, make_run):
    run = make_run(**ONE, started_at="2026-01-02T03:05:00Z")
    with Warehouse.open(stored[1]) as warehouse:
        warehouse.ingest(replace(run, cell=replace(run.cell, runtime="ort")))
    assert main(["runtime=ort,batch=7", "tag.side=a", *stored]) == 3
    assert "did you mean" not in capsys.readouterr().err


def test_of_many_stored_names_the_nearest_are_named_and_the_others_counted(capsys, stored, make_run):
    with Warehouse.open(stored[1]) as warehouse:
        for second, side in enumerate(("nightly-1", "nightly-2", "nightly-3"), 20):
            run = make_run(**ONE, started_at=f"2026-01-02T03:04:{second}Z")
            warehouse.ingest(replace(run, provenance=replace(run.provenance, tags={"side": side})))
    assert main(["tag.side=nightly", "tag.side=a", *stored]) == 3
    said = "no tag.side 'nightly' is stored: there are nightly-1, nightly-2, nightly-3 and 3 more"
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("field", "value", "command"),
    [("runtime", "openvino", "compare-runtimes MODEL"), ("precision", "float32", "run MODEL --precisions OTHER")],
)
def test_one_value_of_a_field_is_answered_with_what_stores_another(field, value, command, capsys, stored):
    assert main(["tag.side=c", "--by", field, *stored]) == 3
    said = f"all selected results have one value of {field}, {value}: store another one first"
    assert f"{said}, as benchhouse {command} --save" in " ".join(capsys.readouterr().err.split())


def test_the_settings_of_a_users_benchmark_are_selected_and_told_by_their_names(
    tmp_path, empty_database, make_run, capsys
):
    """They are in its configuration. Other settings of it have to be equal."""
    path = shutil.copy2(empty_database, tmp_path / "own.duckdb")
    with Warehouse.open(path) as warehouse:
        for mode, rows in (("default", 8), ("max-autotune", 8), ("default", 9), ("max-autotune", 9)):
            run = make_run(runtime="bench", **ONE)
            config = {"bench": "Own", "file": "own.py", "compile_mode": mode, "options": {"rows": rows}}
            own = replace(run.cell.workload, source="bench", config=config, config_hash=f"{mode} {rows}")
            warehouse.ingest(replace(run, cell=replace(run.cell, workload=own)))
    database = ["--db-path", str(path)]
    assert main(["compile_mode=default", "compile_mode=max-autotune", *database]) == 0
    out = capsys.readouterr().out
    assert "differs: compile_mode: default / max-autotune" in out
    assert [out.count(f"rows {rows}  ") for rows in (8, 9)] == [1, 1]
    of_option = "sql:run_id IN (SELECT run_id FROM benchmark_runs WHERE config->'options'->>'rows' = '8')"
    assert main(["rows=8", "rows=9", *database]) == 2
    assert of_option in capsys.readouterr().err
    assert main([of_option, of_option.replace("'8'", "'9'"), *database]) == 3
    assert "rows: 8 / 9 (allow it with --across model)" in " ".join(capsys.readouterr().out.split())
    assert main(["compile_mode=none", "compile_mode=default", *database]) == 3
    assert "; no compile_mode 'none' is stored: there are default, max-autotune" in capsys.readouterr().err
