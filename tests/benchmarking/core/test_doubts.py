"""The table of doubts contains exactly the kinds that measuring raises."""

from __future__ import annotations

import ast
from pathlib import Path

import benchmarking
from benchmarking.core.doubts import KINDS, SEVERITIES, doubt, sentence
from benchmarking.core.records import Doubt

RAISERS = {"doubt", "_above", "_any", "_pages"}


def raised():
    """(kind, the function that is called for it) of every call in the package that raises a doubt by a name."""
    for path in Path(benchmarking.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                first = node.args[0]
                if node.func.id in RAISERS and isinstance(first, ast.Constant):
                    yield first.value, node.func.id


def test_raised_kinds_and_the_table_are_equal():
    found = list(raised())

    assert {kind for kind, _ in found} == KINDS.keys()
    assert {by for _, by in found} == RAISERS


def test_doubts_have_the_severity_of_their_kind_and_evidence():
    assert doubt("noisy", share=0.2) == Doubt(kind="noisy", severity="noisy", evidence={"share": 0.2})
    assert doubt("wrong_output", kind="NaN").evidence == {"kind": "NaN"}


def test_every_kind_has_a_sentence_with_meaning_and_advice():
    for kind in KINDS.values():
        assert kind.severity in SEVERITIES
        assert kind.sentence == sentence(kind.name)
        assert kind.sentence[0].isupper(), kind.name
        assert kind.sentence.count(".") == 1, kind.name
        assert kind.sentence.endswith("."), kind.name
        assert kind.sentence.count("; ") == 1, kind.name
    assert len({kind.meaning for kind in KINDS.values()}) == len(KINDS)


def test_unknown_kinds_refer_to_their_evidence():
    assert sentence("another_tools") == "See the evidence in the run file."
