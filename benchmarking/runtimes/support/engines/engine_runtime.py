"""The base of runtimes on inference engines: what they support, their options, their builds, and how they open.

An engine's plugin says which models, precisions and quantized types it has, makes the build of a model (`builds`), and
loads it (`load`).

Whether an installed engine can use an accelerator, its library is asked in a child process: a library that is asked
starts the GPU's driver, which must not happen in the process that plans and supervises. The child sees the devices that
a worker would see. It runs `main` with the runtime's name as argument and the device as JSON on its stdin, and prints
the reason as JSON on its stdout, or null.

What an engine's C++ library prints while it loads a model is kept: which device and types it really uses, and why
loading failed, neither of which every library returns.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from benchmarking.builds.store import BuildKey, BuildStore, Make, combined_facts
from benchmarking.core import plugins
from benchmarking.core.child_process import ending, run_module
from benchmarking.core.contracts import Option, Runtime, Session, Stage
from benchmarking.core.device_contracts import DeviceHandle, DeviceKind
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError, first_line
from benchmarking.core.model_contracts import Modality
from benchmarking.core.plugins import are_all_assumed, has, is_installed, is_processor, names_with, processor
from benchmarking.core.records import (
    NOT_SUPPORTED,
    Cell,
    Device,
    Json,
    Point,
    Precision,
    Rebuild,
    Scalar,
    Workload,
    from_json,
    to_json,
)
from benchmarking.devices.support.handles import parts
from benchmarking.runtimes.support.engines.computed import Computed, why_not_computed, why_not_length
from benchmarking.runtimes.support.engines.engine_session import (
    ACTIVATIONS,
    COMMON,
    QUANTIZATION,
    EngineModel,
    EngineSession,
    EngineSettings,
    checked_settings,
)
from benchmarking.runtimes.support.torch.torch_settings import TF32_OVERRIDE
from benchmarking.workloads.support.families import plugin_of
from benchmarking.workloads.support.graph_file import format_of

PROCESSOR = "CPU"
"""The unit of a kind of device that is the machine's processor."""
NO_TOKENIZER: Mapping[Modality, str] = {
    "text": f"{NOT_SUPPORTED}: the prompts are token ids; the vocabulary in an engine's file is not read"
}


def draft_workload(cell: Cell) -> Workload | None:
    """The draft model of a cell with speculative decoding. Raises UsageError if it has a different vocabulary."""
    from benchmarking.workloads.support.resolve import resolve

    workload, name = cell.workload, EngineSettings.of(cell).draft_model
    if name is None:
        return None
    draft = resolve(name, weights="random" if workload.weights == "random" else "auto", seed=workload.seed)
    if draft.vocab_size != workload.vocab_size:
        raise UsageError(
            f"--draft-model {name} has a vocabulary of {draft.vocab_size} tokens, {workload.model_id} of "
            f"{workload.vocab_size}: choose a draft model with the same vocabulary"
        )
    return draft


def compute_in_float32(cell: Cell, own: Mapping[str, str]) -> None:
    """Make a float32 cell compute its products in float32: NVIDIA's libraries, for which llama.cpp allows TF32
    (ggml-cuda.cu: CUBLAS_TF32_TENSOR_OP_MATH), and the engine's `own` kernels. Must be called before the driver
    starts."""
    if cell.precision == "float32":
        os.environ |= own
        if has(cell.device.type, lambda kind: kind.has_tf32):
            os.environ[TF32_OVERRIDE] = "0"


