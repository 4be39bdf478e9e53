"""The file that a command writes its results to, in addition to run files and the database."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

from benchmarking.core.errors import StorageError, UsageError
from benchmarking.core.records import Json
from benchmarking.core.untrusted.redaction import redacted
from benchmarking.sweep.run import journal, spool

AUTO = "auto"
"""The value of `--output` for a name that is made here."""
RESULTS_DIR = "results"


def checked(output: str, kind: str, model_id: str) -> Path:
    """The file of `--output`, checked before anything is measured; `auto` is results/KIND_MODEL_TIME.json. Its folder
    is made when it is written. Raises UsageError if it cannot be."""
    if output == AUTO:
        model = spool.safe_part(Path(model_id).name)
        path = Path(RESULTS_DIR) / f"{kind}_{model}_{datetime.now():%Y%m%d_%H%M%S}.json"
    else:
        path = Path(output)
    if path.is_dir():
        raise UsageError(f"--output {output} is a folder: give a file, such as {path / 'results.json'}")
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    if existing != path and not existing.is_dir():
        raise UsageError(f"--output {output}: {existing} is a file: choose another path")
    if not os.access(existing, os.W_OK):
        raise UsageError(f"--output {output}: no permission to write to {existing}: choose another path")
    return path


def write(path: Path, document: Json) -> None:
    """Write a document as JSON, without secrets. Raises StorageError."""
    spool.prepare(path.parent)
    try:
        journal.replace(path, json.dumps(redacted(document), ensure_ascii=False, allow_nan=False, indent=1) + "\n")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}; choose another path") from error
