"""llama.cpp through llama-cpp-python, which is driven token by token; and what both of llama.cpp's libraries for Python
share: the facts in a model's file, checks after loading, and the reason when loading fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import (
    BenchhouseError,
    FormatError,
    OutOfMemoryError,
    UnsupportedError,
    first_line,
    is_out_of_memory,
)
from benchmarking.core.records import Json, Point
from benchmarking.runtimes.support.engines import engine_options as common
from benchmarking.runtimes.support.engines import ggml_devices
from benchmarking.runtimes.support.engines.engine_options import EngineSettings
from benchmarking.runtimes.support.engines.engine_session import Arrivals, EngineModel, EngineReport, EngineRequest
from benchmarking.runtimes.support.engines.ggml_devices import Placement
from benchmarking.workloads.support.gguf_file import TYPES, read_gguf

if TYPE_CHECKING:
    import numpy as np


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


class PythonBinding(LlamaModel):
    """llama.cpp through llama-cpp-python."""

    def __init__(
        self,
        file: Path,
        settings: EngineSettings,
        points: Sequence[Point],
        placed: Placement = ON_CPU,
        *,
        has_token_ids: bool = True,
    ) -> None:
        import llama_cpp

        super().__init__(file, settings, points)
        kind = (
            {} if (name := settings.kv_cache_type) is None else {"type_k": _ggml_type(name), "type_v": _ggml_type(name)}
        )
        threads = {"n_threads": settings.threads, "n_threads_batch": settings.batch_threads}
        lora = None if settings.lora is None else str(Path(settings.lora).expanduser())
        is_split = len(placed.devices) > 1
        split_mode = f"LLAMA_SPLIT_MODE_{settings.split_mode.upper() if is_split else 'NONE'}"
        log = BindingLog()
        try:
            with log:
                self.model: Any = llama_cpp.Llama(
                    str(file),
                    n_ctx=self.row_tokens,
                    flash_attn=settings.flash_attention != common.OFF,  # llama.cpp's "auto" is on on processors
                    n_gpu_layers=placed.layers,
                    split_mode=getattr(llama_cpp, split_mode),
                    main_gpu=placed.main_gpu,
                    tensor_split=list(settings.tensor_split) or None,
                    offload_kqv=placed.is_on_gpu,
                    op_offload=placed.is_on_gpu,
                    no_perf=False,
                    lora_path=lora,
                    logits_all=False,
                    verbose=False,
                    **{name: value for name, value in threads.items() if value is not None},
                    **kind,
                )
        except (RuntimeError, ValueError) as error:
            raise not_loaded(file, error, log.text) from error
        parameters = self.model.context_params
        check_parameters(
            self.model.model_params.n_gpu_layers,
            placed,
            op_offload=bool(getattr(parameters, "op_offload", False)),
            kv_offload=bool(parameters.offload_kqv),
        )
        devices: list[Json] = [device.label for device in ggml_devices.listed_by_binding()]
        flash = {
            llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED: "enabled",
            llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED: "disabled",
        }
        self.facts: Mapping[str, Json] = {
            **self.header,
            **placed.facts,
            **ggml_devices.check_offloaded(log.text, placed),
            "engine": f"llama-cpp-python {llama_cpp.__version__}",
            "engine_system": llama_cpp.llama_print_system_info().decode().strip(),
            "engine_devices": devices,
            "num_threads": int(self.model.n_threads),
            "batch_threads": int(self.model.n_threads_batch),
            "context_tokens": int(self.model.n_ctx()),
            "kv_cache_type": [TYPES[number].name.lower() for number in (parameters.type_k, parameters.type_v)],
            "flash_attention": flash[parameters.flash_attn_type],
        }

    def request(self, prompts: np.ndarray, new_tokens: int, context: np.ndarray | None) -> EngineRequest:
        if len(prompts) > 1:
            raise UnsupportedError(
                "llama-cpp-python runs one sequence at a time: use --batch-sizes 1, or pip install xllamacpp"
            )
        context_tokens = [] if context is None else context[0].tolist()
        return BindingRequest(
            self.model, prompts[0].tolist(), new_tokens, context_tokens, has_prefix_cache=self.settings.has_prefix_cache
        )

    def close(self) -> None:
        self.model.close()


class BindingLog:
    """Inside, llama.cpp's log goes to `text`, each line as with its server; afterwards the binding's own takes it."""

    LEVELS: Mapping[int, str] = {3: "E", 5: ""}
    """Levels of ggml's log that are of use: errors, and the continuation of a line."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """What was logged."""
        return "".join(self._parts)

    def __enter__(self) -> BindingLog:
        import llama_cpp

        def keep(level: int, text: bytes, _: Any) -> None:
            start = f"- {self.LEVELS.get(level, 'I')} " if level != 5 else ""
            self._parts.append(start + text.decode(errors="replace"))

        self._callback = llama_cpp.llama_log_callback(keep)
        llama_cpp.llama_log_set(self._callback, None)
        return self

    def __exit__(self, *_: object) -> None:
        import llama_cpp
        from llama_cpp import _logger

        llama_cpp.llama_log_set(_logger.llama_log_callback, None)


class BindingRequest(EngineRequest):
    """A loop over `Llama.eval` and the most likely token; the library's own `generate` does the same with samplers."""

    def __init__(
        self, model: Any, prompt: list[int], new_tokens: int, context: list[int], *, has_prefix_cache: bool
    ) -> None:
        self._model = model
        self._prompt = prompt
        self._context = context
        self._new_tokens = new_tokens
        self._has_prefix_cache = has_prefix_cache
        self._reused = 0
        if has_prefix_cache and context:
            self._prompt = [*context, *prompt]

    def reset(self) -> None:
        """Forget the last call, and process the context; the library's cursor moves and llama.cpp's timers restart."""
        import llama_cpp

        if not self._has_prefix_cache:
            self._model.reset()
            if self._context:
                self._model.eval(self._context)
        known = self._model.input_ids[: self._model.n_tokens].tolist() if self._has_prefix_cache else []
        same = takewhile(lambda pair: pair[0] == pair[1], zip(known, self._prompt[:-1], strict=False))
        self._reused = sum(1 for _ in same)
        llama_cpp.llama_perf_context_reset(self._model.ctx)

    def generate(self, arrived: Arrivals) -> None:
        continues_context = bool(self._context) and not self._has_prefix_cache
        tokens = self._model.generate(self._prompt, temp=0.0, top_k=1, repeat_penalty=1.0, reset=not continues_context)
        for number, token in enumerate(tokens, start=1):
            arrived(0, (int(token),))
            if number == self._new_tokens:
                break

    def report(self) -> EngineReport:
        """By llama.cpp's own timers of the context. A part of the prompt that is one token counts as a generated one
        there, so the tokens are counted here."""
        import llama_cpp

        timings = llama_cpp.llama_perf_context(self._model.ctx)
        first_s, others_s = timings.t_p_eval_ms / 1e3, timings.t_eval_ms / 1e3
        is_timed = timings.n_p_eval > 0
        return EngineReport(
            first_s=first_s if is_timed else None,
            per_token_s=others_s / max(1, self._new_tokens - 1) if is_timed else None,
            total_s=first_s + others_s,
            prompt_tokens=len(self._prompt),
            reused_tokens=self._reused,
        )

    def verified(self) -> Mapping[str, Json]:
        return {"reused_prompt_tokens": self._reused} if self._has_prefix_cache else {}


def _ggml_type(name: str) -> int:
    return next(number for number, kind in TYPES.items() if kind.name.lower() == name)
