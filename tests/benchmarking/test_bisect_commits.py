"""Bisection by measured verdicts in real repositories, whose files set how fast each
commit is."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from dataclasses import dataclass, field

import pytest

from benchmarking.bisection.commit_search import PointChange, is_inconclusive, outcome
from benchmarking.commands import ab
from benchmarking.commands.bisect import main
from benchmarking.core import storage_paths
from benchmarking.core.metrics import METRICS
from benchmarking.core.records import dumps, to_json
from benchmarking.core.verdicts.judging import Pair, judge
from benchmarking.sweep.run.command_session import StoredComparison
from benchmarking.sweep.run.command_turns import TurnError
from tests.helpers.git_repositories import GitRepository

pytestmark = [pytest.mark.forked_children, pytest.mark.skipif(shutil.which("git") is None, reason="needs git")]

SCATTER = (0.0, 0.004, -0.004, 0.002, -0.002, 0.006, -0.006, 0.003)
COMMAND = ["--", "run_hardware_benchmark", "--model-id", "m"]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    made = GitRepository(tmp_path / "repository")
    monkeypatch.chdir(made.folder)
    return made


def commit(repository, subject, ms, **further):
    return repository.commit(subject, {"ms": str(ms), **further})


@dataclass
class Played:
    """Measuring that reads how fast a commit is from its files, and judges as compare does."""

    pairs: list = field(default_factory=list)
    scatter: float = 1.0

    def __call__(self, arms, looks, keep, budget_s=None, *, needs_more_rounds, keep_partial):
        files = [{path.name: path.read_text() for path in one.folder.iterdir() if path.is_file()} for one in arms]
        self.pairs.append(tuple(one["ms"] for one in files))
        for letter, one in zip("ab", files, strict=True):
            if "broken" in one:
                raise TurnError(f"{letter.upper()} ended with exit code 1: build failed", letter)
        for count in looks:
            document = self.judged([float(one["ms"]) for one in files], files[1], count)
            if not needs_more_rounds(document):
                break
        comparison = StoredComparison(text=json.dumps(document), exit_code=0)
        return ab.ABResult(exit_code=0, run_ids={"a": ["1"], "b": ["2"]}, rounds=count, comparison=comparison)

    def judged(self, medians, other, count):
        noise = self.scatter * float(other.get("noise", "1"))
        rounds = [(medians[0], medians[1] * (1 + noise * SCATTER[one % len(SCATTER)])) for one in range(count)]
        (judgement,) = judge([Pair(rounds=tuple(rounds))], METRICS["latency_median_ms"])
        finding = {"point": "b1", "subject": {"model_id": ["m", "m"]}, "judgement": to_json(judgement)}
        return {"findings": [finding]}


@pytest.fixture
def played(monkeypatch):
    made = Played()
    monkeypatch.setattr(ab, "measure_and_compare", made)
    monkeypatch.setattr(ab, "check_commands", lambda arms, name, metric: None)  # planning takes seconds
    return made


def bisect(*words):
    return main([*words, "--quiet", "--json", *COMMAND])


def test_the_planted_commit_is_found_and_measured_against_its_parent(repository, played, capsys):
    first = commit(repository, "first", 1.0)
    for number in range(4):
        commit(repository, f"fine {number}", 1.0 + number / 1000)
    parent = repository.git("rev-parse", "HEAD")
    slow = commit(repository, "slow", 1.25)
    for number in range(5):
        commit(repository, f"later {number}", 1.25 + number / 1000)
    (repository.folder / "ms").write_text("uncommitted")
    assert bisect(first[:10], "main") == 0
    log = json.loads(capsys.readouterr().out)
    found = log["conclusion"]
    assert found["kind"] == "found"
    assert [(one["commit"], one["subject"]) for one in found["commits"]] == [(slow, "slow")]
    assert found["parent"] == parent
    (point,) = found["step"]["points"]
    assert point["low"] < 1.25 / 1.003 - 1 < point["high"]
    assert len(log["steps"]) <= 6  # BAD, log2 of 10 commits, the culprit
    assert {step["outcome"] for step in log["steps"]} == {"bad", "good"}
    assert (repository.folder / "ms").read_text() == "uncommitted"
    assert repository.git("status", "--short") == "M ms"


def test_failing_commits_are_skipped_and_a_distant_one_is_tried(repository, played, capsys):
    first = commit(repository, "first", 1.0)
    commit(repository, "broken", 1.0, broken="")
    (repository.folder / "broken").unlink()
    commit(repository, "mended", 1.001)
    slow = commit(repository, "slow", 1.3)
    assert bisect(first, "main") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["conclusion"]["commits"][0]["commit"] == slow
    reasons = [step["reason"] for step in found["steps"] if step["outcome"] == "skip"]
    assert len(reasons) <= 1
    assert all("build failed" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("spoiled", "reason"), [({"broken": ""}, "build failed"), ({"noise": "40"}, "undecided: +")], ids=["fails", "noisy"]
)
def test_all_candidates_are_named_if_commits_were_skipped(repository, played, capsys, spoiled, reason):
    first = commit(repository, "first", 1.0)
    commit(repository, "spoiled", 1.1, **spoiled)
    for name in spoiled:
        (repository.folder / name).unlink()
    commit(repository, "last", 1.3)
    assert bisect(first, "main") == 3
    log = json.loads(capsys.readouterr().out)
    assert log["conclusion"]["kind"] == "skipped"
    assert [one["subject"] for one in log["conclusion"]["commits"]] == ["spoiled", "last"]
    assert reason in log["steps"][1]["reason"]


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0.031, 0.049, "skip"), (-0.01, 0.049, "good"), (0.031, 0.07, "skip")]
)
def test_a_part_of_the_change_is_not_called_none(low, high, expected):
    part = PointChange(point="b1", verdict="not judged", change=0.04, low=low, high=high)
    whole = {"b1": 0.125}
    assert outcome([part], whole)[0] == expected
    assert is_inconclusive([part], whole) is (expected == "skip")


def test_a_culprit_whose_parent_cannot_be_measured_is_named_as_not_confirmed(repository, played, capsys, tmp_path):
    commit(repository, "old and broken", 1.0, broken="")
    repository.git("checkout", "-q", "-b", "side")
    (repository.folder / "broken").unlink()
    slow = commit(repository, "mended and slow", 1.3)
    repository.git("checkout", "-q", "main")
    (repository.folder / "broken").unlink(missing_ok=True)
    good = commit(repository, "good", 1.0)
    commit(repository, "another", 1.0, a="1")
    repository.git("merge", "-q", "--no-edit", "-X", "theirs", "side")
    log = tmp_path / "log.json"
    for _ in range(2):  # and again by its log
        assert main([good, "main", "--quiet", "--log", str(log), *COMMAND]) == 3
        out = capsys.readouterr().out
        assert "the commit has no verdict against its parent" in out
        assert "COMMAND failed: A ended with exit code 1: build failed" in out
        found = json.loads(log.read_text())["conclusion"]
        assert (found["kind"], [one["commit"] for one in found["commits"]]) == ("not confirmed", [slow])


def test_the_command_is_planned_with_the_modules_of_the_repository(repository, played, monkeypatch):
    first = commit(repository, "first", 1.0)
    commit(repository, "second", 1.001)
    planned = []
    monkeypatch.setattr(ab, "check_commands", lambda arms, name, metric: planned.extend(arms))
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert bisect(first, "main") == 0
    assert planned[0].environment["PYTHONPATH"] == f"{repository.folder}{os.pathsep}/elsewhere"


def test_a_log_that_cannot_be_written_is_refused_before_anything_is_measured(repository, played, monkeypatch, capsys):
    first = commit(repository, "first", 1.0)

    def refuse(path):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(storage_paths, "held_folder", refuse)
    assert bisect(first, "main", "--log", "log.json") == 1
    assert f"cannot write to {repository.folder}: Read-only file system" in capsys.readouterr().err
    assert played.pairs == []


def test_a_culprit_next_to_good_is_measured_again(repository, played, capsys):
    good, slow = commit(repository, "good", 1.0), commit(repository, "slow", 1.3)
    assert bisect(good, slow) == 0
    assert [step["role"] for step in json.loads(capsys.readouterr().out)["steps"]] == ["whole", "culprit"]
    assert len(played.pairs) == 2


def test_an_unchanged_metric_is_reported(repository, played, capsys):
    first = commit(repository, "first", 1.0)
    commit(repository, "second", 1.001)
    assert main([first, "main", "--quiet", *COMMAND]) == 0
    assert "BAD is equivalent to GOOD: there is no change to find" in capsys.readouterr().out
    assert len(played.pairs) == 1


def test_changes_hidden_by_noise_are_not_searched_for(repository, played, capsys):
    first = commit(repository, "first", 1.0)
    commit(repository, "second", 1.03, noise="20")
    assert main([first, "main", "--quiet", *COMMAND]) == 3
    assert "no verdict on whether BAD differs from GOOD: m b1: not judged" in capsys.readouterr().out


def test_improvements_are_found_like_regressions(repository, played, capsys):
    first = commit(repository, "first", 1.0)
    commit(repository, "fine", 1.001)
    commit(repository, "fast", 0.8)
    commit(repository, "later", 0.801)
    assert main([first, "main", "--quiet", *COMMAND]) == 0
    message = capsys.readouterr().out
    assert " fast (x@y, " in message
    assert "-20.1% (" in message
    assert "), faster" in message


def test_a_merged_branch_is_searched_too(repository, played, capsys):
    first = commit(repository, "first", 1.0)
    repository.git("checkout", "-q", "-b", "side")
    slow = commit(repository, "slow on the side", 1.4)
    repository.git("checkout", "-q", "main")
    repository.commit("fine", {"other": "1"})
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    repository.commit("later", {"other": "2"})
    assert bisect(first, "main") == 0
    assert json.loads(capsys.readouterr().out)["conclusion"]["commits"][0]["commit"] == slow


def test_the_common_ancestor_of_two_branches_is_measured_first(repository, played, capsys):
    base = commit(repository, "base", 1.5)
    repository.git("checkout", "-q", "-b", "side")
    commit(repository, "mended on the side", 1.0)
    repository.git("checkout", "-q", "main")
    commit(repository, "later", 1.501)
    assert bisect("side", "main") == 3
    log = json.loads(capsys.readouterr().out)
    assert log["conclusion"]["kind"] == "merge base"
    assert [one["commit"] for one in log["conclusion"]["commits"]] == [base]


def test_interrupted_bisections_resume_from_their_log(repository, played, capsys, monkeypatch, tmp_path):
    first = commit(repository, "first", 1.0)
    for number in range(3):
        commit(repository, f"fine {number}", 1.0 + number / 1000)
    slow = commit(repository, "slow", 1.3)
    path = tmp_path / "log.json"

    def interrupted(*arguments, **named):
        if len(played.pairs) == 2:
            raise KeyboardInterrupt
        return played(*arguments, **named)

    monkeypatch.setattr(ab, "measure_and_compare", interrupted)
    assert bisect(first, "main", "--log", str(path)) == 130
    assert "with --log FILE.json, the same command resumes where it stopped" in capsys.readouterr().err
    assert len(json.loads(path.read_text())["steps"]) == 2
    monkeypatch.setattr(ab, "measure_and_compare", played)
    assert bisect(first, "main", "--log", str(path)) == 0
    log = json.loads(path.read_text())
    assert log == json.loads(capsys.readouterr().out)
    assert log["conclusion"]["commits"][0]["commit"] == slow
    assert len(played.pairs) == len(log["steps"])
    assert f"culprit: {slow} slow" in path.with_suffix(".txt").read_text()
    assert bisect(first, "main~1", "--log", str(path)) == 2
    assert "belongs to another bisection (bad " in capsys.readouterr().err


def test_a_token_of_the_command_is_measured_with_and_not_logged(repository, played, capsys, monkeypatch, tmp_path):
    first = commit(repository, "first", 1.0)
    commit(repository, "second", 1.3)
    token, given = "hf_" + "abcdefghijklmnop" * 2, []
    monkeypatch.setattr(ab, "measure_and_compare", lambda arms, *a, **b: given.append(arms) or played(arms, *a, **b))
    path = tmp_path / "log.json"
    words = [first, "main", "--quiet", "--log", str(path), "--", f"HF_TOKEN={token}", *COMMAND[1:]]
    assert main(words) == 0
    assert {one.environment["HF_TOKEN"] for arms in given for one in arms} == {token}
    assert token not in "".join([path.read_text(), path.with_suffix(".txt").read_text(), *capsys.readouterr()])
    assert main(words) == 0  # the log is of this bisection


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["main", "main", *COMMAND], "are the same commit"),
        (["main", "main~1", *COMMAND], "is an ancestor of GOOD"),
        (["main..main", *COMMAND], "are the same commit"),
        (["main...main~1", *COMMAND], "is an ancestor of GOOD"),
        (["main", *COMMAND], "BAD is missing: give two commits, GOOD BAD or GOOD..BAD"),
        (["..main", *COMMAND], "give two commits"),
        (["main~1", "main"], "no command: put it after --"),
        (["none", "main", *COMMAND], "'none' is not a commit, branch or tag"),
        (["main~1", "main", "--", "/nowhere/tool"], "/nowhere/tool does not exist"),
        (["main~1", "main", "--metric", "latency_medan_ms", *COMMAND], "did you mean latency_median_ms"),
        (["main~1", "main", "--log", "log.txt", *COMMAND], "expected a file FILE.json"),
        (["main~1", "main", "--log", "ms.json", *COMMAND], "not a log of benchhouse bisect"),
    ],
)
def test_invalid_searches_are_refused_before_anything_is_measured(repository, played, capsys, words, message):
    commit(repository, "first", 1.0)
    repository.commit("second", {"ms.json": "{}"})
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert played.pairs == []


def test_the_flags_of_the_command_are_checked_before_anything_is_measured(repository, monkeypatch, capsys):
    commit(repository, "first", 1.0)
    commit(repository, "second", 2.0)
    monkeypatch.setattr(ab, "measure_and_compare", None)
    words = ["run_hardware_benchmark", "tiny-bert", "--device", "null", "--batch-sizs", "1"]
    assert main(["main~1", "main", "--", *words]) == 2
    said = capsys.readouterr().err
    assert "error: COMMAND: unknown flag --batch-sizs: did you mean --batch-sizes" in said


def test_failures_at_good_or_bad_end_the_bisection(repository, played, capsys):
    commit(repository, "first", 1.0, broken="")
    commit(repository, "second", 1.0)
    assert main(["main~1", "main", *COMMAND]) == 1
    assert "GOOD: COMMAND failed: A ended with exit code 1: build failed" in capsys.readouterr().err


MEASURE = """
import argparse, datetime, json, pathlib, uuid
parser = argparse.ArgumentParser()
parser.add_argument("--launches", type=int)
parser.add_argument("--turn", type=pathlib.Path)
known, _ = parser.parse_known_args()
known.turn.mkdir(parents=True, exist_ok=True)
state = known.turn / "starts"
now = datetime.datetime.now(datetime.UTC).isoformat()
starts = [*(state.read_text().split() if state.exists() else []), now]
state.write_text(" ".join(starts))
if len(starts) == known.launches:
    run = json.loads(pathlib.Path("run.json").read_text())
    ms = float(pathlib.Path("ms").read_text())
    run.update(run_id=str(uuid.uuid4()), started_at=starts[0], finished_at=now)
    result = run["results"][0]
    result.update(result_id=str(uuid.uuid4()), launches=len(starts))
    one = result["samples"][0]
    result["samples"] = [
        {**one, "launch": n, "started_at": at, "values": [ms * (1 + n / 1000)] * 30} for n, at in enumerate(starts)
    ]
    result["metrics"].update(latency_median_ms=ms, latency_ci_low_ms=ms, latency_ci_high_ms=ms)
    (known.turn / "run.json").write_text(json.dumps(run))
