"""A model that is a graph file: an `.onnx` file, an OpenVINO `.xml` file, or a folder with one that was exported by an
earlier version. Folders exported by this version name their model (`exported_folder`).

The file may be untrusted: it is read by a separate process (`graph_contents`), and the measured file is a copy in the
build cache of the checked contents. Only its graph is known, so inputs are made from the graph's shapes and types, and
from what the user says about them. The first free dimension of an input is the batch, and so is the middle one of a
recurrent state; dimensions named after height or width are the image's, those named after the past are 0, and any other
free dimension is the sequence. Values are random; integers stay below the number of rows in the table that they index.

`GraphChoices` replaces these guesses. What was chosen is part of the workload's configuration, so that results with
different inputs are different series; `chosen_text` says what is guessed without.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from benchmarking.builds.store import BuildKey, BuildStore
from benchmarking.core.child_process import ChildError, run_module_json
from benchmarking.core.contracts import FamilyOperation
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.model_contracts import Recipe, WorkloadFamily
from benchmarking.core.records import Json, Point, Precision, Scalar, Workload, canonical_hash
from benchmarking.core.untrusted.redaction import redacted_folder
from benchmarking.graphs.bundle import weights_of
from benchmarking.workloads.support.graph_contents import (
    ARRAYS,
    MODULE,
    PARAMETERS,
    PRECISION,
    SUFFIXES,
    TIME_LIMIT_S,
    WEIGHTS,
    check_same_folder,
    hash_into,
)

DIMENSIONS, VALUES, FILE = "dims", "input_values", "inputs_file"
"""Keys of a workload's configuration with the user's choices; absent without any."""
BATCH, BATCH_SIZE, PAST = "batch", "batch_size", "past"
INPUTS_KIND, INPUTS_FILE = "inputs", "inputs.npz"
DEFAULT_ROWS = 100
"""Upper limit of integers whose use is unknown."""
IMAGE_SIDES = re.compile(r"height|width|(^|_)[hw]$", re.IGNORECASE)
STATES = re.compile(r"state|hidden|(^|_)[hc](_?\d+|_?in)?$", re.IGNORECASE)
"""Names of recurrent states, whose layout is layers x batch x width."""
SAMPLED = ("float16", "float32", "float64", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    name: str
    dtype: str
    """numpy's name."""
    shape: tuple[int | str, ...]
    rows: int | None = None
    """Rows of the table that it indexes; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphChoices:
    """What the user says about a graph's inputs."""

    dimensions: Mapping[str, int | str] = field(default_factory=dict)
    """Sizes of free dimensions by name, or "batch" for one that is the batch."""
    values: Mapping[str, float] = field(default_factory=dict)
    """A value for all elements of an input, by input."""
    file: str | None = None
    """A .npz file with whole inputs by name, which also fix the sizes of their dimensions."""

    def __bool__(self) -> bool:
        return bool(self.dimensions or self.values or self.file)


NO_CHOICES = GraphChoices()


def inputs_of(workload: Workload) -> tuple[Input, ...]:
    return _inputs(workload.config)


def _inputs(config: Mapping[str, Json]) -> tuple[Input, ...]:
    listed: Any = config["inputs"]
    return tuple(Input(**{**described, "shape": tuple(described["shape"])}) for described in listed)


def is_graph_file(workload: Workload) -> bool:
    return workload.source == "file" and workload.family is None


def choices_of(workload: Workload) -> GraphChoices:
    """The choices in a graph file's configuration, to describe the same file again elsewhere. The arrays of a file of
    inputs come from this machine's build cache. Raises BenchhouseError if they are not there."""
    if not is_graph_file(workload):
        return NO_CHOICES
    file: Any = workload.config.get(FILE)
    sizes: Any = workload.config.get(DIMENSIONS, {})
    values: Any = workload.config.get(VALUES, {})
    path = None if file is None else str(_stored(workload.model_id, file))
    return GraphChoices(dimensions=sizes, values=values, file=path)


