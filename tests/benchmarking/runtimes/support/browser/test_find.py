"""Finding a browser by name and place of installation, and the reason if there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarking.runtimes.support.browser.browser import find_browser, why_no_browser


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Path]:
    """A function that creates a program on the PATH."""

    def make(*parts):
        path = tmp_path.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path

    return make


def test_the_named_browser_is_taken(program):
    named, other = program("mine", "browser"), program("bin", "chromium")
    environment = {"BENCHHOUSE_BROWSER": str(named), "PATH": str(other.parent)}
    assert find_browser(environment, "linux") == named
    assert why_no_browser(environment, "linux") is None


def test_a_missing_named_browser_is_not_replaced_by_another(program, tmp_path):
    other = program("bin", "chromium")
    environment = {"BENCHHOUSE_BROWSER": str(tmp_path / "absent"), "PATH": str(other.parent)}
    assert find_browser(environment, "linux") is None
    assert (
        why_no_browser(environment, "linux") == f"BENCHHOUSE_BROWSER names {tmp_path / 'absent'}, which is not a file"
    )


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome", "microsoft-edge"])
def test_packages_names_are_known(program, name):
    path = program("bin", name)
    assert find_browser({"PATH": str(path.parent)}, "linux") == path


def test_chromium_comes_before_edge(program):
    edge, chromium = program("bin", "microsoft-edge"), program("bin", "chromium")
    assert find_browser({"PATH": str(edge.parent)}, "linux") == chromium


def test_windows_programs_are_found_in_their_folders(program, tmp_path):
    path = program("Program Files", "Microsoft", "Edge", "Application", "msedge.exe")
    environment = {"PATH": "", "PROGRAMFILES": str(tmp_path / "Program Files")}
    assert find_browser(environment, "win32") == path


def test_macos_applications_of_the_user_are_found(program, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    path = program("Applications", "Chromium.app", "Contents", "MacOS", "Chromium")
    if Path("/Applications/Google Chrome.app").exists():
        pytest.skip("this machine has Chrome for all users, which comes first")
    assert find_browser({"PATH": ""}, "darwin") == path


@pytest.mark.parametrize(
    ("platform", "word"), [("linux", "apt-get install chromium"), ("win32", "Edge"), ("freebsd", "Chromium")]
)
def test_without_a_browser_the_reason_has_the_install_command(tmp_path, platform, word):
    why = why_no_browser({"PATH": str(tmp_path)}, platform)
    assert why is not None
    assert why.startswith("no Chromium, Chrome or Edge found: install")
    assert word in why
    assert "BENCHHOUSE_BROWSER" in why
