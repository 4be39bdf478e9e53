"""Custom builds: the stages given in a user's file, in order.

    def get_sequence():
        return ["export", "optimise", ("fold the scale", fold), "float16"]

"export" comes first and uses benchhouse's exporter. "optimise" makes ONNX Runtime rewrite the graph without
device-specific operators. "float16" exports the model in half precision, "quantise" converts the graph to int8; both
set the precision of the build, and at most one of them may be given, as the last stage. Anything else is a pair of a
name and a user's function, which gets the path of the ONNX file and rewrites it in place. The build is checked against
the torch model like any export.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarking.core.errors import BenchhouseError, UsageError, first_line
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Precision

EXPORT, OPTIMISE = "export", "optimise"
PRECISIONS: dict[str, Precision] = {"float16": "float16", "quantise": "int8"}
SPELLINGS = {"optimize": OPTIMISE, "quantize": "quantise", "convert to float16": "float16"}
ENTRY = "get_sequence"

Rewrite = Callable[[Path], object]
"""Rewrites an ONNX file in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSequence:
    """The stages of a file."""

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