def with_choices(config: dict[str, Json], choices: GraphChoices, model_id: str) -> dict[str, Json]:
    """The configuration with the user's choices. Raises UsageError for a name that the graph does not have, and for a
    size, value or array that does not fit it."""
    if not choices:
        return config
    inputs = {entry.name: entry for entry in _inputs(config)}
    # Sizes by the names that the description has; "INPUT_AXIS" names every dimension too.
    places = [(f"{entry.name}_{axis}", size) for entry in inputs.values() for axis, size in enumerate(entry.shape)]
    aliases = {place: size for place, size in places if isinstance(size, str)}
    names = {**{name: name for name in aliases.values()}, **aliases}
    sizes: dict[str, int | str] = {
        _named(name, names, f"--dim {name}", model_id, "free dimension"): size
        for name, size in choices.dimensions.items()
    }
    for name, value in choices.values.items():
        _check_value(_named(name, inputs, f"--input {name}", model_id, "input"), value)
    added: dict[str, Json] = {}
    if choices.file is not None:  # it is copied to the build cache, and its arrays have sizes too
        source = Path(os.path.expanduser(choices.file)).absolute()
        if source.suffix != ARRAYS or not source.is_file():
            raise UsageError(f"--inputs {choices.file}: no such {ARRAYS} file: write one with numpy.savez")
        try:
            described: Any = run_module_json(MODULE, input_text=json.dumps(str(source)), limit_s=TIME_LIMIT_S)
        except ChildError as error:
            raise UsageError(f"--inputs {choices.file}: {error}") from error
        for name, array in described["arrays"].items():
            entry: Input = _named(name, inputs, f"--inputs {choices.file}", model_id, "input")
            if name in choices.values:
                raise UsageError(f"--input {name} and --inputs {choices.file} both give {name!r}: use one of them")
            wanted = "float32" if entry.dtype == "bfloat16" else entry.dtype
            shape, asked = tuple(array["shape"]), list(entry.shape)
            if not np.can_cast(array["dtype"], wanted, "same_kind"):
                raise UsageError(
                    f"--inputs {choices.file}: array {entry.name!r} is {array['dtype']}: the graph takes {entry.dtype}"
                )
            fits = len(shape) == len(asked)
            for free, size in zip(asked, shape, strict=False):
                expected = free if isinstance(free, int) else sizes.get(free, size)
                fits &= expected in (size, BATCH)
                if isinstance(free, str):
                    sizes[free] = size
            if not fits:
                raise UsageError(
                    f"--inputs {choices.file}: array {entry.name!r} has shape {list(shape)}: the graph takes {asked}"
                )

        def copy_inputs(folder: Path) -> Mapping[str, Json]:
            shutil.copyfile(source, folder / INPUTS_FILE)
            with (folder / INPUTS_FILE).open("rb") as opened:
                if hashlib.file_digest(opened, "sha256").hexdigest() != described["sha256"]:
                    raise BenchhouseError(f"{source} has changed since the start of the run: run again")
            return {}

        BuildStore().get(_key(described), copy_inputs)
        added[FILE] = {"sha256": described["sha256"], "arrays": described["arrays"]}
    if sizes:
        added[DIMENSIONS] = dict[str, Json](sizes)
    if choices.values:
        added[VALUES] = dict[str, Json](choices.values)
    return {**config, **added}


def _named(name: str, known: Mapping[str, Any], flag: str, model_id: str, what: str) -> Any:
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(f"{flag}: {model_id} has no {what} {name!r}: {hint}it has {', '.join(known) or 'none'}")


def _check_value(given: Input, value: float) -> None:
    """Raise UsageError for a value that the input's type cannot hold."""
    kind = np.dtype("float32" if given.dtype == "bfloat16" else given.dtype)
    if kind.kind not in "biu":
        return
    low, high = (0, 1) if kind.kind == "b" else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    if not (value == int(value) and low <= value <= high):
        raise UsageError(f"--input {given.name}={value:g}: {given.name!r} is {given.dtype}: give {low} to {high}")


def _key(file: Mapping[str, Any]) -> BuildKey:
    return BuildKey(kind=INPUTS_KIND, parts={"file": file["sha256"]})


def _stored(model_id: str, file: Mapping[str, Any]) -> Path:
    folder, _ = BuildStore().require(_key(file), f"the inputs of {model_id}")
    return folder / INPUTS_FILE


def free_dimensions(workload: Workload) -> Iterator[tuple[str, str]]:
    """Name and axis of each free dimension whose size the user did not choose, in order; the axis is "past" for a
    dimension that is empty before the first call."""
    sizes = _sizes(workload)
    for entry in inputs_of(workload):
        for index, name in enumerate(entry.shape):
            if isinstance(name, str) and not isinstance(sizes.get(name), int):
                yield name, _axis_of(entry, name, index, sizes)


def _sizes(workload: Workload) -> Mapping[str, int | str]:
    sizes: Any = workload.config.get(DIMENSIONS, {})
    return sizes  # type: ignore[no-any-return]


def _axis_of(entry: Input, name: str, index: int, sizes: Mapping[str, int | str]) -> str:
    is_state = index == 1 and len(entry.shape) == 3 and STATES.search(entry.name) is not None
    if index == 0 or is_state or "batch" in name.lower() or sizes.get(name) == BATCH:
        return BATCH_SIZE
    if "past" in name.lower() and "+" not in name:
        return PAST
    return "image_size" if IMAGE_SIDES.search(name) else "sequence_length"


def _size_at(entry: Input, name: str, index: int, point: Point, sizes: Mapping[str, int | str]) -> int:
    """The size of a free dimension; for a sum such as "past_length + sequence_length", the sum of its parts."""
    if isinstance(chosen := sizes.get(name), int):
        return chosen
    if index and "+" in name:
        parts = [part.strip() for part in name.split("+")]
        return sum(int(part) if part.isdigit() else _size_at(entry, part, index, point, sizes) for part in parts)
    kind = _axis_of(entry, name, index, sizes)
    return 0 if kind == PAST else int(point.value(kind) or 1)


