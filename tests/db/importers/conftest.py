"""Edited copies of recorded files."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def edited(tmp_path):
    """Applies a function to the JSON in a file; returns the path of an edited copy."""

    def edit(path, change):
        data = json.loads(path.read_text())
        change(data)
        copy = tmp_path / "changed.json"
        copy.write_text(json.dumps(data))
        return copy

    return edit
