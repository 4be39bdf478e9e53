"""`benchhouse check`, through its own main: verdicts, exit codes, alerts and the files for CI."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarking.core.errors import StorageError
from benchmarking.core.load_doubts import HIGHEST_RATE
from benchmarking.core.metrics import METRICS, custom_metric
from benchmarking.core.records import LOOP, REQUEST_RATE, SCENARIO, Doubt
from benchmarking.sweep.run.command_turns import COMMANDS, DEFAULT_COMMAND, arm
from db.analysis.gate import webhook
from db.analysis.gate.candidates import Scope, candidates, newest
from db.analysis.gate.findings import judge_candidates
from db.analysis.gate.gate import PARAMETERS
from db.analysis.gate.gate_text import github_comment, workflow_annotations
from db.analysis.selection import POOLED, Selection
from db.commands import alert, check, import_results
from db.warehouse import Warehouse
from tests.helpers.paths import FIXTURES
from tests.helpers.run_changes import Alter

RUNS = 12
ACCEPTED = ("improvement", "intended", "method", "hardware")
"""What an alert is triaged as whose level is the normal one from then on."""
CACHE = {}
"""The history of this file, made once: who needs it copies it."""


@pytest.fixture
def measured(make_run):
    """A function that makes the run of a commit: b1 s32 takes 8 ms and b2 s32 16, times `slowdown`."""

    def make(number, slowdown=1.0, **fields):
        run = make_run(
            batch_sizes=(1, 2), sequence_lengths=(32,), launches=1, iterations=3, slowdown=slowdown,
            started_at=f"2026-03-01T{number:02}:00:00Z", **fields,
        )  # fmt: skip
        commit = replace(run.provenance, git_commit=f"{number:040x}", git_commit_time=f"2026-02-01T{number:02}:00:00Z")
        return replace(run, provenance=commit)

    return make


@pytest.fixture
def history(tmp_path, tmp_path_factory, empty_database, measured):
    """A warehouse with 12 runs whose logarithms are 0.01 above and below the mean by turns."""
    if "path" not in CACHE:
        path = shutil.copy2(empty_database, tmp_path_factory.mktemp("check") / "history.duckdb")
        with Warehouse.open(path) as warehouse:
            warehouse.ingest_all([measured(number, math.exp(0.01 * (-1) ** number)) for number in range(RUNS)])
        CACHE["path"] = path
    return shutil.copy2(CACHE["path"], tmp_path / "history.duckdb")


@pytest.fixture
def stored(history):
    """A function that stores runs in the history."""

    def store(*runs):
        with Warehouse.open(history) as warehouse:
            warehouse.ingest_all(runs)

    return store


@pytest.fixture
def checked(history, capsys):
    """A function that runs the command and gives its exit code and document."""

    def run(*arguments):
        code = check.main([*arguments, "--json", "--db-path", str(history)])
        out = capsys.readouterr().out
        return code, json.loads(out) if out else None

    return run


def alerts(path):
    with Warehouse.open(path, read_only=True) as warehouse:
        return warehouse.query("SELECT * FROM alerts ORDER BY alert_id").dicts()


def test_a_run_like_the_others_is_fine(checked, history):
    code, document = checked()

    assert code == 0
    assert document["counts"] == {"fine": 2}
    assert [finding["judgement"]["n"] for finding in document["findings"]] == [11, 11]
    assert alerts(history) == []


def test_a_point_on_two_machines_is_two_test_cases(history, stored, measured, tmp_path, capsys):
    session = {"session_id": "3" * 8 + "-1111-7111-8111-111111111111"}
    stored(measured(20, 1.10, **session), Alter.on_device(measured(20, **session), "Other CPU"))
    path = tmp_path / "cases.xml"
    assert check.main(["--db-path", str(history), "--junit", str(path)]) == 1
    names = re.findall('classname="(.*?)" name="(.*?)"', path.read_text())
    assert len(set(names)) == len(names) == 4
    assert "measure again on Test CPU: benchhouse run" in capsys.readouterr().out


def test_a_slower_run_has_regressed_and_raises_one_alert_per_series(checked, history, stored, measured):
    run = measured(20, 1.10)
    stored(run)

    code, document = checked()

    assert code == document["exit_code"] == 1
    finding = document["findings"][0]
    assert finding["verdict"] == "regressed"
    assert finding["judgement"]["centre"] == pytest.approx(finding["value"] / 1.10)
    assert finding["judgement"]["relative_change"] == pytest.approx(0.10)
    assert finding["measure_again"].startswith("benchhouse run --model-id bert-base-uncased --device cpu")
    assert finding["measure_again"].endswith(f" --save --db-path {history}")
    rows = alerts(history)
    assert [row["relative_change"] for row in rows] == pytest.approx([0.10, 0.10])
    assert {(row["first_commit"], row["last_commit"]) for row in rows} == {(f"{11:040x}", f"{20:040x}")}
    assert {row["group_id"] for row in rows} == {run.session_id}
    assert {row["triage"] for row in rows} == {"new"}


def test_a_regression_raises_one_alert_however_often_it_is_seen(checked, history, stored, measured):
    stored(measured(20, 1.10))
    checked()
    checked()
    stored(measured(21, 1.11))

    code, _ = checked()

    assert code == 1
    assert len(alerts(history)) == 2
    assert [len(json.loads(row["parameters"])["results"]) for row in alerts(history)] == [2, 2]


def test_an_open_alert_keeps_its_results_out_of_the_segment_and_a_triaged_one_does_not(
    checked, history, stored, measured, capsys
):
    stored(measured(20, 1.10))
    checked()
    stored(measured(21, 1.10))

    _, document = checked("--no-alerts")
    assert [finding["judgement"]["n"] for finding in document["findings"]] == [12, 12]

    ids = [row["alert_id"] for row in alerts(history)]
    assert alert.main(["set", *ids, "noise", "--note", "a backup ran", "--db-path", str(history)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{alert_id}: noise" for alert_id in ids]
    _, document = checked("--no-alerts")
    assert [finding["judgement"]["n"] for finding in document["findings"]] == [13, 13]


def test_what_was_triaged_as_noise_is_accepted_when_it_is_checked_again(checked, history, stored, measured, capsys):
    stored(measured(20, 1.10))
    assert checked()[0] == 1
    ids = [row["alert_id"] for row in alerts(history)]

    for triage, code, verdict in (("regression", 1, "regressed"), ("noise", 0, "accepted")):
        assert alert.main(["set", *ids, triage, "--db-path", str(history)]) == 0
        capsys.readouterr()
        again, document = checked()
        assert (again, document["counts"]) == (code, {verdict: 2})
        assert [row["alert_id"] for row in alerts(history)] == ids, "no second alert about the same results"
    assert {finding["why"] for finding in document["findings"]} == {"worse, with an alert that is triaged as noise"}


def test_no_alerts_leaves_the_database_unchanged(checked, history, stored, measured):
    stored(measured(20, 1.10))

    assert checked("--no-alerts")[0] == 1
    assert alerts(history) == []


def test_a_faster_run_is_improved_and_nothing_fails(checked, stored, measured):
    stored(measured(20, 0.9))

    code, document = checked()

    assert code == 0
    assert document["counts"] == {"improved": 2}


def test_throughput_regresses_downwards(checked, stored, measured):
    stored(measured(20, 1.10))

    code, document = checked("--metric", "throughput_tokens_per_sec", "--no-alerts")

    assert code == 1
    assert document["findings"][0]["judgement"]["relative_change"] == pytest.approx(1 / 1.1 - 1)


def test_too_few_runs_are_no_verdict_and_exit_code_3(checked, stored, measured):
    stored(measured(20, 1.5, model_id="other"))

    code, document = checked()

    assert code == 3
    assert {finding["why"] for finding in document["findings"]} == {"0 earlier runs, at least 10 required"}


def test_a_series_without_history_does_not_fail_the_gate(checked, stored, measured):
    run = measured(20)
    longer = replace(run.results[0], result_id=str(uuid.uuid4()), point=replace(run.results[0].point, batch_size=64))
    stored(replace(run, results=(*run.results, longer)))

    code, document = checked()

    assert code == 0
    assert document["counts"] == {"fine": 2, "not enough data": 1}


def test_a_change_for_the_better_starts_a_new_segment(checked, stored, measured):
    stored(*(measured(number, 0.8) for number in range(20, 24)))

    _, document = checked()

    judgements = [finding["judgement"] for finding in document["findings"]]
    assert [(judgement["n"], judgement["borrowed"]) for judgement in judgements] == [(3, 12)] * 2
    assert document["counts"] == {"fine": 2}


@pytest.mark.parametrize(("factor", "verdict"), [(1.10, "regressed"), (1.0, "fine")])
def test_a_branch_is_judged_by_its_own_runs_and_its_first_ones_by_all(
    empty_database, tmp_path, measured, capsys, factor, verdict
):
    path = shutil.copy2(empty_database, tmp_path / "branches.duckdb")

    def of_branch(branch, number, slowdown):
        run = measured(number, slowdown * math.exp(0.01 * (-1) ** number))
        return replace(run, provenance=replace(run.provenance, git_branch=branch))

    def judged():
        code = check.main(["--no-alerts", "--json", "--db-path", str(path)])
        document = json.loads(capsys.readouterr().out)
        return code, document["counts"], {finding["judgement"]["n"] for finding in document["findings"]}

    def store(*runs):
        with Warehouse.open(path) as warehouse:
            warehouse.ingest_all(runs)

    store(*(of_branch("main", number, 1.0) for number in range(10)), of_branch("slow", 10, 1.15))
    assert judged() == (1, {"regressed": 2}, {10})
    store(*(of_branch("slow", number, 1.15) for number in range(11, 22)), of_branch("main", 22, factor))
    assert judged() == (int(verdict == "regressed"), {verdict: 2}, {10})


@pytest.mark.parametrize("flags", [(), ("--no-alerts",)])
def test_a_level_that_became_worse_unseen_is_not_the_normal_one_until_it_has_the_runs_of_a_history(
    checked, history, stored, measured, flags
):
    slow = [measured(number, 1.5 + 0.01 * (-1) ** number) for number in range(RUNS, RUNS + PARAMETERS.min_points + 1)]
    stored(*slow[:4])

    code, document = checked(*flags)

    assert (code, document["counts"]) == (1, {"regressed": 2})
    assert [finding["judgement"]["n"] for finding in document["findings"]] == [12, 12]
    if flags:
        assert alerts(history) == []
        stored(*slow[4:])
        code, document = checked(*flags)
        assert (code, document["counts"]) == (0, {"fine": 2})


def test_a_level_is_seen_once_the_alert_about_any_of_its_runs_is_triaged_as_no_regression(
    checked, history, stored, measured, capsys
):
    stored(*(measured(number, 1.10) for number in (12, 13, 14)))
    assert checked()[0] == 1, "the alert is about the last of them, the change about the first"
    ids = [row["alert_id"] for row in alerts(history)]
    assert alert.main(["set", *ids, "noise", "--note", "a busy week", "--db-path", str(history)]) == 0
    capsys.readouterr()
    stored(measured(15, 1.10))
    code, document = checked()
    assert (code, document["counts"]) == (0, {"fine": 2})
    assert [row["alert_id"] for row in alerts(history)] == ids


def test_doubtful_results_are_neither_judged_nor_part_of_a_baseline(checked, stored, measured):
    doubt = Doubt(kind="thermal_throttle", severity="throttled")

    def doubted(number):
        run = measured(number, 3.0)
        return replace(run, results=tuple(replace(r, validity="throttled", doubts=(doubt,)) for r in run.results))

    stored(doubted(20))
    code, document = checked()
    assert code == 3
    assert {finding["why"] for finding in document["findings"]} == {"throttled: thermal_throttle"}

    stored(measured(21))
    code, document = checked()
    assert code == 0
    assert [finding["judgement"]["n"] for finding in document["findings"]] == [12, 12]


def test_a_point_that_worked_before_and_now_fails_is_failed(checked, history, stored, measured):
    run = measured(20)
    failed = replace(
        run.results[0], status="failed", error="out of memory", validity=None, metrics={}, samples=(), launches=0
    )
    stored(replace(run, status="failed", results=(failed, run.results[1])))

    code, document = checked()

    assert code == 1
    assert document["findings"][0]["verdict"] == "failed"
    assert document["findings"][0]["why"] == "failed: out of memory (worked in 12 earlier runs)"
    assert alerts(history) == []


def test_the_table_has_the_value_and_the_expected_interval(history, stored, measured, capsys):
    stored(measured(20, 1.10))

    check.main(["--db-path", str(history), "--no-alerts"])

    lines = capsys.readouterr().out.replace("\n    ", " ").splitlines()
    assert "model bert-base-uncased, device cpu, runtime eager, precision float32" in lines[0]
    assert lines[2].split() == ["point", "predicted", "now", "unit", "change", "expected", "runs", "verdict"]
    assert lines[4].split() == ["b1", "s32", "8", "8.8", "ms", "+10.0%", "up", "to", "8.16", "12", "regressed"]
    assert "2 regressed" in lines


def test_junit_has_one_case_per_series_and_parses(history, stored, measured, tmp_path):
    stored(measured(20, 1.10, model_id="bert-base-uncased"))
    path = tmp_path / "gate.xml"

    check.main(["--db-path", str(history), "--no-alerts", "--junit", str(path)])

    suite = ElementTree.parse(path).getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "2", "0")
    case = suite.find("testcase")
    assert case.get("classname") == "bert-base-uncased, cpu, eager, float32"
    assert case.get("name") == "b1 s32 latency_median_ms"
    assert "+10.0%" in case.find("failure").get("message")
    assert "measure again: benchhouse run" in case.find("failure").text


def test_hostile_names_stay_text_in_every_file(history, stored, measured, tmp_path, capsys):
    name = 'a|b<script>"&]]>\x00\x1b[31m\n# title\ud7ff'
    stored(measured(20, model_id=name))
    junit, markdown = tmp_path / "gate.xml", tmp_path / "gate.md"

    code = check.main(["--db-path", str(history), "--junit", str(junit), "--markdown", str(markdown)])

    assert code == 3
    case, _, verdict = ElementTree.parse(junit).getroot().find("testsuite").findall("testcase")
    assert verdict.find("error").get("message") == "nothing could be judged: 2 not enough data"
    assert case.get("classname").startswith('a|b<script>"&]]>\\x00\\x1b[31m\\n# title')
    text = markdown.read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "\n# title" not in text
    assert "a\\|b&lt;script&gt;" in text
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("--metric", "latency_median"), 2, "unknown metric 'latency_median': did you mean latency_median_ms"),
        (("--run", "ffffffff"), 2, "'ffffffff' selects no result"),
        (("model=nobody",), 2, "'model=nobody' selects no result"),
        (("--run", "a", "--session", "b"), 2, "not allowed with"),
        (("--junit", "/nowhere/at/all.xml"), 2, "--junit: cannot write"),
    ],
)
def test_invalid_requests_are_one_line(history, capsys, arguments, code, expected):
    assert check.main([*arguments, "--db-path", str(history)]) == code

    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1


def test_an_empty_or_missing_database_has_not_enough_data_and_the_next_step_is_named(database, tmp_path, capsys):
    for path, why, session in (
        (database, "has no results", []),
        (database, "has no results", ["--session", "latest"]),
        (tmp_path / "none.duckdb", "there is no warehouse at", []),
    ):
        assert check.main([*session, "--db-path", str(path)]) == 3
        error = capsys.readouterr().err
        assert why in error
        assert "benchhouse run MODEL --save" in error


def test_with_too_few_runs_the_value_is_shown_and_the_command_that_gates_now(
    empty_database, tmp_path, measured, capsys
):
    path = shutil.copy2(empty_database, tmp_path / "short.duckdb")
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(measured(1))
    assert check.main(["--db-path", str(path)]) == 3
    table, _, notes = capsys.readouterr().out.partition("2 not enough data")
    assert re.search(r"b1 s32 +8 +ms +0 +not enough data", table)
    command = notes.partition(" in FOLDER: ")[2].replace("\\\n", " ")
    front, name, both, *gate = shlex.split(command)
    assert (front, name, gate) == ("benchhouse", "ab", ["--worktree-a", "FOLDER", "--fail-on", "slower"])
    assert arm("a", both).words[: len(DEFAULT_COMMAND)] == DEFAULT_COMMAND


def test_without_a_regression_the_legend_does_not_say_that_there_is_one(stored, history, measured, capsys):
    stored(measured(20))
    assert check.main(["--db-path", str(history)]) == 0
    out = capsys.readouterr().out
    assert "2 fine\nwhat regressed is worse than" in out
    assert "by more than 2%: nothing here regressed" in " ".join(out.split())


def test_a_beginning_of_ids_that_several_runs_share_is_refused(stored, measured, history, capsys):
    ids = [f"01a21ee7-000{place}-7000-8000-000000000000" for place in range(2)]
    stored(*(replace(measured(RUNS + place), run_id=run_id) for place, run_id in enumerate(ids)))
    assert check.main(["--run", "01a21ee7", "--db-path", str(history)]) == 2
    line = "--run 01a21ee7: the ids of 2 runs begin so: give more of the one to judge\n"
    assert capsys.readouterr().err.endswith(line)
    assert check.main(["--run", ids[1][:13], "--db-path", str(history)]) == 0


def test_a_gate_that_its_own_regression_makes_too_noisy_names_the_alert(stored, measured, history, capsys):
    codes = []
    for number, slowdown in enumerate((4.0, 1.0, 1.0, 1.0), start=RUNS):
        stored(measured(number, slowdown))
        codes.append(check.main(["--db-path", str(history)]))
        shown = " ".join(capsys.readouterr().out.split())
    assert codes == [1, 0, 3, 3]
    with Warehouse.open(history, read_only=True) as warehouse:
        ids = [row["alert_id"] for row in warehouse.query("FROM alerts").dicts()]
    for alert_id in ids:  # of each series its own
        words = ["set", alert_id, "regression"]
        told = f"some of them regressed: benchhouse alert {' '.join(words)} leaves them out, if that is no noise"
        assert told in shown
        assert alert.main([*words, "--db-path", str(history)]) == 0
    assert check.main(["--db-path", str(history)]) == 0


def test_an_older_run_is_judged_by_the_runs_before_it(checked, history):
    with Warehouse.open(history, read_only=True) as warehouse:
        run = warehouse.query("SELECT run_id FROM history WHERE batch_size = 1 AND position = 11").dicts()[0]["run_id"]

    _, document = checked("--run", run[:13])

    assert [finding["judgement"]["n"] for finding in document["findings"]] == [10, 10]


def test_the_gate_stays_closed_until_the_alert_is_triaged(checked, history, stored, measured, capsys):
    """The detector confirms the new level after a few runs; before that is accepted, the old one counts."""
    for number in range(14, 19):
        stored(measured(number, 1.10 + 0.001 * (number % 2)))
        assert checked()[0] == 1

    assert len(alerts(history)) == 2
    ids = [row["alert_id"] for row in alerts(history)]
    alert.main(["set", *ids, "regression", "--db-path", str(history)])
    capsys.readouterr()
    assert checked()[0] == 1, "it fails at the level of a regression, as alert set says"
    alert.main(["set", *ids, "intended", "--db-path", str(history)])
    capsys.readouterr()
    stored(measured(19, 1.10))
    code, document = checked()
    assert code == 0
    judged = [finding["judgement"] for finding in document["findings"]]
    assert {(one["n"], one["outcome"]) for one in judged} == {(5, "fine")}
    assert all(one["borrowed"] >= 10 for one in judged)
    stored(measured(20, 1.25))
    assert checked()[0] == 1


@pytest.mark.parametrize(
    ("triages", "runs_before_alert"),
    [((), 1), (("regression",), 1), (("intended", "regression"), 1), (("regression",), 6)],
)
def test_runs_at_the_level_of_an_open_alert_are_no_history_though_nobody_checked_them(
    checked, history, stored, measured, triages, runs_before_alert, capsys
):
    level = [measured(number, 1.10 + 0.001 * (number % 3)) for number in range(12, 24)]
    stored(*level[:runs_before_alert])
    if runs_before_alert == 1:
        assert checked()[0] == 1
    else:
        assert alert.main(["raise", "--since", "2026-01-01", "--db-path", str(history)]) == 0
    stored(*level[runs_before_alert:])
    for triage in triages:
        ids = [row["alert_id"] for row in alerts(history)]
        assert alert.main(["set", *ids, triage, "--db-path", str(history)]) == 0
    capsys.readouterr()

    code, document = checked()

    assert (code, document["counts"]) == (1, {"regressed": 2})
    assert [finding["judgement"]["n"] for finding in document["findings"]] == [12, 12]


def test_the_first_runs_after_an_accepted_change_are_judged_by_its_level_or_not_at_all(
    checked, history, stored, measured, capsys
):
    def judged(triage):
        assert alert.main(["set", *ids, triage, "--note", "a wanted check", "--db-path", str(history)]) == 0
        assert "'not enough data' until 2 earlier runs are at it" in capsys.readouterr().err
        code, document = checked()
        return code, document["counts"], {finding["why"] for finding in document["findings"]}

    stored(measured(14, 1.10))
    checked()
    ids = [row["alert_id"] for row in alerts(history)]
    for triage in ACCEPTED:
        assert judged(triage) == (0, {"accepted": 2}, {f"worse, with an alert that is triaged as {triage}"})

    stored(measured(15, 1.08))
    why = "too few since the accepted change: 1 run, at least 2 required beside the 12 before it"
    for triage in ACCEPTED:
        assert judged(triage) == (3, {"not enough data": 2}, {why})
    stored(measured(16, 1.09))
    for triage in ACCEPTED:
        assert judged(triage)[:2] == (0, {"fine": 2})
    assert [row["alert_id"] for row in alerts(history)] == ids, "no second alert about the accepted level"
    check.main(["--db-path", str(history)])
    out = " ".join(capsys.readouterr().out.split())
    assert " 2+12 " in out
    assert "the A since the last change of level give the prediction, the B before it only their variation" in out
    stored(measured(17, 1.25))
    assert checked()[0] == 1, "beyond the new level it is a regression as before"


def test_pooled_percentiles_are_neither_judged_nor_part_of_a_baseline(checked, stored, measured):
    def pooled(run, slower):
        results = [
            replace(one, pooled_quantiles=("latency_p90_ms",), metrics=raised(one, slower)) for one in run.results
        ]
        return replace(run, results=tuple(results))

    def raised(result, slower):
        return {**result.metrics, "latency_p90_ms": result.metrics["latency_p90_ms"] * slower}

    stored(pooled(measured(RUNS), 3.0))
    code, document = checked("--metric", "latency_p90_ms")
    assert code == 3
    assert {(one["verdict"], one["why"]) for one in document["findings"]} == {
        ("not enough data", f"no latency_p90_ms: {POOLED}")
    }
    stored(measured(RUNS + 1))
    code, document = checked("--metric", "latency_p90_ms")
    assert code == 0
    assert {one["judgement"]["n"] for one in document["findings"]} == {RUNS}


HOSTILE = "::error::<img src=x> @team #12 https://evil.example www.evil.example a|b `c`\n::error::x 100%"
"""A name that would be something in Markdown, HTML and a workflow's log."""


