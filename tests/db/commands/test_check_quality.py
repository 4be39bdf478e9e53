"""`benchhouse check` on the quality of runs: verdicts, exit codes, baselines, alerts, and the files for CI."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarking.core.quality import Quality, QualityValue, without_quality
from db.commands import alert, check
from db.warehouse import Warehouse

WINDOWS = tuple(0.001 * factor for factor in (0.8, 0.9, 1.0, 1.1, 1.2, 1.0))
Store = Callable[..., None]
Checked = Callable[..., tuple[int, dict[str, Any]]]


def quality(added: float = 0.0, inputs: str = "a text") -> Quality:
    """A mean divergence of 0.001 nats, and what is added to every window."""
    values = tuple(one + added for one in WINDOWS)
    mean = sum(values) / len(values)
    found = QualityValue(value=mean, low=mean - 1e-4, high=mean + 1e-4, by_window=values)
    return Quality(inputs=inputs, values={"kl_divergence": found}, how={"windows": len(values)})


@pytest.fixture
def database(tmp_path: Path, empty_database: Path) -> str:
    return str(shutil.copy2(empty_database, tmp_path / "quality.duckdb"))


@pytest.fixture
def store(database: str, make_run: Any) -> Store:
    """A function that stores a night with a quality, or without for None."""

    def store(night: int, of_run: Quality | None, branch: str | None = None) -> None:
        run = make_run(batch_sizes=(1,), launches=1, iterations=3, started_at=f"2026-03-{night:02}T00:00:00Z")
        commit = replace(
            run.provenance,
            git_commit=f"{night:040x}",
            git_commit_time=f"2026-03-{night:02}T00:00:00Z",
            git_branch=branch,
        )
        with Warehouse.open(database) as warehouse:
            warehouse.ingest(replace(run, quality=of_run, provenance=commit))

    return store


@pytest.fixture
def checked(database: str, capsys: pytest.CaptureFixture[str]) -> Checked:
    def run(*flags: str) -> tuple[int, dict[str, Any]]:
        code = check.main([*flags, "--json", "--db-path", database])
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return code, document

    return run


def verdicts(document: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(one["judgement"]["verdict"], one["judgement"]["reason"]) for one in document["quality"]]


def test_a_better_quality_of_another_branch_is_no_baseline_of_one_with_a_history(
    store: Store, checked: Checked
) -> None:
    for night in range(1, 11):
        store(night, quality(0.02), "main")
    store(11, quality(), "other")
    store(12, quality(0.02), "main")
    code, document = checked()
    assert (code, [verdict for verdict, _ in verdicts(document)]) == (0, ["equivalent"])


def test_a_worse_quality_fails_the_gate_everywhere_it_is_reported(
    store: Store, checked: Checked, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store(1, quality())
    store(2, quality(0.02))
    code, document = checked("--junit", str(tmp_path / "gate.xml"), "--markdown", str(tmp_path / "gate.md"))
    assert code == document["exit_code"] == 1
    assert verdicts(document) == [("worse", None)]
    assert document["quality"][0]["judgement"]["is_paired"] is True
    (case,) = ElementTree.parse(tmp_path / "gate.xml").getroot().iterfind(".//testcase[failure]")
    assert case.get("name") == "quality kl_divergence"
    assert "quality: 1 worse" in (tmp_path / "gate.md").read_text()
    assert "| KL | 0.001 | 0.021 | nats |" in (tmp_path / "gate.md").read_text()
    assert check.main(["--github", "-", "--no-alerts", "--db-path", database]) == 1
    shown = capsys.readouterr()
    assert "::error title=benchhouse%3A quality worse::" in shown.err
    assert check.main(["--no-alerts", "--db-path", database]) == 1
    words = " ".join(capsys.readouterr().out.split())
    assert "quality is worse if the 95 % interval of the change lies beyond the margin" in words
    assert "0.02 .. 0.02 nats 0.01 nats worse" in words


def test_a_quality_within_the_margin_is_judged_although_the_speed_has_no_history(
    store: Store, checked: Checked
) -> None:
    store(1, quality())
    store(2, quality(0.002))
    code, document = checked()
    assert (code, verdicts(document)) == (0, [("equivalent", None)])


def test_losses_within_the_margin_add_up_to_a_worse_quality(store: Store, checked: Checked) -> None:
    for night in range(1, 5):
        store(night, quality(0.004 * night))
    code, document = checked()
    assert (code, verdicts(document)) == (1, [("worse", None)])


@pytest.mark.parametrize(
    ("newest", "reason"),
    [
        (without_quality("not_supported: the engine returns tokens"), "the engine returns tokens"),
        (None, "not measured in this run: add --quality"),
        (quality(1.0, inputs="another text"), "the earlier runs measured it on other inputs"),
    ],
)
def test_an_unknown_quality_is_not_judged_with_its_reason(
    newest: Quality | None, reason: str, store: Store, checked: Checked
) -> None:
    store(1, quality())
    store(2, newest)
    code, document = checked()
    assert (code, verdicts(document)) == (3, [("not judged", reason)])


def test_the_first_quality_has_nothing_to_be_judged_by(store: Store, checked: Checked) -> None:
    store(1, None)
    store(2, quality())
    assert verdicts(checked()[1]) == [("not judged", "no earlier run of the series has it")]


@pytest.mark.parametrize(("triage", "code"), [("regression", 1), ("improvement", 0)])
def test_a_worse_quality_is_one_alert_and_an_accepted_one_is_the_new_baseline(
    triage: str, code: int, store: Store, checked: Checked, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store(1, quality())
    for night in (2, 3):
        store(night, quality(0.02))
        assert checked()[0] == 1
    alert.main(["list", "--json", "--db-path", database])
    (raised,) = json.loads(capsys.readouterr().out)
    assert (raised["metric"], raised["detector"]) == ("kl_divergence", "quality")
    assert (raised["first_commit"], raised["last_commit"]) == (f"{1:040x}", f"{2:040x}")
    assert raised["relative_change"] == pytest.approx(20)
    alert.main(["set", raised["alert_id"], triage, "--db-path", database])
    capsys.readouterr()
    store(4, quality(0.02))
    assert checked()[0] == code


def test_a_worse_quality_that_was_accepted_does_not_fail_when_it_is_checked_again(
    store: Store, checked: Checked, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store(1, quality())
    store(2, quality(0.02))
    assert checked()[0] == 1
    alert.main(["list", "--json", "--db-path", database])
    (raised,) = json.loads(capsys.readouterr().out)
    alert.main(["set", raised["alert_id"], "method", "--db-path", database])
    capsys.readouterr()
    code, document = checked()
    assert (code, verdicts(document)) == (0, [("accepted", None)])
    alert.main(["list", "--json", "--db-path", database])
    assert len(json.loads(capsys.readouterr().out)) == 1, "no second alert"