def array_of(entry: Input, point: Point, random: np.random.Generator, sizes: Mapping[str, int | str]) -> np.ndarray:
    """A random input in the shape and type of a graph's input."""
    shape = tuple(
        size if isinstance(size, int) else _size_at(entry, size, index, point, sizes)
        for index, size in enumerate(entry.shape)
    )
    name = entry.name.lower()
    if entry.dtype == "bool" or "mask" in name:
        return np.ones(shape, dtype=entry.dtype)
    if entry.dtype in SAMPLED:
        return random.standard_normal(shape).astype("float32" if entry.dtype == "bfloat16" else entry.dtype)
    if "position" in name and shape:
        return np.broadcast_to(np.arange(shape[-1]), shape).astype(entry.dtype)
    if "type" in name:
        return np.zeros(shape, dtype=entry.dtype)
    return random.integers(0, entry.rows or DEFAULT_ROWS, size=shape).astype(entry.dtype)


def chosen_text(workload: Workload) -> str | None:
    """What is guessed about a graph's inputs, and how to say it instead; None if the user has said everything."""
    if not is_graph_file(workload):
        return None
    sizes, values = _sizes(workload), workload.config.get(VALUES, {})
    file: Any = workload.config.get(FILE, {})
    kinds = {name: axis for name, axis in free_dimensions(workload) if name not in sizes}
    words = {BATCH_SIZE: "batch size", "sequence_length": "sequence length", "image_size": "image size", PAST: "0"}
    guessed = [f"{name} = {words[axis]}" for name, axis in kinds.items()]
    given = {*(values if isinstance(values, dict) else ()), *file.get("arrays", ())}
    for entry in inputs_of(workload):
        is_random = not any(word in entry.name.lower() for word in ("mask", "position", "type"))
        if entry.name not in given and entry.dtype not in (*SAMPLED, "bool") and is_random:
            guessed.append(f"{entry.name} = random integers below {entry.rows or DEFAULT_ROWS}")
    if not guessed:
        return None
    return f"{workload.model_id}: {', '.join(guessed)} (others: --dim NAME=N, --input NAME=VALUE, --inputs FILE.npz)"


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
        kinds = {kind for _, kind in free_dimensions(workload)}
        defaults = {"sequence_length": (DEFAULT_SEQUENCE,), "image_size": (DEFAULT_IMAGE,)}
        return {name: values for name, values in defaults.items() if name in kinds}

    def only_batch_size(self, workload: Workload) -> int | None:
        sizes = _sizes(workload)
        for entry in inputs_of(workload):
            for index, name in enumerate(entry.shape):
                size = sizes.get(name) if isinstance(name, str) else None
                if isinstance(size, int) and isinstance(name, str) and _axis_of(entry, name, index, {}) == BATCH_SIZE:
                    return size  # the user chose that of a dimension that is the batch
        if any(kind == "batch_size" for _, kind in free_dimensions(workload)):
            return None
        first = [graph_input.shape[0] for graph_input in inputs_of(workload) if graph_input.shape]
        return first[0] if first and isinstance(first[0], int) and first[0] > 0 else 1

    def check(self, workload: Workload, point: Point) -> str | None:
        only = self.only_batch_size(workload)
        if only is not None and point.batch_size != only:
            return f"{workload.model_id} has a fixed batch size: use --batch-sizes {only}"
        return None

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        """All inputs at a point. Raises BenchhouseError if the file of inputs was deleted from the build cache."""
        random = np.random.default_rng(seed)
        sizes, values, file = _sizes(workload), workload.config.get(VALUES, {}), workload.config.get(FILE)
        given: dict[str, np.ndarray] = {}
        if isinstance(file, dict):
            with np.load(_stored(workload.model_id, file), allow_pickle=False) as opened:
                given = {name: opened[name] for name in opened.files}
        made = {}
        for entry in inputs_of(workload):
            dtype = "float32" if entry.dtype == "bfloat16" else entry.dtype
            array = array_of(entry, point, random, sizes)  # also for a replaced one, so that the others stay the same
            if isinstance(values, dict) and entry.name in values:
                array = np.full(array.shape, values[entry.name], dtype=dtype)
            made[entry.name] = np.asarray(given.get(entry.name, array), dtype=dtype)
        return made

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
    path = Path(os.path.expanduser(model_id))
    if path.suffix in SUFFIXES and path.is_file():
        return path.absolute()
    if not (path / MANIFEST).is_file() or any(path.glob("*.safetensors")):
        return None
    graphs = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if len(graphs) != 1:
        raise UsageError(
            f"MODEL {model_id} is an export of {len(graphs)} graphs by an earlier version, whose {MANIFEST} does "
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
        raise UsageError(f"MODEL {model_id}: {error}") from error
    count = config.pop(PARAMETERS)
    config = with_choices(config, choices, model_id)
    return Workload(
        model_id=redacted_folder(model_id),
        family=None,
        task=TASK,
        source="file",
        config=config,
        config_hash=canonical_hash(config),
        weights=weights_of(config),
        seed=seed,
        path=str(path),
        parameter_count=count if isinstance(count, int) and count > 0 else None,  # 0: none was recognized
    )


def format_of(workload: Workload) -> str:
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