def test_names_in_comments_and_annotations_are_escaped(history, stored, measured):
    stored(measured(20, 1.10))
    with Warehouse.open(history, read_only=True) as warehouse:
        metric = METRICS["latency_median_ms"]
        findings = judge_candidates(candidates(warehouse, Selection.parse(""), Scope(run=None, session=None), [metric]))
    hostile = [replace(one, candidate=replace(one.candidate, model_id=HOSTILE)) for one in findings]
    body = github_comment(hostile)
    escaped = (
        "&lt;img src=x&gt; @&#8203;team #&#8203;12 https:&#8203;//evil.example www.&#8203;evil.example a\\|b \\`c\\`"
    )
    assert escaped in body
    assert not any(line.lstrip().startswith("::") for line in body.splitlines())
    first, second = workflow_annotations(hostile)
    assert first.startswith("::error title=benchhouse%3A regressed::::error::<img src=x> @team")
    assert "a|b `c`\\n::error::x 100%25, cpu, eager, float32, b1 s32: latency_median_ms is " in first
    assert "+10.0%25 against 16 ms, predicted from 12 runs" in second
    many = workflow_annotations(hostile * 20)
    assert (len(many), many[-1]) == (10, "::error title=benchhouse::31 more")
    long = [
        replace(one, candidate=replace(one.candidate, model_id=f"{n}{'x' * 900}")) for n, one in enumerate(hostile * 50)
    ]
    assert len(github_comment(long)) < 65_536
    assert github_comment(long).endswith(" more lines are omitted\n")


