"""Paths of files that tests use."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
"""The checkout."""
FIXTURES = TESTS / "fixtures"
"""Recorded files of devices, models and other programs."""
