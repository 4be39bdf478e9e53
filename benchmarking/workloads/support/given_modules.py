"""Torch modules with recorded inputs instead of a configuration: modules called by a script, and modules passed to the
Python API; and builds of the user's own.

A workload with source "module" records where its module can be found: in the script at `path`, which is run up to the
call, or, without a path, among the modules passed in this process. Its points are the recorded calls. The inputs of
each call are stored in the build cache under a hash of their values. So every runtime runs such a module like any
other, live in torch or exported at exactly the recorded shapes.

The stages of such a build are given in a user's file, in order:

    def get_sequence():
        return ["export", "optimise", ("fold the scale", fold), "float16"]

"export" comes first and uses benchhouse's exporter. "optimise" makes ONNX Runtime rewrite the graph without
device-specific operators. "float16" exports the model in half precision, "quantise" converts the graph to int8; both
set the precision of the build, and at most one of them may be given, as the last stage. Anything else is a pair of a
name and a user's function, which gets the path of the ONNX file and rewrites it in place. The build is checked against
the torch model like any export.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

from benchmarking.builds.store import DIGEST_LENGTH, BuildKey, BuildStore
from benchmarking.core.contracts import FamilyOperation, Mark
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError, first_line
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np, torch
from benchmarking.core.model_contracts import TORCH_EXPORTER, Recipe, WorkloadFamily
from benchmarking.core.records import Json, Point, Precision, Scalar, Workload, canonical_hash, from_json, to_json
from benchmarking.workloads.support.generation import ForwardPass
from benchmarking.workloads.support.script_runs import (
    CallArguments,
    capture_module,
    is_keras,
    unregistered,
)
from benchmarking.workloads.support.shown_batch import batch_of

EXPORT, OPTIMISE = "export", "optimise"
PRECISIONS: dict[str, Precision] = {"float16": "float16", "quantise": "int8"}
SPELLINGS = {"optimize": OPTIMISE, "quantize": "quantise", "convert to float16": "float16"}
ENTRY = "get_sequence"

Rewrite = Callable[[Path], object]
"""Rewrites an ONNX file in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSequence:
    path: str
    """Absolute."""
    sha256: str
    """Hash of the file: different content is a different build."""
    stages: tuple[str, ...]
    precision: Precision | None = None
    """The build's precision; None leaves it unchanged."""


