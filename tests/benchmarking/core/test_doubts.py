"""The table of doubts contains exactly the kinds that measuring and importing raise."""

from __future__ import annotations

import ast
import re

from benchmarking.core.doubts import IMPORTED, KINDS, SEVERITIES, doubt, evidence_words, sentence
from benchmarking.core.records import Doubt
from tests.helpers.paths import ROOT

PACKAGES = ("benchmarking", "db")
RAISERS = {"doubt", "_above", "_pages"}
RAISED = re.compile(rf"\b(?:{'|'.join(RAISERS)})\(")


def raised():
    """(kind, the function that is called for it, whether with a severity) of every call that raises a doubt by a name.
    Only importers give a severity, for kinds that are not in the table."""
    texts = (path.read_text(encoding="utf-8") for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    for text in filter(RAISED.search, texts):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                first = node.args[0]
                if node.func.id in RAISERS and isinstance(first, ast.Constant):
                    yield first.value, node.func.id, node.func.id == "doubt" and len(node.args) > 1


def test_raised_kinds_and_the_table_are_equal():
    found = list(raised())

    assert {kind for kind, _, is_imported in found if not is_imported} == KINDS.keys()
    assert {by for _, by, _ in found} == RAISERS


def test_doubts_have_the_severity_of_their_kind_and_evidence():
    assert doubt("noisy", share=0.2) == Doubt(kind="noisy", severity="noisy", evidence={"share": 0.2})
    assert doubt("wrong_output", kind="NaN").evidence == {"kind": "NaN"}


def test_every_kind_has_a_sentence_with_meaning_and_advice():
    for kind in KINDS.values():
        assert kind.severity in SEVERITIES
        assert kind.sentence == sentence(kind.name)
        assert kind.sentence[0].isupper(), kind.name
        assert ". " not in kind.sentence, kind.name
        assert kind.sentence.endswith("."), kind.name
        assert kind.sentence.count("; ") == 1, kind.name
    assert len({kind.meaning for kind in KINDS.values()}) == len(KINDS)


def test_evidence_is_said_in_words_with_its_unit_wherever_it_is_shown():
    evidence = {"lateness_p95_ms": 12.345678, "offered_per_s": 2, "reply_s": None, "is_cold": True, "launches": [0, 2]}
    told = ["lateness p95 12.35 ms", "offered 2/s", "reply unknown", "is cold yes", "kernels a, b", "found x=1, y=no"]
    assert evidence_words({**evidence, "kernels": ["a", "b"], "found": {"x": 1.0, "y": False}}) == told


def test_the_advice_to_use_fewer_threads_is_for_runs_with_several():
    """A sentence is about all results with the doubt, of which some had a single thread."""
    assert "fewer threads (--num-threads) where a run or its server has several" in KINDS["run_queue_wait"].advice
    assert [kind.name for kind in KINDS.values() if "--num-threads 1" in kind.advice] == []


def test_the_advice_to_time_more_calls_names_the_flag_of_a_profile_too():
    assert "--iterations, or --num-runs of a profile" in KINDS["few_samples"].advice
    for kind in KINDS.values():
        assert "--warmup-iterations" not in kind.advice or "a profile has no such flag" in kind.advice, kind.name


def test_every_doubt_of_an_importer_explains_itself():
    kinds = {kind for kind, _, is_imported in raised() if is_imported}
    assert kinds
    assert kinds - IMPORTED.keys() == set()


def test_kinds_of_another_version_are_named_in_words():
    assert sentence("another_tools") == "Another tools: noted by the program that wrote it."
