"""A model that is a graph file: an `.onnx` file, an OpenVINO `.xml` file, or a folder with one that was exported by an
earlier version. Folders exported by this version name their model (`exported_folder`).

Only its graph is known, so inputs are made from the graph's shapes and types, and from what the user says about them
(`graph_inputs`). The file may be untrusted: it is read by a separate process (`graph_contents`), and the measured file
is a copy in the build cache of the checked contents.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.child_process import ChildError, run_module_json
from benchmarking.core.contracts import FamilyOperation
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.model_contracts import Recipe, WorkloadFamily
from benchmarking.core.records import Json, Point, Precision, Scalar, Workload, canonical_hash
from benchmarking.core.untrusted.redaction import redacted_path
from benchmarking.workloads.support import graph_inputs
from benchmarking.workloads.support.graph_contents import (
    MODULE,
    PRECISION,
    SUFFIXES,
    TIME_LIMIT_S,
    WEIGHTS,
    check_same_folder,
    hash_into,
)
from benchmarking.workloads.support.graph_inputs import NO_CHOICES, GraphChoices, inputs_of

if TYPE_CHECKING:
    import numpy as np

TASK = "graph"
MANIFEST = "bundle.json"
"""Names of manifest files in exported folders."""
DEFAULT_SEQUENCE, DEFAULT_IMAGE = 128, 224


class GraphFileFamily(WorkloadFamily):
    """The family of graph files. It is not a plugin, since no configuration names it."""

    name = TASK
    model_types = frozenset()
    tasks = (TASK,)

    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        kinds = {kind for _, kind in graph_inputs.free_dimensions(workload)}
        defaults = {"sequence_length": (DEFAULT_SEQUENCE,), "image_size": (DEFAULT_IMAGE,)}
        return {name: values for name, values in defaults.items() if name in kinds}

    def only_batch_size(self, workload: Workload) -> int | None:
        if (fixed := graph_inputs.fixed_batch(workload)) is not None:
            return fixed
        if any(kind == "batch_size" for _, kind in graph_inputs.free_dimensions(workload)):
            return None
        first = [graph_input.shape[0] for graph_input in inputs_of(workload) if graph_input.shape]
        return first[0] if first and isinstance(first[0], int) and first[0] > 0 else 1

    def check(self, workload: Workload, point: Point) -> str | None:
        only = self.only_batch_size(workload)
        if only is not None and point.batch_size != only:
            return f"{workload.model_id} has a fixed batch size: use --batch-sizes {only}"
        return None

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        return graph_inputs.arrays(workload, point, seed)

    def recipe(self, workload: Workload) -> Recipe | str:
        return Recipe(plan="forward", exporter="the file itself")

    def model_class(self, workload: Workload) -> Any:
        raise _no_torch_error(workload)

    def build(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> Any:
        raise _no_torch_error(workload)

    def load(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> tuple[Any, tuple[str, ...]]:
        raise _no_torch_error(workload)

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        raise _no_torch_error(workload)


FAMILY = GraphFileFamily()


def graph_file_of(model_id: str) -> Path | None:
    """The graph file named by a model id: the file itself, or the only graph of an exported folder; None for anything
    else.

    Raises UsageError for an export of several graphs that does not name their model.
    """
    path = Path(model_id).expanduser()
    if path.suffix in SUFFIXES and path.is_file():
        return path.absolute()
    if not (path / MANIFEST).is_file() or any(path.glob("*.safetensors")):
        return None
    graphs = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if len(graphs) != 1:
        raise UsageError(
            f"--model-id {model_id} is an export of {len(graphs)} graphs by an earlier version, whose {MANIFEST} does "
            "not name the model: export it again, or give a single graph file"
        )
    return graphs[0].absolute()


def graph_file_workload(
    model_id: str, path: Path, *, task: str | None, seed: int, choices: GraphChoices = NO_CHOICES
) -> Workload:
    """A graph file as a workload, with the user's choices of its inputs. Raises UsageError for a task, for a rejected
    file, and for choices that do not fit the graph."""
    if task not in (None, TASK):
        raise UsageError(f"--task {task}: {model_id} is a graph file, whose task is unknown: omit --task")
    try:
        config: dict[str, Json] = run_module_json(MODULE, input_text=json.dumps(str(path)), limit_s=TIME_LIMIT_S)
    except ChildError as error:
        raise UsageError(f"--model-id {model_id}: {error}") from error
    config = graph_inputs.with_choices(config, choices, model_id)
    count = config.get("parameter_count")
    return Workload(
        model_id=redacted_path(model_id),
        family=None,
        task=TASK,
        source="file",
        config=config,
        config_hash=canonical_hash(config),
        weights="given",
        seed=seed,
        path=str(path),
        parameter_count=count if isinstance(count, int) else None,
    )


def format_of(workload: Workload) -> str:
    """The format of a graph file."""
    return str(workload.config["format"])


def why_not_precision(workload: Workload, precision: Precision) -> str | None:
    """None, or why a graph file is not of this precision: its weights are of another one, read from the file, and the
    runtimes convert only float32 graphs."""
    stored = workload.config.get(PRECISION)
    if stored is None or stored == precision:
        return None
    counts: Any = workload.config.get(WEIGHTS, {})
    values = ", ".join(f"{count} x {name}" for name, count in counts.items())
    return f"the weights of {workload.model_id} are {stored} ({values}): use --precision {stored}"


def copy_checked(workload: Workload, folder: Path) -> Path:
    """Copy a graph file and its weights into a folder and return the copy. Raises BenchhouseError if it differs from
    its description."""
    source, digest = Path(workload.path or ""), hashlib.sha256()
    names: Any = workload.config["files"]
    for name in names:
        check_same_folder(source, name)
        shutil.copyfile(source.parent / name, folder / name, follow_symlinks=False)
        hash_into(digest, folder / name)
    if digest.hexdigest() != workload.config["sha256"]:
        raise BenchhouseError(f"{source} has changed since the start of the run: run again")
    return folder / source.name


def _no_torch_error(workload: Workload) -> UnsupportedError:
    return UnsupportedError(f"{workload.model_id} is a graph file, which has no torch model")