def read_sequence(path: Path) -> BuildSequence:
    """The stages in a file. The file is imported, so call this only in child processes. Raises UsageError for invalid
    content."""
    stages = [name for name, _ in _stages(path)]
    chosen = [PRECISIONS[name] for name in stages if name in PRECISIONS]
    if stages[:1] != [EXPORT] or stages.count(EXPORT) > 1:
        raise UsageError(f"{path}: the first stage must be {EXPORT!r}, only once: got {', '.join(stages) or 'none'}")
    if len(chosen) > 1 or (chosen and stages[-1] not in PRECISIONS):
        raise UsageError(f"{path}: only the last stage may be one of {', '.join(PRECISIONS)}: got {', '.join(stages)}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return BuildSequence(path=str(path), sha256=digest, stages=tuple(stages), precision=chosen[0] if chosen else None)


def rewrite(sequence: BuildSequence, graph: Path) -> None:
    """Run the stages between export and conversion on an exported file. Raises BenchhouseError with the name of a
    failed stage, or if the file of stages has changed."""
    path = Path(sequence.path)
    if hashlib.sha256(path.read_bytes()).hexdigest() != sequence.sha256:
        raise BenchhouseError(f"{path} has changed since the start of the run: run again")
    for name, function in _stages(path):
        if function is None:
            continue
        try:
            function(graph)
        except Exception as error:
            raise BenchhouseError(
                f"stage {name!r} of {path.name} failed: {type(error).__name__}: {first_line(error)}"
            ) from error


def optimise(graph: Path) -> None:
    """Let ONNX Runtime rewrite a file without device-specific operators."""
    import onnxruntime

    target = graph.with_name(f"{graph.stem}.optimised.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    weights = f"{target.name}.data"
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", weights)
    onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    graph.with_name(f"{graph.name}.data").unlink(missing_ok=True)
    target.replace(graph)


def _stages(path: Path) -> list[tuple[str, Rewrite | None]]:
    """Name and function of each stage; None for stages that do not rewrite the file."""
    spec = importlib.util.spec_from_file_location(f"benchhouse_sequence_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except Exception as error:
        raise UsageError(f"{path}: {type(error).__name__}: {first_line(error)}") from error
    function = getattr(module, ENTRY, None)
    if not callable(function):
        raise UsageError(f"{path}: expected a function {ENTRY}() that returns the list of stages")
    stages = function()
    if not isinstance(stages, Sequence) or isinstance(stages, str):
        raise UsageError(f"{path}: {ENTRY}() must return a list of stages: got {stages!r}")
    known = (EXPORT, OPTIMISE, *PRECISIONS)
    named: list[tuple[str, Rewrite | None]] = []
    for stage in stages:
        if isinstance(stage, str) and (name := SPELLINGS.get(stage, stage)) in known:
            named.append((name, optimise if name == OPTIMISE else None))
        elif (
            isinstance(stage, Sequence)
            and not isinstance(stage, str)
            and len(stage) == 2
            and isinstance(stage[0], str)
            and callable(stage[1])
        ):
            named.append((stage[0], stage[1]))
        else:
            raise UsageError(f"{path}: a stage is one of {', '.join(known)}, or a pair (name, function): got {stage!r}")
    return named


INPUTS_KIND = "inputs"
"""Kind of the builds that hold a call's inputs."""
INPUTS_FILE = "inputs.npz"
PREFIX = "input."
"""Prefix of the names in that file, since numpy treats some names as its own arguments."""
CALL_AXIS = "call"
"""The axis that distinguishes several calls of one module, by their number in order of occurrence."""
TASK = "module-call"
TENSOR = re.compile(r"\w+\[")
"""How the signature of a tensor begins."""
SHORT_HASH = 8
"""Hex digits of a module's hash in names, short enough to type."""
MODEL_REVISION = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """A kind of call with which a module is measured."""

    point: Point
    signature: Mapping[str, str]
    """For each argument, the dtype and shape of a tensor ("float32[8, 8]"), else its value or type."""
    inputs: str
    """Digest of the build with the values of the tensors."""
    executions: int
    """Number of such calls in the script; 1 for a module passed in Python."""
    autocast: str | None = None
    """The dtype of `torch.autocast` around it; None without it."""
    is_batch_known: bool = True
    """False if the inputs do not show how many items a call holds; its point then has batch size 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenModule:
    """A module found in a script or passed in Python, with its calls, as stored in a workload's configuration."""

    module_class: str
    kind: str
    """"torch module", "torch script", "transformers model" or "keras model"."""
    hash: str
    """Hash of structure and weights (`script_runs.module_hash`)."""
    parameter_count: int
    weights_bytes: int
    dtype: str | None
    """Dtype of the parameters, or several with that of the most values first ("bfloat16, float32"); without parameters,
    of the buffers. None without either."""
    calls: tuple[RecordedCall, ...]
    script: str | None = None
    """File name of the script; None for a module passed in Python."""
    script_arguments: tuple[str, ...] = ()
    line: int | None = None
    """The line of the script with its first call."""
    number: int = 1
    """Its number among the modules called by the script down to `max_depth`."""
    max_depth: int = 0
    depth: int = 0
    parent: int | None = None
    """The number of the module that calls it; None if the script does."""
    executions: int = 0
    seconds: float = 0.0
    """Time of all its calls in the script."""
    further_executions: int = 0
    """Number of calls with other kinds of input, which are not measured."""
    sequence: BuildSequence | None = None
    """The stages of its builds; None for benchhouse's own."""
    batch_size: int | None = None
    """How many items each call holds, as stated by the user; None to infer it from the inputs."""

    @property
    def short_hash(self) -> str:
        """The hash as shown to and typed by users."""
        return self.hash[:SHORT_HASH]

    @property
    def class_name(self) -> str:
        return self.module_class.rpartition(".")[2]

    @property
    def identity(self) -> dict[str, Json]:
        """What identifies the configuration: class, kinds of input, arguments of the script, but not its location."""
        identity: dict[str, Json] = {
            "module_class": self.module_class,
            "calls": [[call.point.label, dict(call.signature), *filter(None, (call.autocast,))] for call in self.calls],
            "script_arguments": list(self.script_arguments),
        }
        return identity if self.sequence is None else {**identity, "sequence": self.sequence.sha256}

    def workload(self, model_id: str, path: Path | None = None) -> Workload:
        """The module as a workload; `path` is its script."""
        return Workload(
            model_id=model_id,
            family=None,
            task=TASK,
            source="module",
            config=to_json(self),
            config_hash=canonical_hash(self.identity),
            weights="given",
            revision=self.hash[:MODEL_REVISION],
            parameter_count=self.parameter_count,
            path=None if path is None else str(path),
        )


def given_module(workload: Workload) -> GivenModule:
    """The module described by a workload's configuration. Raises FormatError for any other configuration."""
    module: GivenModule = from_json(GivenModule, dict(workload.config), workload.model_id)
    return module


def inputs_digest(workload: Workload, point: Point) -> str:
    """The digest under which a point's input values are stored; it depends on the values."""
    return _call_at(given_module(workload), point).inputs


def has_inputs(workload: Workload) -> bool:
    """Whether the inputs of all its calls are in this machine's build cache."""
    root = BuildStore().root / INPUTS_KIND
    return all((root / call.inputs / INPUTS_FILE).is_file() for call in given_module(workload).calls)


def describe(module: torch.nn.Module, hash: str, calls: Sequence[RecordedCall], **details: Any) -> GivenModule:
    others = unregistered(module).values()
    own_class, kind = type(module), "keras model" if is_keras(module) else "torch module"
    if isinstance(module, torch.jit.ScriptModule):
        kind = "torch script"
    elif hasattr(getattr(module, "config", None), "model_type"):
        kind = "transformers model"
    return GivenModule(
        module_class=f"{own_class.__module__}.{own_class.__qualname__}",
        kind=kind,
        hash=hash,
        parameter_count=sum(weight.numel() for weight in (*module.parameters(), *(own for own in others if own.dim()))),
        weights_bytes=sum(map(_nbytes, (*module.parameters(), *module.buffers(), *others))),
        dtype=", ".join(str(dtype).removeprefix("torch.") for dtype in _dtypes(module)) or None,
        calls=tuple(calls),
        **details,
    )


def recorded_calls(
    module: torch.nn.Module,
    arguments: Sequence[CallArguments],
    executions: Sequence[int],
    batch_size: int | None = None,
) -> tuple[RecordedCall, ...]:
    """The calls of a module with these arguments, with inputs stored in the build cache. `batch_size` is how many items
    each call holds (default: what the inputs show)."""
    calls = []
    for number, (call_arguments, count) in enumerate(zip(arguments, executions, strict=True), start=1):
        batch = batch_size or _batch_shown(module, call_arguments)
        # The second dimension of token ids is the sequence, if the first is the batch.
        ids = [
            tensor.shape
            for tensor in call_arguments.tensors.values()
            if tensor.dim() == 2 and not tensor.is_floating_point() and not tensor.is_complex()
        ]
        calls.append(
            RecordedCall(
                point=Point(
                    batch_size=batch or 1,
                    sequence_length=max(1, int(ids[0][1])) if ids and batch is not None else None,
                    axes={CALL_AXIS: number} if len(arguments) > 1 else {},
                ),
                signature=call_arguments.signature,
                inputs=_store_inputs(call_arguments),
                executions=count,
                autocast=call_arguments.autocast,
                is_batch_known=batch is not None,
            )
        )
    return tuple(calls)


def _batch_shown(module: Any, arguments: CallArguments) -> int | None:
    """The batch of a recorded call, in eval mode. The module's own state stays as its calls leave it."""
    was_training = {part: part.training for part in module.modules() if hasattr(part, "training")}
    device = next((held.device for held in (*module.parameters(), *module.buffers())), torch.device("cpu"))

    def call(tensors: Mapping[str, Any]) -> Any:
        moved = {name: tensor.to(device) for name, tensor in tensors.items()}
        return ModuleCall(module, Point(batch_size=1), arguments, moved).run(lambda name: None)

    module.eval()
    try:
        return batch_of(module, arguments.tensors, call)
    finally:
        for part, mode in was_training.items():
            part.training = mode


def register_module(module: torch.nn.Module, workload: Workload, arguments: Sequence[CallArguments]) -> None:
    """Register a module and its calls for `load` in this process, for as long as the module exists."""
    _GIVEN[module] = (workload.revision or "", tuple(arguments))


class GivenModules(WorkloadFamily):
    """Modules with recorded inputs. It is not an architecture, so no workload has it as its family."""

    name = "given modules"
    model_types = frozenset[str]()
    tasks = (TASK,)

    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        return {}

    def check(self, workload: Workload, point: Point) -> str | None:
        labels = [call.point.label for call in given_module(workload).calls]
        return None if point.label in labels else f"{workload.model_id} was called at {'; '.join(labels)} only"

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        call = _call_at(given_module(workload), point)
        path = BuildStore().root / INPUTS_KIND / call.inputs / INPUTS_FILE
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return {name.removeprefix(PREFIX): arrays[name] for name in arrays.files}
        except FileNotFoundError as error:
            raise BenchhouseError(
                f"the inputs of {workload.model_id} at {point.label} were deleted from {BuildStore().root} during the "
                "run: run it again"
            ) from error

    def model_class(self, workload: Workload) -> Any:
        return torch.nn.Module

    def build(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> Any:
        raise UnsupportedError(f"{workload.model_id} has no configuration to build it from")

    def load(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> tuple[Any, tuple[str, ...]]:
        record = given_module(workload)
        if workload.path:
            script = Path(workload.path)
            captured_module = capture_module(
                script, record.script_arguments, record.max_depth, record.number, len(record.calls)
            )
            if captured_module.hash != record.hash:
                raise BenchhouseError(
                    f"{script.name} made a different model {record.number} than when it was analysed "
                    f"(hash {captured_module.hash[:SHORT_HASH]}, before {record.short_hash}): use fixed seeds, or "
                    "weights from a file"
                )
            module, arguments = captured_module.module, tuple(call.arguments for call in captured_module.calls)
        else:  # a copy, which may be moved and converted, of a module passed in this process
            given = ((module, calls) for module, (revision, calls) in _GIVEN.items() if revision == workload.revision)
            passed, arguments = next(given, (None, ()))
            if passed is None:
                raise BenchhouseError(f"{workload.model_id} was passed in another process: call benchmark_model again")
            module = copy.deepcopy(passed)
        # A script with threads may have gone on beyond the last one.
        labels = [call.point.label for call in record.calls]
        arguments_by_label = dict(zip(labels, arguments[: len(labels)], strict=True))
        model: Any = module.eval().cpu()
        own_dtype = _main_dtype(model)
        _CALLS[model] = (own_dtype, arguments_by_label)
        if own_dtype not in (None, dtype):  # what the module keeps in another type, or complex, stays so
            model._apply(lambda tensor: tensor.to(dtype) if tensor.dtype == own_dtype else tensor)
        return model, ()

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        own_dtype, calls = _CALLS[model]
        if point.label not in calls:
            raise UnsupportedError(str(self.check(workload, point)))
        current_dtype, recorded = _main_dtype(model), calls[point.label].tensors
        # Inputs in the module's own precision follow the requested one; others (such as float64 times) stay.
        dtypes = {own_dtype: current_dtype} if current_dtype is not None else {}
        tensors = {
            name: tensor.to(dtypes.get(recorded[name].dtype, recorded[name].dtype)) for name, tensor in inputs.items()
        }
        return ModuleCall(model, point, calls[point.label], tensors, dtypes)

    def recipe(self, workload: Workload) -> Recipe | str:
        record = given_module(workload)
        if not all(any(TENSOR.match(what) for what in call.signature.values()) for call in record.calls):
            return f"{record.class_name} was called without tensors: its graph would be a constant"
        if any(call.autocast for call in record.calls):
            return f"{record.class_name} was called under torch.autocast, which graphs lack: use a runtime of PyTorch"
        return Recipe(plan="forward", exporter=TORCH_EXPORTER, is_of_one_point=True)

    def outputs(self, output: Any) -> Mapping[str, Any]:
        return output_tensors(output)

    def rewrite(self, workload: Workload, graph: Path) -> None:
        if (sequence := given_module(workload).sequence) is not None:
            rewrite(sequence, graph)


PLUGIN = GivenModules()


class ModuleCall(ForwardPass):
    """The recorded call, each time with arguments as they were before it. The module's own state between calls is left
    alone."""

    def __init__(
        self,
        module: Any,
        point: Point,
        arguments: CallArguments,
        tensors: Mapping[str, Any],
        dtypes: Mapping[Any, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(module, point, {})
        self._arguments, self._tensors, self._dtypes = arguments, tensors, dtypes
        self.keeps_state = arguments.has_state
        held = (*tensors.values(), *module.parameters(), *module.buffers())
        self._device = next((tensor.device for tensor in held), torch.device("cpu"))
        self._autocast = None if arguments.autocast is None else getattr(torch, arguments.autocast)
        self._restore()

    def reset(self) -> None:
        if self.keeps_state:  # else it would only take time between queued calls
            self._restore()

    def _restore(self) -> None:
        is_inference = any(tensor.is_inference() for tensor in self._tensors.values())
        with torch.inference_mode(is_inference or torch.is_inference_mode_enabled()):
            self._positional, self._inputs = self._arguments.with_tensors(
                self._tensors, lambda tensor: tensor.to(self._device, self._dtypes.get(tensor.dtype, tensor.dtype))
            )

    def run(self, mark: Mark) -> Any:
        if self._autocast is None:
            return self._model(*self._positional, **self._inputs)
        with torch.autocast(self._device.type, self._autocast):
            return self._model(*self._positional, **self._inputs)

    def tensors(self, output: Any) -> Mapping[str, Any]:
        return output_tensors(output)


def output_tensors(output: Any) -> dict[str, Any]:
    """The tensors in an output, in order: "output" for the only one, else "output_0", "output_1", ..."""
    from torch.utils import _pytree

    tensors = [leaf for leaf in _pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    return (
        {"output": tensors[0]}
        if len(tensors) == 1
        else {f"output_{index}": tensor for index, tensor in enumerate(tensors)}
    )


# Registered modules, compared by identity, whose entries do not outlive them.
_GIVEN: WeakKeyDictionary[Any, tuple[str, tuple[CallArguments, ...]]] = WeakKeyDictionary()
_CALLS: WeakKeyDictionary[Any, tuple[Any, dict[str, CallArguments]]] = WeakKeyDictionary()


def _call_at(record: GivenModule, point: Point) -> RecordedCall:
    call = next((call for call in record.calls if call.point.label == point.label), None)
    if call is None:
        raise UnsupportedError(f"{record.class_name} was not called at {point.label}")
    return call


def _store_inputs(arguments: CallArguments) -> str:
    """Store a call's tensors in the build cache and return the digest of their build."""
    arrays: dict[str, np.ndarray] = {}
    for name, tensor in arguments.tensors.items():
        try:
            arrays[name] = tensor.numpy()
        except TypeError:  # a type that numpy lacks (bfloat16); the call converts it back
            arrays[name] = tensor.float().numpy()
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name}:{array.dtype}{array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    key = BuildKey(kind=INPUTS_KIND, parts={"values": digest.hexdigest()[:DIGEST_LENGTH]})

    def make(folder: Path) -> Mapping[str, Json]:
        np.savez(folder / INPUTS_FILE, allow_pickle=False, **{PREFIX + name: array for name, array in arrays.items()})
        return {"shapes": dict(arguments.signature)}

    return BuildStore().get(key, make)[0].digest


def _nbytes(tensor: Any) -> int:
    """Bytes of a tensor, or of those of which it consists."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return int(tensor.nbytes)
    return sum(_nbytes(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0])


def _dtypes(module: Any) -> list[Any]:
    """The dtypes of the module's parameters, that of the most values first; without parameters, of its floating-point
    buffers."""
    is_of_keras = is_keras(module)  # Keras stores counters and dropout seeds as parameters
    weights = [weight for weight in module.parameters() if weight.is_floating_point() or not is_of_keras]
    counts = Counter[Any]()
    for tensor in weights or (buffer for buffer in module.buffers() if buffer.is_floating_point()):
        counts[tensor.dtype] += tensor.numel()
    return [dtype for dtype, _ in counts.most_common()]


def _main_dtype(module: Any) -> Any:
    """The floating-point dtype of the most values, which a precision replaces; None for a module without any."""
    return next((dtype for dtype in _dtypes(module) if dtype.is_floating_point), None)