"""


def test_each_commit_is_measured_with_its_own_files_and_saved(repository, capfd, make_run, tmp_path):
    """The processes of both sides, the database and its judgement are real; the benchmark is a small script."""
    run = dumps(make_run(batch_sizes=(1,), sequence_lengths=(32,)))
    first = repository.commit("first", {"ms": "1.0", "run.json": run, "measure.py": MEASURE})
    slow = commit(repository, "slow", 1.8)
    keep = ["--save", "--output-dir", str(tmp_path / "runs"), "--db-path", str(tmp_path / "a.duckdb")]
    words = [first, "main", "--rounds", "3", "--max-rounds", "3", "--quiet", "--json", *keep]
    assert main([*words, "--", sys.executable, "measure.py"]) == 0
    log = json.loads(capfd.readouterr().out)
    assert log["conclusion"]["kind"] == "found"
    assert log["conclusion"]["commits"][0]["commit"] == slow
    step, again = log["steps"]
    assert (step["role"], step["rounds"], again["role"]) == ("whole", 3, "culprit")
    (point,) = step["points"]
    assert (point["verdict"], point["change"]) == ("slower", pytest.approx(0.8))
    assert {one for each in log["steps"] for ids in each["run_ids"].values() for one in ids} == {
        json.loads(path.read_text())["run_id"] for path in (tmp_path / "runs").glob("*.json")
    }