def test_github_gets_a_comment_and_annotations(history, stored, measured, capsys, tmp_path):
    stored(measured(20, 1.10))
    assert check.main(["--github", "-", "--no-alerts", "--db-path", str(history)]) == 1
    body, err = capsys.readouterr()
    assert body.startswith("<!-- benchhouse check -->\n**2 regressed**")
    lines = [line for line in err.splitlines() if line.startswith("::error title=benchhouse%3A regressed::bert")]
    assert len(lines) == 2
    comment = tmp_path / "comment.md"
    assert check.main(["--github", str(comment), "--no-alerts", "--db-path", str(history)]) == 1
    assert comment.read_text() == body
    stop, *text, again, first, second = capsys.readouterr().out.splitlines()
    assert [first, second] == lines
    assert len(stop) == len("::stop-commands::") + 32
    assert again == f"::{stop.removeprefix('::stop-commands::')}::"
    assert "2 regressed" in text


def test_a_comment_reports_that_there_is_nothing_to_judge(empty_database, tmp_path, capsys):
    path = shutil.copy2(empty_database, tmp_path / "empty.duckdb")
    assert check.main(["--github", "-", "--db-path", str(path)]) == 3
    assert "not enough data" in capsys.readouterr().out
    assert check.main(["--github", "-", "--json", "--db-path", str(path)]) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ((), 3, "there is no warehouse at"),
        (("--metric", "latency_median"), 2, "unknown metric 'latency_median'"),
        (("--run", "latest"), 2, "--run latest: takes a run id"),
        (("a..b|<script>",), 2, "script"),
    ],
)
def test_the_files_of_a_ci_say_why_there_is_no_verdict(tmp_path, capsys, arguments, code, expected):
    junit, markdown, body = tmp_path / "gate.xml", tmp_path / "gate.md", tmp_path / "body.md"
    files = ["--junit", str(junit), "--markdown", str(markdown), "--github", str(body)]

    assert check.main([*arguments, *files, "--db-path", str(tmp_path / "none.duckdb")]) == code

    out, err = capsys.readouterr()
    case = ElementTree.parse(junit).getroot().find("testsuite/testcase")
    message = case.find("error").get("message")
    assert expected in message
    assert message in err
    assert out.startswith("::error title=" if code == 2 else "::warning title=")
    for file in (markdown, body):
        text = file.read_text(encoding="utf-8")
        assert expected.split()[0].strip("-") in text
        assert "<script>" not in text


