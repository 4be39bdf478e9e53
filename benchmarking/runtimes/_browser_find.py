"""Finds a browser of the Chromium family on this machine. Nothing is ever downloaded."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

NAMED_BY = "BENCHHOUSE_BROWSER"
"""Environment variable with the path of the browser to take."""

NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
    "chrome",
    "microsoft-edge-stable",
    "microsoft-edge",
    "msedge",
)
"""What packages call the program, in the order they are looked for on PATH."""

MACOS = ("Google Chrome", "Chromium", "Microsoft Edge")
"""Applications, in /Applications or the user's own."""
WINDOWS = (
    ("Google", "Chrome", "Application", "chrome.exe"),
    ("Chromium", "Application", "chrome.exe"),
    ("Microsoft", "Edge", "Application", "msedge.exe"),
)
"""Under one of the folders for programs."""
WINDOWS_FOLDERS = ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA")

INSTALL: Mapping[str, str] = {
    "linux": "install Chromium (apt-get install chromium) or Google Chrome",
    "darwin": "install Google Chrome (brew install --cask google-chrome)",
    "win32": "install Google Chrome or Microsoft Edge",
}


def find_browser(environment: Mapping[str, str] | None = None, platform: str = sys.platform) -> Path | None:
    """The browser that `$BENCHHOUSE_BROWSER` names, else the first that is found; None when there is none."""
    environment = os.environ if environment is None else environment
    named = environment.get(NAMED_BY)
    if named:
        path = Path(named).expanduser()
        return path if path.is_file() else None
    return next((path for path in _candidates(environment, platform) if path.is_file()), None)


def why_no_browser(environment: Mapping[str, str] | None = None, platform: str = sys.platform) -> str | None:
    """None, or what to do about there being none."""
    environment = os.environ if environment is None else environment
    if find_browser(environment, platform) is not None:
        return None
    if environment.get(NAMED_BY):
        return f"{NAMED_BY} names {environment[NAMED_BY]}, which is no file"
    return f"no Chromium, Chrome or Edge found: {INSTALL.get(platform, INSTALL['linux'])}, or name it in {NAMED_BY}"


def _candidates(environment: Mapping[str, str], platform: str) -> Iterator[Path]:
    for name in NAMES:
        found = shutil.which(name, path=environment.get("PATH"))
        if found is not None:
            yield Path(found)
    if platform == "darwin":
        for application in MACOS:
            for folder in (Path("/Applications"), Path("~/Applications").expanduser()):
                yield folder / f"{application}.app" / "Contents" / "MacOS" / application
    if platform == "win32":
        for variable in WINDOWS_FOLDERS:
            if environment.get(variable):
                yield from (Path(environment[variable], *parts) for parts in WINDOWS)
