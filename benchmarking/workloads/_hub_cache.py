"""Which models lie in Hugging Face's cache, read from its folders: asking its library takes longer than a listing may.

    <hub cache>/models--<owner>--<name>/{blobs, refs, snapshots/<commit>/<file: a link to a blob, or the blob>}

The layout is documented in huggingface_hub's "Understand caching".
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarking.errors import StorageError

PREFIX = "models--"
WEIGHT_SUFFIX = ".safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModel:
    """A model in the hub's cache."""

    model_id: str
    folder: Path
    size_bytes: int
    """On disk, all commits together, shared files once."""
    weights_bytes: int
    """Of the safetensors files of the newest commit; 0 where there are none."""
    revisions: tuple[str, ...]
    """Commits, the newest first."""


def hub_cache_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the hub's library keeps its cache: $HF_HUB_CACHE, else hub below $HF_HOME, else below the user's cache."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(name):
            return Path(environment[name]).expanduser()
    if environment.get("HF_HOME"):
        return Path(environment["HF_HOME"]).expanduser() / "hub"
    cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "huggingface" / "hub"


def cached_models(folder: Path) -> tuple[CachedModel, ...]:
    """The models with a commit in the cache, by name. Raises StorageError when it cannot be read."""
    if not folder.is_dir():
        return ()
    try:
        found = [_model(entry) for entry in sorted(folder.glob(f"{PREFIX}*")) if (entry / "snapshots").is_dir()]
    except OSError as error:
        raise StorageError(f"cannot read the hub's cache {folder}: {error.strerror}") from error
    return tuple(one for one in found if one.revisions)


def _model(folder: Path) -> CachedModel:
    commits = [entry for entry in (folder / "snapshots").iterdir() if entry.is_dir()]
    commits.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    newest = commits[:1]
    return CachedModel(
        model_id=folder.name.removeprefix(PREFIX).replace("--", "/"),
        folder=folder,
        size_bytes=_on_disk(folder),
        weights_bytes=sum(_size(file) for commit in newest for file in commit.rglob(f"*{WEIGHT_SUFFIX}")),
        revisions=tuple(commit.name for commit in commits),
    )


def _on_disk(folder: Path) -> int:
    """Bytes of the files themselves: the snapshots' links to them count nothing."""
    files = (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)
    return sum(file.lstat().st_size for file in files if not file.is_symlink())


def _size(file: Path) -> int:
    """A file's size through its link; 0 for a link whose blob is gone."""
    return file.stat().st_size if file.exists() else 0
