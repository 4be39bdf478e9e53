"""What the gate found, as JSON has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarking.records import to_json
from db.analysis.findings import Finding, counts, exit_code
from db.analysis.gate import DETECTOR, DETECTOR_VERSION, Parameters

SUBJECT = (
    *("result_id", "run_id", "session_id", "series_id", "hardware_id", "git_commit"),
    *("model_id", "device", "device_name", "runtime", "precision", "status", "validity"),
)


def gate_document(findings: Sequence[Finding], parameters: Parameters) -> dict[str, Any]:
    """All findings, worst first, with the exit code they lead to."""
    return {
        "detector": DETECTOR,
        "detector_version": DETECTOR_VERSION,
        "parameters": asdict(parameters),
        "exit_code": exit_code(findings),
        "counts": counts(findings),
        "findings": [_finding(finding) for finding in findings],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    candidate = finding.candidate
    last_good = candidate.segment[-1] if candidate.segment else None
    return {
        "verdict": finding.verdict,
        "why": finding.why,
        **{name: getattr(candidate, name) for name in SUBJECT},
        "point": to_json(candidate.point),
        "metric": candidate.metric.column,
        "unit": candidate.metric.unit,
        "value": candidate.value,
        "doubts": list(candidate.doubts),
        "judgement": to_json(finding.judgement),
        "again": to_json(finding.again),
        "again_result_id": finding.again_result_id,
        "last_good_result_id": None if last_good is None else last_good.result_id,
        "last_good_commit": None if last_good is None else last_good.git_commit,
        "environment": None if finding.together is None else finding.together.text,
        "measure_again": finding.repeat,
    }