class GenerativeEngine(Runtime):
    """A runtime that generates text with an inference engine."""

    prepares = True
    needs_no_torch = True
    opens_for_points = True
    prefills_in_parts = True
    modules: tuple[str, ...]
    """Required modules; the extra named after the runtime installs them."""
    reads: tuple[str, ...] = ()
    """Formats of users' files that it reads directly (`workloads.support.engine_file`)."""
    computed: Mapping[str, Computed]
    """What it computes of a configuration, by transformers' model types: it can be built for these."""
    float_precisions: tuple[Precision, ...]
    exact_float32: Mapping[str, str] = {}
    """The environment variables without which the engine's own kernels would round float32 products."""
    quantized: Mapping[str, Precision] = {}
    """The names of its quantized types, with the precision each belongs to; the default of a precision comes first."""
    given_floats: tuple[Precision, ...] = ()
    given_types: Mapping[str, Precision] = {}
    """Further floating-point precisions and quantized types, which only users' files have."""
    lacks: Mapping[str, str] = {}
    """Option -> why this engine does not have it: the end of a sentence that begins with the flag."""

    def missing(self) -> str | None:
        absent = [name for name in self.modules if not is_installed(name)]
        return f'not installed: {", ".join(absent)}: pip install "benchhouse[{self.name}]"' if absent else None

    def drives(self, kind: DeviceKind) -> bool:
        """Whether the engine has a backend for accelerators of this kind. By default it runs on CPUs only."""
        return False

    def why_not_here(self, device: Device) -> str | None:
        """None, or why the installed library cannot use an accelerator. Asks the library, in a process of its own in
        which only this device is visible."""
        return None

    def why_not_on(self, device: Device) -> str | None:
        if has(device.type, lambda kind: kind.is_processor or self.drives(kind)):
            return None
        accelerators = names_with(lambda kind: not kind.is_processor and self.drives(kind))
        where = " or ".join(("the CPU", *accelerators))
        return f"runtime {self.name} runs on {where}, not on {device.type}"

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        if (why_not := self.why_not_on(device)) is not None:
            return why_not
        if "new_tokens" not in plugin_of(workload).axes(workload):
            return f"runtime {self.name} generates text, which task {workload.task} does not"
        is_file = workload.source == "file"
        if is_file and (kind := format_of(workload)) not in self.reads:
            formats = f"only {', '.join(self.reads)}" if self.reads else "or other engine files"
            return f"{workload.model_id} is in {kind} format: runtime {self.name} does not read {kind}, {formats}"
        if workload.source == "module":
            return f"runtime {self.name} needs a model with a configuration, not a torch module"
        if not is_file and (why_not := why_not_computed(self.name, self.computed, workload)) is not None:
            return why_not
        file_only = (*self.given_floats, *self.given_types.values()) if is_file else ()
        offered = tuple(dict.fromkeys((*self.floats_on(device), *file_only, *self.quantized.values())))
        if precision not in offered:
            return f"runtime {self.name} supports {', '.join(offered)}, not {precision}"
        if is_file and (stored := workload.config.get("precision")) not in (None, precision):
            return f"{workload.model_id} holds {workload.config.get('quantization')}: use --precision {stored}"
        if are_all_assumed() or is_processor(device.type):
            return None
        return why_not_available(self.name, device)

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        declared = {option.name for option in self.declared_options}
        for option in COMMON:
            if option.name in options and option.name not in declared:
                raise UnsupportedError(f"{option.flag}: {self.lacks[option.name]}")
        stored_type = workload.config.get("quantization") if workload.source == "file" else None
        if stored_type in self.quantized:
            options = {QUANTIZATION.name: str(stored_type), **options}
        mode = checked_settings(self.declared_options, super().mode(device, workload, options))
        if stored_type not in self.given_types:
            return mode
        if (requested := mode.get(QUANTIZATION.name, stored_type)) != stored_type:
            raise UnsupportedError(f"--quantization {requested}: {workload.model_id} holds {stored_type}")
        return {**mode, QUANTIZATION.name: str(stored_type)}

    def mode_at(self, precision: Precision, mode: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """With the name of the quantized type where the precision has some, the first by default, else without a type
        of activations. Raises UsageError for a type that belongs to another precision."""
        types = {**self.quantized, **self.given_types}
        at_precision = [name for name, belongs_to in types.items() if belongs_to == precision]
        requested = mode.get(QUANTIZATION.name)
        if requested is None and at_precision:
            return {**mode, QUANTIZATION.name: at_precision[0]}
        if requested is None:
            return {name: value for name, value in mode.items() if name != ACTIVATIONS}
        if requested in at_precision:
            return mode
        other_precision = types.get(str(requested))
        available = f"it has {', '.join(at_precision)}" if at_precision else f"{precision} is not quantized"
        hint = "" if other_precision is None else f"; {requested} is --precision {other_precision}"
        raise UsageError(
            f"--quantization {requested}: runtime {self.name} has no such type at {precision}: {available}{hint}"
        )

    def has_build(self, cell: Cell) -> bool:
        return cell.workload.source != "file" or bool(self.further_builds(cell))

    def prepare(self, cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
        draft = draft_workload(cell)
        for workload in (cell.workload, *(() if draft is None else (draft,))):
            if workload.source != "file" and (why_not := why_not_computed(self.name, self.computed, workload)):
                raise UnsupportedError(why_not)
        depth = EngineSettings.of(cell).context_depth
        lengths = [depth + (point.sequence_length or 0) + (point.new_tokens or 0) for point in points]
        if lengths and (why_not := why_not_length(self.name, cell.workload, min(lengths))) is not None:
            raise UnsupportedError(why_not)
        builds = [] if cell.workload.source == "file" else [self.build(cell)]
        all_builds = [*builds, *self.further_builds(cell)]
        return combined_facts(all_builds[0][0].kind, store.get_all(all_builds, rebuild))

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        from benchmarking.workloads.support.processing import Processing, open_processing

        is_file = cell.workload.source == "file"
        processing = Processing(why_not=NO_TOKENIZER) if is_file else open_processing(cell.workload, stage)
        compute_in_float32(cell, self.exact_float32)
        model, device = self.load(cell, self.model_path(cell), stage, points), cell.device
        # Whether the engine says that it computes on the CPU where a GPU was requested, or the reverse. llama.cpp says
        # it in other words, which its runtime checks.
        system = model.facts.get("engine_system")
        found = system.get("device") if isinstance(system, dict) else None
        requests_cpu = is_processor(device.type) or device.selector.endswith(f":{PROCESSOR}")
        if found is not None and requests_cpu != (processor().name in str(found).lower()):
            model.close()
            raise BenchhouseError(f"requested {device.selector}, but {self.name} computes on {found}")
        return EngineSession(cell, model, processing)

    def model_path(self, cell: Cell) -> Path:
        """The path to load: the user's file or folder, checked again, or the folder of the build."""
        if cell.workload.source == "file":
            from benchmarking.workloads.support.engine_file import check_unchanged

            return check_unchanged(cell.workload)
        return BuildStore().require(self.build(cell)[0], cell.workload.model_id)[0]

    @abstractmethod
    def build(self, cell: Cell) -> tuple[BuildKey, Make]:
        """The key of a cell's build, and the function that creates it from the weights in the preparing process."""

    def further_builds(self, cell: Cell) -> Sequence[tuple[BuildKey, Make]]:
        """Further builds, such as a draft model's."""
        return ()

    @abstractmethod
    def load(self, cell: Cell, path: Path, stage: Stage, points: Sequence[Point]) -> EngineModel:
        """The model at a path, loaded for these points, timing the stage to_device. Raises BenchhouseError."""

    def floats_on(self, device: Device) -> tuple[Precision, ...]:
        return self.float_precisions

    def options(self, workload: Workload, device: Device | None = None) -> tuple[Option, ...]:
        return self.declared_options


TIME_LIMIT_S = 120.0
"""For the import of the library, and for a driver that initializes several GPUs."""


def why_not_available(engine: str, device: Device) -> str | None:
    """None, or why the engine's installed library cannot use an accelerator. Asked once per process."""
    return _asked(engine, json.dumps(to_json(device), sort_keys=True))


@cache
def _asked(engine: str, device: str) -> str | None:
    done = run_module(__name__, engine, input_text=device, limit_s=TIME_LIMIT_S)
    if done.exit_code is None:
        return f"{engine} did not answer within {TIME_LIMIT_S:g} s whether it can use this device"
    if done.exit_code != 0:
        why = done.last_line or "nothing on stderr"
        return f"{engine} cannot be asked about this device ({ending(done.exit_code)}): {why}"
    answer = json.loads(done.stdout)
    return None if answer is None else str(answer)


def main() -> int:
    """Print the answer for the runtime in the first argument."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    device = from_json(Device, json.loads(sys.stdin.read()))
    engine: GenerativeEngine = plugins.load(plugins.RUNTIMES, sys.argv[1])
    together = parts(device)
    why_not: str | None
    try:
        for one in together:
            plugins.device_kind(device.type).watch(one, together)
        why_not = engine.why_not_here(device)
    except (BenchhouseError, ImportError, RuntimeError) as error:
        why_not = first_line(error)
    with open(answers, "w", encoding="utf-8") as stdout:
        json.dump(why_not, stdout)
    return 0


STDOUT, STDERR = 1, 2
LATE_S = 0.2
"""Time for a library that prints from a thread of its own; only spent after an error."""


class LibraryLog:
    """Inside, what the process prints on these descriptors goes to a file; afterwards it is `text`. After an error it
    is also printed on stderr, as without this."""

    def __init__(self, descriptors: Sequence[int] = (STDERR,)) -> None:
        self.text = ""
        self._descriptors = tuple(descriptors)
        self._saved: list[int] = []
        self._file: IO[bytes] | None = None

    def __enter__(self) -> LibraryLog:
        _flush()
        self._file = TemporaryFile()
        for descriptor in self._descriptors:
            self._saved.append(os.dup(descriptor))
            os.dup2(self._file.fileno(), descriptor)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        assert self._file is not None
        if error is not None:
            time.sleep(LATE_S)
        _flush()
        for descriptor, saved in zip(self._descriptors, self._saved, strict=True):
            os.dup2(saved, descriptor)
            os.close(saved)
        self._file.seek(0)
        content = self._file.read()
        self._file.close()
        self.text = content.decode(errors="replace")
        if error is not None and content:
            os.write(STDERR, content)


def _flush() -> None:
    """Write out what Python and the C library have in their buffers."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)


if __name__ == "__main__":
    sys.exit(main())
