"""Where a run comes from: the commit of the working folder, the versions, the command."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata

from benchmarking import __version__
from benchmarking.core.records import Provenance

PACKAGES = (
    "torch",
    "transformers",
    "diffusers",
    "tokenizers",
    "safetensors",
    "numpy",
    "onnxruntime",
    "onnxruntime-gpu",
    "openvino",
    "nvidia-ml-py",
)
"""Packages whose version may change a number; those that are not installed are left out."""

GIT_TIMEOUT_S = 5.0


def provenance(command: Sequence[str], tags: Mapping[str, str], description: str | None) -> Provenance:
    """The provenance of a run that starts now in the working folder."""
    commit = _git("rev-parse", "HEAD")
    status = _git("status", "--porcelain", "--untracked-files=no") if commit else None
    return Provenance(
        tool_version=__version__,
        command=tuple(command),
        host=platform.node(),
        git_commit=commit,
        git_branch=_git("rev-parse", "--abbrev-ref", "HEAD") if commit else None,
        git_dirty=None if status is None else bool(status),
        git_commit_time=_utc(_git("show", "-s", "--format=%cd", "--date=unix", "HEAD")) if commit else None,
        versions=versions(),
        tags=dict(tags),
        description=description,
    )


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that matter, read without importing them."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _git(*arguments: str) -> str | None:
    """What git says, or None without git, outside a repository, or when it takes too long."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _utc(unix_seconds: str | None) -> str | None:
    """Seconds since 1970 as UTC, ISO 8601."""
    if not unix_seconds:
        return None
    from datetime import UTC, datetime

    return datetime.fromtimestamp(int(unix_seconds), UTC).isoformat().replace("+00:00", "Z")
