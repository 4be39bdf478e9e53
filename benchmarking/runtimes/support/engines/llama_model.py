"""What both of llama.cpp's libraries for Python share: the facts in a model's file, checks after loading, and the
reason when loading fails."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarking.core.errors import BenchhouseError, FormatError, OutOfMemoryError, first_line, is_out_of_memory
from benchmarking.core.records import Json, Point
from benchmarking.runtimes.support.engines.ggml_devices import Placement
from benchmarking.runtimes.support.engines.options import EngineSettings
from benchmarking.runtimes.support.engines.session import EngineModel
from benchmarking.workloads.support.gguf_file import read_gguf

N_GRAM_DRAFT = 8
"""Default of --draft-tokens with an n-gram lookup."""
ON_CPU = Placement()
ERROR_LINE = re.compile(r"^\S+ E (?P<why>[^\n]+)", re.MULTILINE)
"""An error in llama.cpp's log: time, level, message."""


def layer_count(file: Path) -> int:
    """All layers of the model in a file as llama.cpp counts them: its blocks, and the output. Raises FormatError."""
    blocks = read_gguf(file).of_architecture("block_count")
    if not isinstance(blocks, int) or blocks < 1:
        raise FormatError(f"{file} does not say how many layers it has (block_count): convert it again")
    return blocks + 1


def check_parameters(gpu_layers: int, placed: Placement, *, op_offload: bool, kv_offload: bool) -> None:
    """Raise BenchhouseError if llama.cpp computes elsewhere than requested, as its parameters say after loading."""
    if placed.is_on_gpu:
        if gpu_layers != placed.layers:
            raise BenchhouseError(f"requested {placed.layers} layers on a GPU, but llama.cpp has {gpu_layers} there")
        return
    on_gpu = [name for name, is_on in (("operators", op_offload), ("the cache", kv_offload)) if is_on]
    on_gpu += [f"{gpu_layers} layers"] if gpu_layers else []
    if on_gpu:
        raise BenchhouseError(f"requested the CPU, but llama.cpp offloads {', '.join(on_gpu)} to a GPU")


def not_loaded(file: Path, error: Exception, log: str) -> BenchhouseError:
    """The error of a model that was not loaded, with the reason from llama.cpp's log."""
    lines = [match["why"].strip() for match in ERROR_LINE.finditer(log)]
    if is_out_of_memory(log) or is_out_of_memory(error):
        why = next((line for line in lines if is_out_of_memory(line)), first_line(error))
        return OutOfMemoryError(f"out of memory while llama.cpp loaded {file.name}: {why}")
    why = lines[0] if lines else first_line(error)
    return BenchhouseError(f"llama.cpp cannot load {file.name} with these settings: {why}")


class LlamaModel(EngineModel):
    """What both libraries share: the sizes in the file's header, and room for the longest point."""

    def __init__(self, file: Path, settings: EngineSettings, points: Sequence[Point]) -> None:
        header = read_gguf(file)
        self.weights_bytes: int | None = header.weights_bytes
        self.parameter_count: int | None = header.parameter_count
        self.settings = settings
        self.rows = max(point.batch_size for point in points)
        longest = max((point.sequence_length or 1) + (point.new_tokens or 0) for point in points)
        spare = 8 + (settings.draft_tokens or N_GRAM_DRAFT) if settings.is_speculative else 8
        self.row_tokens = settings.context_depth + longest + spare
        kinds: dict[str, int] = {}
        for tensor in header.tensors:
            kinds[tensor.type.name] = kinds.get(tensor.type.name, 0) + tensor.values
        self.header: dict[str, Json] = {
            "parameters_by_dtype": dict[str, Json](sorted(kinds.items())),
            "model_size_bytes": file.stat().st_size,
            "gguf_architecture": header.architecture,
            "quantized_type": header.quantization,
        }
