"""Models in Hugging Face's cache and on its hub.

`look_up` and `fetch_...` run `main` in a child process, which prints JSON: huggingface_hub is too heavy for the
supervisor, which must not hang on a name that does not resolve.

`cached_models` lists the cache's folders, which is faster than the library:

    <hub cache>/models--<owner>--<name>/{blobs, refs, snapshots/<commit>/<file: a link to a blob, or the blob>}

The layout is documented in huggingface_hub's "Understand caching".
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarking.core.child_process import ChildError, ChildTimeLimitError, run_module_json
from benchmarking.core.errors import BenchhouseError, first_line, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.untrusted.redaction import without_secrets
from benchmarking.workloads.support.configuration import CONFIG_FILES, DENOISERS, has_config, model_folder
from benchmarking.workloads.support.processing import HUB_FILES, has_processors

NAME_PATTERN = re.compile(r"(\w([\w.-]*\w)?/)?\w([\w.-]*\w)?", re.ASCII)
MAX_NAME_LENGTH = 96

HUB_CACHE = "HF_HUB_CACHE"
"""The environment variable with the folder of the hub's cache."""
LOOK_UP_LIMIT_S = 20.0
"""Time limit for the imports, the cache, and the hub's response about one small file."""

ANSWER_LIMIT_S = 5.0
"""Time limit for the hub's first response; after that it counts as unreachable."""

NOT_CACHED = "it is not in the local cache, and HF_HUB_OFFLINE is set"

WEIGHT_FILES = ["model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors"]

