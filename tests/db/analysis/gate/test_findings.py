"""Verdicts of candidates made by hand, common changes of a session, and confirmation by a fresh one."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from benchmarking.core.metrics import JUDGED
from benchmarking.core.records import Point
from benchmarking.core.text import number
from db.analysis.gate.candidates import Candidate, SegmentRun
from db.analysis.gate.findings import counts, exit_code, judge_candidates, with_confirmation
from db.analysis.gate.gate import Case, judge_all
from db.analysis.gate.gate_text import gate_document, gate_markdown, gate_text, sentence

TODAY = datetime(2026, 3, 12, 2)
SEGMENT = tuple(
    SegmentRun(
        result_id=f"before {number}",
        session_id=f"session {number}",
        started_at=TODAY - timedelta(days=10 - number),
        git_commit=None,
        value=10 * math.exp(0.01 * (-1) ** number),
    )
    for number in range(10)
)


def candidate(value, model_id="bert", **fields):
    metric = JUDGED["latency_median_ms"]
    known = {
        "result_id": f"result of {model_id}",
        "run_id": "run",
        "session_id": "session",
        "series_id": model_id,
        "hardware_id": "machine",
        "started_at": TODAY,
        "git_commit": None,
        "device": "cpu",
        "device_name": None,
        "runtime": "eager",
        "precision": "float32",
        "point": Point(batch_size=1, sequence_length=32),
        "status": "ok",
        "error": None,
        "validity": "valid",
        "doubts": (),
        "missing": None,
        "accepted_as": None,
        "segment": SEGMENT,
        "earlier_segments": (),
        "metric": metric,
    }
    return Candidate(**{**known, **fields, "value": value, "model_id": model_id})


def test_a_rate_that_became_0_regressed():
    metric = JUDGED["throughput_samples_per_sec"]
    (finding, fine) = judge_candidates([candidate(0.0, metric=metric), candidate(10.0, "vit", metric=metric)])
    assert (finding.verdict, finding.judgement.relative_change, fine.verdict) == ("regressed", -1.0, "fine")
    assert "-100.0%" in gate_text([finding, fine])


def test_a_copy_of_the_judged_run_is_not_the_last_good_one():
    copy = replace(SEGMENT[-1], result_id="copy", started_at=TODAY, value=20.0)
    (finding,) = judge_candidates([candidate(20.0, segment=(*SEGMENT, copy))])
    assert finding.verdict == "regressed"
    assert gate_document([finding])["findings"][0]["last_good_result_id"] == SEGMENT[-1].result_id


def noisy_then(*changes):
    """A run a day: 33 that vary by 1 % around 10 ms, then these times 10 ms."""
    chance = random.Random(66)
    values = [*(math.exp(chance.gauss(0, 0.01)) for _ in range(33)), *changes]
    return tuple(
        SegmentRun(
            result_id=str(number),
            session_id=str(number),
            started_at=TODAY - timedelta(days=len(values) - number),
            git_commit=None,
            value=10 * value,
        )
        for number, value in enumerate(values)
    )


def test_runs_that_are_worse_together_begin_after_the_last_good_one():
    """No commit of a change of 3 % that is found at its third run is that of the last good run. Stored twice, a run is
    one of them."""
    runs = noisy_then(1.03, 1.03)
    for segment in (runs, (*runs, replace(runs[-1], result_id="copy", session_id="copy"))):
        (finding,) = judge_candidates([candidate(10.3, segment=segment)])
        assert (finding.verdict, finding.judgement.together) == ("regressed", 3)
        assert gate_document([finding])["findings"][0]["last_good_result_id"] == "32"


@pytest.mark.parametrize(("value", "verdict"), [(10.02, "fine"), (10.25, "regressed")])
def test_a_run_as_fast_as_ever_is_not_worse_however_bad_those_before_it_were(value, verdict):
    """After two runs of 3.5 % that no gate judged, the mean of three is still 2.4 % slower."""
    (finding,) = judge_candidates([candidate(value, segment=noisy_then(1.035, 1.035))])
    assert finding.verdict == verdict


def confirmed(finding, again, why_not=None):
    """The finding after its series was measured again."""
    newest = None if again is None else again.night
    case = Case(segments=finding.candidate.nights, newest=newest, metric=finding.candidate.metric)
    (judgement,) = judge_all([case], is_confirmation=True)
    return with_confirmation(finding, again, judgement, why_not)


def everything(slowdown, models="abcdef"):
    return judge_candidates(candidate(10 * slowdown, model) for model in models)


def test_all_models_slower_in_a_session_is_environment_and_still_exit_code_1():
    findings = everything(1.06)

    assert exit_code(findings) == 1
    text = gate_text(findings)
    assert "6 regressed: environment, not code?" in text.splitlines()
    assert (
        "environment, not code: 6 of 6 combinations of model, runtime and precision became worse, by 6.0% (median"
        in text
    )
    assert "**6 regressed: environment, not code?**" in gate_markdown(findings)
    assert gate_document(findings)["findings"][0]["environment"].startswith("6 of 6 combinations")


def test_the_range_that_is_expected_of_one_run_is_called_that_where_several_are_worse_together():
    finding, *_ = everything(2.0)
    assert "(one run)" not in gate_text([finding])
    several = replace(finding, judgement=replace(finding.judgement, together=2))
    assert f"{finding.judgement.high:.4g} (one run)" in gate_text([several])


@pytest.mark.parametrize(
    ("runs", "words"), [(10, "at most 9% of the checks, of fewer than 20 runs"), (20, "at most 5% of the checks")]
)
def test_the_share_of_false_alarms_is_that_of_so_many_runs(runs, words):
    start = TODAY - timedelta(days=40)
    segment = tuple(
        replace(SEGMENT[number % 10], session_id=f"session {number}", started_at=start + timedelta(days=number))
        for number in range(runs)
    )
    findings = judge_candidates([candidate(20.0, segment=segment), candidate(10.0, "vit", segment=segment)])
    assert f"(false alarms on {words})" in " ".join(gate_text(findings).split())


def test_series_without_a_finding_count_for_the_environment():
    findings = judge_candidates([candidate(11.0), *(candidate(10.19, model) for model in "abcde")])

    assert counts(findings) == {"regressed": 1, "fine": 5}
    assert findings[0].common_shift.groups == 6
    assert [finding.common_shift for finding in findings[1:]] == [None] * 5


def test_sessions_and_machines_are_judged_separately():
    apart = [candidate(10.6, model, session_id=model) for model in "abcdef"]

    assert all(finding.common_shift is None for finding in judge_candidates(apart))


def test_worst_comes_first():
    findings = judge_candidates(
        [candidate(10.0, "fine"), candidate(11.0, "bad"), candidate(12.0, "worst"), candidate(9.0, "good")]
    )

    assert [finding.candidate.model_id for finding in findings] == ["worst", "bad", "good", "fine"]


@pytest.mark.parametrize(
    ("fields", "verdict", "reason"),
    [
        ({"status": "timed_out", "error": "600 s"}, "failed", "timed out: 600 s (worked in 10 earlier runs)"),
        ({"status": "failed", "error": "no", "segment": ()}, "not enough data", "failed: no"),
        ({"status": "skipped", "error": "too big"}, "not enough data", "skipped: too big"),
        ({"validity": "invalid", "doubts": ("nan",)}, "unfit", "invalid: nan"),
        (
            {"missing": "too_few_samples"},
            "not enough data",
            "no latency_median_ms: too few samples: measure more calls (--iterations, or --num-requests of a load)",
        ),
        ({}, "not enough data", "no latency_median_ms: not measured"),
    ],
)
def test_a_candidate_without_a_value_has_a_reason(fields, verdict, reason):
    (finding,) = judge_candidates([candidate(None, **fields)])

    assert (finding.verdict, finding.reason) == (verdict, reason)
    assert sentence(finding) == reason


def test_a_very_noisy_result_is_judged_like_others():
    (finding,) = judge_candidates([candidate(11.0, validity="noisy", doubts=("very_noisy",))])

    assert finding.verdict == "regressed"


def test_only_a_reproduced_regression_is_confirmed():
    (finding,) = judge_candidates([candidate(11.0)])

    again = confirmed(finding, candidate(11.1, result_id="again"))
    assert (again.verdict, again.confirmation.value, again.confirmation_result_id) == ("regressed", 11.1, "again")
    gone = confirmed(finding, candidate(10.1, result_id="again"))
    assert (gone.verdict, exit_code([gone])) == ("not confirmed", 0)
    limit = number(gone.confirmation.high)
    assert gone.confirmation.high > gone.judgement.high
    assert f"in a fresh session 10.1 ms (confirmed above {limit})" in sentence(gone)
    text = " ".join(gate_text([gone]).split())
    assert f"10.1 confirmed above {limit} ms" in text
    assert "the limit by which a fresh session confirms is wider than the expected range" in text


@pytest.mark.parametrize(
    ("again", "why_not", "reason"),
    [
        (None, "another tool measured it", "another tool measured it"),
        (None, None, "its series was not measured"),
        (candidate(None, status="failed", error="no memory", validity=None), None, "no memory"),
        (candidate(11.0, validity="throttled", doubts=("heat",)), None, "throttled: heat"),
    ],
)
def test_an_unmeasurable_regression_stays_with_the_reason(again, why_not, reason):
    (finding,) = judge_candidates([candidate(11.0)])

    after = confirmed(finding, again, why_not)

    assert (after.verdict, after.reason) == ("regressed", f"could not be measured again: {reason}")


def test_an_unconfirmed_finding_has_no_environment_note():
    finding = everything(1.06)[0]

    assert confirmed(finding, candidate(10.0)).common_shift is None


def test_exit_codes():
    fine, none = judge_candidates([candidate(10.0), candidate(None)])

    assert exit_code([fine]) == exit_code([fine, none]) == 0
    assert exit_code([none]) == 3
    assert exit_code([*judge_candidates([candidate(11.0)]), none]) == 1
    assert exit_code(judge_candidates([candidate(None, status="failed", error="no")])) == 1