def test_a_file_that_cannot_be_written_takes_no_verdict_and_no_other_file_with_it(
    history, stored, measured, tmp_path, capsys
):
    stored(measured(20, 1.10))
    junit, markdown = Path("/dev/full"), tmp_path / "gate.md"
    files = ["--junit", str(junit), "--markdown", str(markdown), "--no-alerts"]

    assert check.main(["--db-path", str(history), *files]) == 1

    out, err = capsys.readouterr()
    assert "2 regressed" in out
    assert "regressed" in markdown.read_text(encoding="utf-8")
    assert err.startswith("benchhouse check: error: --junit: cannot write /dev/full: No space left on device: choose ")
    assert check.main(["--metric", "latency_median", "--junit", str(junit), "--db-path", str(history)]) == 2
    assert "unknown metric 'latency_median'" in capsys.readouterr().err


def test_an_error_after_the_verdict_leaves_the_findings_in_the_files(history, stored, measured, tmp_path, monkeypatch):
    stored(measured(20, 1.10))
    junit = tmp_path / "gate.xml"

    def refuse(*arguments):
        raise StorageError("no space left on device")

    monkeypatch.setattr(check, "_store_alerts", refuse)

    assert check.main(["--db-path", str(history), "--junit", str(junit)]) == 1
    assert ElementTree.parse(junit).getroot().find("testsuite").get("failures") == "2"


