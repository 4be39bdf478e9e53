"""What builds of a model have in common: the model's part of their keys, and what is said of several together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarking.builds.store import Build
from benchmarking.records import Json, Workload

WEIGHT_FILES = "**/*.safetensors"


def model_parts(workload: Workload) -> dict[str, Json]:
    """The parts of a key that say which model with which weights.

    A local folder's weight files count with their sizes and times of change: its revision is made of names and sizes,
    which stay the same when somebody trains on and saves over them.
    """
    parts: dict[str, Json] = {
        "model_id": workload.model_id,
        "config_hash": workload.config_hash,
        "task": workload.task,
        "weights": workload.weights,
        "revision": workload.revision,
        "seed": workload.seed,
    }
    if workload.source == "local" and workload.path is not None and workload.weights == "pretrained":
        folder = Path(workload.path)
        files = [(file.relative_to(folder).as_posix(), file.stat()) for file in sorted(folder.glob(WEIGHT_FILES))]
        parts["files"] = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in files]
    return parts


def together(kind: str, made: Sequence[tuple[Build, bool]]) -> dict[str, Json]:
    """What there is to know of builds, each with whether it was made now: the first one's facts and `digest`, all
    `digests`, `build_s` and `size_bytes` as sums, and `is_new` when any is. The shape of `Preparation.build`."""
    builds = [build for build, _ in made]
    facts: Mapping[str, Json] = builds[0].facts
    return {
        **facts,
        "kind": kind,
        "digest": builds[0].digest,
        "digests": [build.digest for build in builds],
        "build_s": sum(build.build_s for build in builds),
        "size_bytes": sum(build.size_bytes for build in builds),
        "is_new": any(is_new for _, is_new in made),
    }