WEIGHT_FILES += [
    f"{folder}diffusion_pytorch_model{ending}"
    for folder in ("", *(f"{name}/" for name in DENOISERS))
    for ending in (".safetensors", ".safetensors.index.json", "-*-of-*.safetensors")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """A model found in the cache or on the hub."""

    path: Path | None = None
    """Folder of the snapshot of a model or pipeline; None if it was not found."""
    revision: str | None = None
    """The hub's commit."""
    why_not: str | None = None
    """Why there is no folder, or why its weights could not be fetched."""


def may_be_hub_name(name: str) -> bool:
    """Whether this could be a model's name on the hub: "model" or "owner/model"."""
    return NAME_PATTERN.fullmatch(name) is not None and len(name) <= MAX_NAME_LENGTH


def look_up(name: str) -> HubModel:
    """The model's configuration, from the cache or the hub, within `LOOK_UP_LIMIT_S`."""
    if is_offline() and not (hub_cache_dir() / f"{PREFIX}{name.replace('/', '--')}").is_dir():
        return HubModel(why_not=NOT_CACHED)
    return _run_child("look-up", name, limit_s=LOOK_UP_LIMIT_S)


def fetch_processors(name: str, revision: str) -> HubModel:
    """The files of the model's tokenizer and processors at a commit, from the cache or the hub. They are optional:
    without them a model runs on seeded inputs."""
    return _run_child("processors", name, revision, limit_s=LOOK_UP_LIMIT_S)


def fetch_weights(name: str, revision: str) -> HubModel:
    """The model's safetensors weights at a commit, with the files of its tokenizer and processors, from the cache or
    the hub, without a time limit.

    Progress goes to stderr. The folder may be set even if there is a `why_not`.
    """
    return _run_child("weights", name, revision, limit_s=None)


def is_offline() -> bool:
    """Whether `HF_HUB_OFFLINE` forbids requests to the hub."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def _run_child(*arguments: str, limit_s: float | None) -> HubModel:
    try:
        answer = run_module_json("benchmarking.workloads.support.hub", *arguments, limit_s=limit_s, show_stderr=True)
    except ChildTimeLimitError:
        return HubModel(why_not=f"the hub did not answer within {limit_s:g} s")
    except ChildError as error:
        raise BenchhouseError(f"looking up {arguments[1]} on the hub failed: {error}") from error
    path = answer["path"]
    return HubModel(path=None if path is None else Path(path), revision=answer["revision"], why_not=answer["why_not"])


def main(arguments: Sequence[str]) -> int:
    """Run `look-up NAME`, `processors NAME REVISION` or `weights NAME REVISION`, and print one line of JSON."""
    actions: Mapping[str, Callable[..., tuple[str | None, str | None]]] = {
        "look-up": _look_up,
        "processors": _processors,
        "weights": _weights,
    }
    path, why_not = actions[arguments[0]](*arguments[1:])
    revision = None if path is None else Path(path).name
    print(json.dumps({"path": path, "revision": revision, "why_not": why_not}))
    return 0


def _look_up(name: str) -> tuple[str | None, str | None]:
    path, why_not = _snapshot(name, CONFIG_FILES, local_files_only=True)
    if path is not None and has_config(model_folder(Path(path))):
        return path, None
    if is_offline():
        return None, NOT_CACHED
    path, why_not = _snapshot(name, CONFIG_FILES, local_files_only=False)
    if path is None or has_config(model_folder(Path(path))):
        return path, why_not
    return None, "the model on the hub has no config.json"


def _processors(name: str, revision: str) -> tuple[str | None, str | None]:
    path, why_not = _snapshot(name, HUB_FILES, revision=revision, local_files_only=True)
    if is_offline() or (path is not None and has_processors(Path(path))):
        return path, why_not
    fetched, why_not = _snapshot(name, HUB_FILES, revision=revision, local_files_only=False)
    return fetched or path, why_not


def _weights(name: str, revision: str) -> tuple[str | None, str | None]:
    from benchmarking.workloads.support.weights import weight_files

    path, why_not = _snapshot(name, WEIGHT_FILES, revision=revision, local_files_only=True)
    try:
        if path is not None and weight_files(model_folder(Path(path))):
            _processors(name, revision)
            return path, None
    except BenchhouseError as error:
        why_not = str(error)  # incomplete in the cache: complete it from the hub
    if is_offline():
        return path, f"the local cache lacks weights ({why_not or 'no safetensors'}), and HF_HUB_OFFLINE is set"
    fetched, why_not = _snapshot(name, (*WEIGHT_FILES, *HUB_FILES), revision=revision, local_files_only=False)
    return fetched or path, why_not


def _snapshot(name: str, patterns: Sequence[str], **options: Any) -> tuple[str | None, str | None]:
    """The folder of the snapshot, or the reason that there is none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        path: str = snapshot_download(name, allow_patterns=list(patterns), etag_timeout=ANSWER_LIMIT_S, **options)
    except GatedRepoError:
        return None, "access requires an account: run hf auth login"
    except RepositoryNotFoundError:
        return None, "the hub has no such model, or it is private: run hf auth login"
    except LocalEntryNotFoundError as error:
        return None, f"it is not in the local cache, and the hub is not reachable ({_short(error.__cause__ or error)})"
    except HFValidationError as error:
        return None, f"it is not a valid name on the hub: {_short(error)}"
    except (HfHubHTTPError, OSError) as error:
        return None, f"the hub returned an error: {_short(error)}"
    return path, None


def _short(error: BaseException) -> str:
    return without_secrets(first_line(error))[:200]


PREFIX = "models--"
WEIGHT_SUFFIX = ".safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModel:
    """A model in the hub's cache."""

    model_id: str
    folder: Path
    size_bytes: int
    """Bytes on disk over all commits, counting shared files once."""
    weights_bytes: int
    """Bytes of the newest commit's safetensors files; 0 if there are none."""
    revisions: tuple[str, ...]
    """Commits, newest first."""


def hub_cache_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of the hub's cache: $HF_HUB_CACHE, else hub in $HF_HOME, else in the user's cache."""
    cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
    home = environment.get("HF_HOME") or os.path.join(cache, "huggingface")
    folder = environment.get(HUB_CACHE) or environment.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    return Path(os.path.expandvars(os.path.expanduser(folder)))


def cached_models(folder: Path) -> tuple[CachedModel, ...]:
    """The models with a commit in the cache, by name. Raises StorageError if the cache cannot be read."""
    if not folder.is_dir():
        return ()
    with storage_errors(f"cannot read the hub's cache {folder}"):
        models: list[CachedModel] = []
        for entry in sorted(folder.glob(f"{PREFIX}*")):
            if (entry / "snapshots").is_dir():
                commits = [commit for commit in (entry / "snapshots").iterdir() if commit.is_dir()]
                commits.sort(key=lambda commit: commit.stat().st_mtime, reverse=True)
                newest = [file for commit in commits[:1] for file in commit.rglob(f"*{WEIGHT_SUFFIX}")]
                files = [Path(parent) / name for parent, _, names in os.walk(entry) for name in names]
                models.append(
                    CachedModel(
                        model_id=entry.name.removeprefix(PREFIX).replace("--", "/"),
                        folder=entry,
                        size_bytes=sum(file.lstat().st_size for file in files if not file.is_symlink()),
                        # A link may be broken.
                        weights_bytes=sum(file.stat().st_size for file in newest if file.exists()),
                        revisions=tuple(commit.name for commit in commits),
                    )
                )
    return tuple(model for model in models if model.revisions)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