def test_new_alerts_are_sent_once_and_an_unresponsive_server_does_not_fail_the_check(
    checked, stored, measured, monkeypatch, capsys
):
    sent = []
    monkeypatch.setenv("BENCHHOUSE_WEBHOOK_URL", "https://hooks.example/secret")
    monkeypatch.setattr(webhook, "send", lambda message, address: sent.append(message) or "the server answered 500")
    stored(measured(20, 1.10))
    assert checked()[0] == 1
    assert [row["model_id"] for row in sent[0]["alerts"]] == ["bert-base-uncased"] * 2
    assert checked()[0] == 1
    assert len(sent) == 1


def test_markdown_without_a_file_is_printed_instead_of_the_table(history, capsys):
    assert check.main(["--db-path", str(history), "--no-alerts", "--markdown"]) in (0, 1)
    assert "| " in capsys.readouterr().out
    assert check.main(["--db-path", str(history), "--no-alerts", "--markdown", "-", "--json"]) == 2
    assert "--markdown and --json all print to stdout" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tags", "command", "kind"),
    [
        (("tune",), (), "a search by benchhouse tune"),
        (("ab",), (), "a comparison by benchhouse ab"),
        ((), ("benchhouse", "load", "m", "--find-rate"), "a search by benchhouse load --find-rate"),
    ],
)
def test_a_session_that_measures_something_else_each_time_is_judged_only_if_named(
    tags, command, kind, checked, stored, measured, history, capsys
):
    run = measured(20, 1.5)
    tagged = {**run.provenance.tags, **dict.fromkeys(tags, run.session_id)}
    about = replace(run.provenance, tags=tagged, command=command or run.provenance.command)
    stored(run := replace(run, provenance=about))
    capsys.readouterr()
    assert check.main(["--db-path", str(history)]) == 0  # the newest of the others
    out, err = capsys.readouterr()
    assert run.session_id not in out
    assert f"the newer {run.session_id} is {kind}, which --session {run.session_id} judges" in err
    assert check.main(["--session", run.session_id, "--db-path", str(history), "--no-alerts"]) == 1
    assert check.main([f"run={run.run_id}", "--db-path", str(history), "--no-alerts"]) == 1
    assert f"judged is session {run.session_id}, {kind}" in capsys.readouterr().err


