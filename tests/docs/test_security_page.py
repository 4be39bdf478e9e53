"""The page about security names the test of each of its lines, and only tests that there are."""

from __future__ import annotations

import re

from tests.helpers.paths import ROOT

TEXT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(test_\w+)`")
CLAIM = re.compile(r"^- .*(?:\n  .*)*", re.MULTILINE)
SUBJECTS = ("model's folder", "run file", "unfinished run", "database", "Another tool", "build cache", "working folder")


def defined() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found |= set(re.findall(r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE))
    return found


def test_every_test_that_it_names_exists():
    named = set(NAMED.findall(TEXT))
    assert len(named) > 80
    assert named - defined() == set()


def test_every_claim_names_its_test():
    rules, subjects = TEXT.split("\n## ", 1)
    claims = CLAIM.findall(subjects)
    assert len(CLAIM.findall(rules)) == 3
    assert len(claims) > 40
    assert [claim for claim in claims if not NAMED.search(claim)] == []


def test_every_kind_of_thing_from_others_has_a_section():
    headings = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    assert [subject for subject in SUBJECTS if not any(subject in heading for heading in headings)] == []