def test_a_search_alone_is_no_reason_to_measure_one_of_its_setups_again(empty_database, tmp_path, make_run, capsys):
    path = shutil.copy2(empty_database, tmp_path / "searched.duckdb")
    run = make_run(batch_sizes=(1,), sequence_lengths=(32,))
    searched = replace(run, provenance=replace(run.provenance, tags={"tune": run.session_id}))
    alike = make_run(batch_sizes=(1,), sequence_lengths=(32,), session_id=str(uuid.uuid4()))
    for one, says_ab in ((searched, False), (alike, True)):
        with Warehouse.open(path) as warehouse:
            warehouse.ingest(one)
        assert check.main(["--no-alerts", "--db-path", str(path)]) == 3
        out, err = capsys.readouterr()
        assert ("a gate judges what is measured alike each time" in err) is not says_ab
        assert ("benchhouse ab" in out) is says_ab


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        (
            "vllm_bench_serve/server_of_vllm.json",
            "time_to_first_token_ms,time_per_output_token_ms,throughput_tokens_per_sec",
        ),
        ("llama_bench/table.md", "throughput_tokens_per_sec"),
        ("llama_bench/33_columns.json", None),
    ],
)
def test_an_import_names_the_metrics_by_which_it_can_be_judged(history, capsys, name, metrics):
    assert import_results.main([str(FIXTURES / "imports" / name), "--db-path", str(history)]) == 0
    how = f"format={name.partition('/')[0]}" + (f" --metric {metrics}" if metrics else "")
    assert f"the newest by date of what is imported is judged by benchhouse check {how}\n" in capsys.readouterr().err


def test_an_import_of_an_earlier_date_is_not_judged_unsaid(stored, measured, history, capsys):
    first, last = (str(FIXTURES / f"imports/llama_bench/{name}.json") for name in ("first_version", "33_columns"))
    assert import_results.main([first, "--date", "2026-01-01", "--db-path", str(history)]) == 0
    stored(own := measured(20))
    assert import_results.main([last, "--date", "2025-12-01", "--db-path", str(history)]) == 0  # older than the first
    how = "benchhouse check format=llama_bench"
    assert f"the newest by date of what is imported is judged by {how}\n" in capsys.readouterr().err
    assert check.main(["--no-alerts", "--db-path", str(history)]) == 0
    said = capsys.readouterr().err
    assert f"judged is session {own.session_id}, the newest by date: what was imported after it" in said
    command, session = re.search(
        r"it \(llama_bench\) is older: benchhouse check (--session (\S+)) judges", said
    ).groups()
    assert check.main([*command.split(), "--no-alerts", "--db-path", str(history)]) == 3  # it has no history
    out, err = capsys.readouterr()
    assert session in out
    assert "imported" not in err
    with Warehouse.open(history, read_only=True) as warehouse:
        (row,) = warehouse.query("FROM benchmark_runs WHERE session_id = ?", [session]).dicts()
    assert row["started_at"].year == 2025
    stored(measured(21))
    assert check.main(["--no-alerts", "--db-path", str(history)]) == 0
    assert "imported" not in capsys.readouterr().err  # it is older in both ways


def test_own_benchmarks_with_too_few_runs_are_gated_by_the_batch_that_measures_them(
    empty_database, measured, tmp_path, capsys
):
    path = shutil.copy2(empty_database, tmp_path / "benches.duckdb")
    run = measured(1)
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(replace(run, cell=replace(run.cell, workload=replace(run.cell.workload, source="bench"))))
    assert check.main(["--db-path", str(path)]) == 3
    command = capsys.readouterr().out.partition(" in FOLDER: ")[2].replace("\\\n", " ")
    front, name, side, *gate = shlex.split(command)
    assert (front, name, gate) == ("benchhouse", "ab", ["--worktree-a", "FOLDER", "--fail-on", "slower"])
    assert arm("a", side).words == (*COMMANDS["batch_benchmark"], "--benches", "benches")


@pytest.mark.parametrize(
    ("mode", "points", "levels"),
    [
        ({LOOP: "open"}, ({REQUEST_RATE: 10.0}, {REQUEST_RATE: 2.5}), "--request-rate 2.5,10"),
        ({LOOP: "open"}, ({REQUEST_RATE: 10.0}, {}), "--request-rate 10,inf"),
        ({LOOP: "closed"}, (16, 4), "--concurrency 4,16"),
        ({LOOP: "closed", SCENARIO: "offline"}, (1, 2), "--scenario offline"),
    ],
)
def test_a_load_with_too_few_runs_is_gated_by_its_limits(
    mode, points, levels, empty_database, measured, tmp_path, capsys
):
    path = shutil.copy2(empty_database, tmp_path / "load.duckdb")
    run = measured(1)
    changes = [{"concurrency": one} if isinstance(one, int) else {"axes": one} for one in points]
    results = tuple(
        replace(result, point=replace(result.point, batch_size=1, **change))
        for result, change in zip(run.results, changes, strict=True)
    )
    cell = replace(run.cell, runtime_mode={**run.cell.runtime_mode, **mode})
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(replace(run, cell=cell, results=results))
    assert check.main(["--db-path", str(path)]) == 3
    how = "to gate now, without a history, with the other flags of this load: benchhouse load bert-base-uncased "
    out = " ".join(capsys.readouterr().out.replace("\\\n", " ").split())
    assert out.endswith(f"{how}{levels} --limit LIMITS --fail-on missed")


def test_no_command_of_ours_gates_a_load_of_another_tool(empty_database, tmp_path, capsys):
    path = shutil.copy2(empty_database, tmp_path / "load.duckdb")
    (file, *_) = sorted(FIXTURES.glob("imports/guidellm/*.json"))
    assert import_results.main([str(file), "--db-path", str(path)]) == 0
    assert check.main(["--db-path", str(path)]) == 3
    out = capsys.readouterr().out
    assert "not enough data" in out
    assert "benchhouse load" not in out


def test_a_series_without_a_verdict_by_several_metrics_is_listed_once(empty_database, measured, tmp_path, capsys):
    path = shutil.copy2(empty_database, tmp_path / "few.duckdb")
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(measured(1))
    both = "latency_median_ms,throughput_samples_per_sec"
    assert check.main(["--metric", both, "--db-path", str(path)]) == 3
    line = re.search(r"not enough data: 0 earlier.*?\)", " ".join(capsys.readouterr().out.split()))[0]
    assert (line.count("b1 s32"), line.count("b2 s32"), line.count("latency_median_ms")) == (1, 1, 0)
    assert check.main(["--metric", f"{both},latency_p95_ms", "--db-path", str(path)]) == 3
    assert f"b1 s32, {both.replace(',', ', ')}; " in " ".join(capsys.readouterr().out.split())


def test_series_that_differ_in_the_revision_are_listed_with_it(empty_database, measured, tmp_path, capsys):
    path = shutil.copy2(empty_database, tmp_path / "few.duckdb")
    one, other = measured(1), measured(2)
    workload = replace(other.cell.workload, revision="b" * 40)
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(one)
        warehouse.ingest(replace(other, session_id=one.session_id, cell=replace(other.cell, workload=workload)))
    assert check.main(["--db-path", str(path)]) == 3
    line = re.search(r"not enough data: 0 earlier.*?\)", " ".join(capsys.readouterr().out.split()))[0]
    assert (line.count("b1 s32"), line.count("b2 s32"), line.count("revision bbbbbbbb")) == (2, 2, 2)


def test_a_label_of_the_users_own_is_no_search(stored, measured, history):
    run = measured(20)
    stored(replace(run, provenance=replace(run.provenance, tags={"tune": "x", "ab": "y"})))
    with Warehouse.open(history, read_only=True) as warehouse:
        found = newest(warehouse, Selection.parse(""), [METRICS["latency_median_ms"]])
    assert (found.session_id, found.kind, found.newer) == (run.session_id, None, None)


def test_a_session_of_which_some_runs_are_a_search_is_not_called_newer_than_itself(stored, measured, history):
    plain, search = measured(20), measured(21)
    tags = {**search.provenance.tags, "tune": plain.session_id}
    stored(plain, replace(search, session_id=plain.session_id, provenance=replace(search.provenance, tags=tags)))
    with Warehouse.open(history, read_only=True) as warehouse:
        found = newest(warehouse, Selection.parse(""), [METRICS["latency_median_ms"]])
    assert (found.session_id, found.kind, found.newer) == (plain.session_id, None, None)


def test_highest_rates_of_searches_are_judged_as_any_metric(stored, measured, history):
    run = measured(20)
    stored(replace(run, provenance=replace(run.provenance, command=("benchhouse", "load", "m", "--find-rate"))))
    with Warehouse.open(history, read_only=True) as warehouse:
        found = [
            newest(warehouse, Selection.parse(""), [metric])
            for metric in (METRICS["latency_median_ms"], custom_metric(HIGHEST_RATE, "requests/s", "higher"))
        ]
    assert [one.newer is None for one in found] == [False, True]
    assert found[1].session_id == run.session_id


def test_the_command_that_gates_now_has_the_metric_and_is_offered_only_if_it_would_have_a_value(
    empty_database, measured, tmp_path, capsys
):
    path = shutil.copy2(empty_database, tmp_path / "one.duckdb")
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(measured(1))
    both = "latency_p95_ms,throughput_samples_per_sec"
    for metric, offered in (("throughput_samples_per_sec", True), ("latency_p95_ms", False), (both, True)):
        assert check.main(["--metric", metric, "--db-path", str(path)]) == 3
        shown = " ".join(capsys.readouterr().out.split())
        assert ("benchhouse ab" in shown) is offered, shown
        assert ("--metric throughput_samples_per_sec --fail-on slower" in shown) is offered
